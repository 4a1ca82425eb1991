"""``python -m iaa`` is ``iaa``."""

from iaa.cli import main

raise SystemExit(main())
