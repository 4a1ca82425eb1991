"""Links out of docs/ work on the site as they do in a checkout: files beside docs/ are copied next to it."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LINK = re.compile(r"\]\((?:\.\./)+([\w./-]+)(#[\w-]+)?\)")
"""``](../benchmarks/tuning.json)``: a file of the repository outside docs/."""


def on_files(files: Files, config: Any) -> Files:
    """MkDocs calls this with the files it found: add those of the repository that pages link to."""
    root = Path(config.config_file_path).parent
    for page in [file for file in files if file.is_documentation_page()]:
        for path, _ in LINK.findall(page.content_string):
            if (root / path).is_file() and files.get_file_from_path(f"files/{path}") is None:
                content = (root / path).read_bytes()
                files.append(File.generated(config, f"files/{path}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """MkDocs calls this with every page: lead such links to the copies."""
    up = "../" * page.file.src_uri.count("/")

    def leads(match: re.Match[str]) -> str:
        known = files.get_file_from_path(f"files/{match[1]}") is not None
        return f"]({up}files/{match[1]})" if known else match[0]

    return LINK.sub(leads, markdown)
