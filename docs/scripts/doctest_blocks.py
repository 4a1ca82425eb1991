"""Examples of docstrings (``>>> …``) as blocks of code in the Python reference, not as quotes of Markdown."""

import re
from typing import Any

from griffe import Extension

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
"""From the first prompt to the next empty line."""


class DoctestBlocks(Extension):
    """mkdocstrings calls this with every object it reads."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Put a fence around the examples of a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring whose examples are blocks of code.

    >>> fenced("Add.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", docstring)
