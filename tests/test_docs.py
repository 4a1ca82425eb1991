"""README, map and decisions say what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def cited(text: str) -> set[int]:
    """Every equation a text cites: ``Eq. 7``, ``Eq. 5-6``, ``Eq. 18, 19, 20``."""
    found: set[int] = set()
    for group in re.findall(r"Eq\. (\d+(?:(?:-|, )\d+)*)", text):
        for part in group.split(", "):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("equation", range(1, 21))
def test_every_equation_is_mapped_and_cited_where_it_is_implemented(equation):
    rows = (ROOT / "docs/paper-map.md").read_text().splitlines()
    (row,) = (row for row in rows if row.startswith(f"| Eq. {equation} |"))
    implemented, tested = row.split("|")[3:5]
    for path in re.findall(r"`(src/[^`]+)`", implemented):
        assert equation in cited((ROOT / path).read_text()), path
    for path in re.findall(r"`(tests/[^`]+)`", tested):
        assert (ROOT / path).exists(), path
    assert equation in cited((ROOT / "tests/oracles.py").read_text()) or equation == 17


def test_every_file_the_docs_name_exists():
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for path in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", document.read_text()):
            assert (ROOT / path).exists(), f"{document.name}: {path}"


def test_readme_commands_are_make_targets():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for command in re.findall(r"^ *make ([a-z]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE):
        assert command in targets
