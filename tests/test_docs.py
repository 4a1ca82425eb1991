"""README and the site say what is there: files, equations, commands, snippets and generated pages."""

import functools
import importlib.util
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tyro

import hub_stand_in
import iaa
import tiny_datasets
import tiny_server
from iaa.cli import VERBS, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "decisions").glob("*.md"))
FENCE = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", flags=re.MULTILINE | re.DOTALL)


def script(name: str) -> ModuleType:
    """A script of docs/scripts, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def fenced(language: str) -> list[tuple[Path, str]]:
    """Every fenced block of a language, with its page."""
    return [
        (page, body) for page in PAGES for kind, body in FENCE.findall(page.read_text()) if kind == language
    ]


def cited(text: str) -> set[int]:
    """Every equation a text cites: ``Eq. 7``, ``Eq. 5-6``, ``Eq. 18, 19, 20``."""
    equations: set[int] = set()
    for group in re.findall(r"Eq\. (\d+(?:(?:-|, )\d+)*)", text):
        for part in group.split(", "):
            first, _, last = part.partition("-")
            equations.update(range(int(first), int(last or first) + 1))
    return equations


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_a_page_names_exists(page):
    text = page.read_text()
    for path in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]+)?\)", text):
        generated = (page.parent / path).resolve() == ROOT / "docs" / "commands.md"
        assert generated or (page.parent / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_images_of_a_page_are_there(page):
    text = page.read_text()
    for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)|<img src=\"([^\"]+)\"", text):
        assert (page.parent / (path[0] or path[1])).stat().st_size > 1000


class Parsed(BaseException):
    """A command line was understood; what it asks for is not carried out."""


@pytest.fixture
def parsed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real parsers run, and then ``Parsed`` is raised."""

    def stub(command: Any) -> Any:
        @functools.wraps(command)
        def instead(*_: Any, **__: Any) -> None:
            pass

        return command if isinstance(command, type) else instead

    def parse(cli: Any, command: Any, **options: Any) -> None:
        cli(
            {k: stub(v) for k, v in command.items()} if isinstance(command, dict) else stub(command),
            **options,
        )
        raise Parsed

    several = tyro.extras.subcommand_cli_from_dict
    monkeypatch.setattr(tyro, "cli", functools.partial(parse, tyro.cli))
    monkeypatch.setattr(tyro.extras, "subcommand_cli_from_dict", functools.partial(parse, several))


def commands() -> list[str]:
    """Every line of every ``sh`` block, without comments, continued lines joined."""
    lines = "\n".join(body for _, body in fenced("sh")).replace("\\\n", " ").splitlines()
    return sorted({re.sub(r"\s+#.*", "", line).strip() for line in lines} - {""})


@pytest.mark.parametrize("line", commands())
def test_every_command_shown_can_be_parsed(line, parsed_only):
    words = shlex.split(line)
    if words[0] == "torchrun":
        words = ["iaa", *words[words.index("-m") + 2 :]]
    if words[0] == "iaa":
        with pytest.raises(Parsed):
            main(words[1:])
    elif words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert words[1] in targets
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file()
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert (ROOT / words[words.index("-c") + 1]).is_file()
        (extras,) = re.findall(r"\[(.*)\]", words[-1])
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    elif words[0] == "curl":
        assert "/api/search" in words[-1]
        assert '"/api/search"' in (ROOT / "src/iaa/serve/routes.py").read_text()
    else:
        pytest.fail(f"nobody checks {line!r}")


def test_a_command_with_an_unknown_option_would_be_noticed(parsed_only, capsys):
    assert main(["search", "runs/x", "query.jpg", "--tops", "5"]) == 2
    assert main(["train", "--optimizer.rate", "1"]) == 2
    capsys.readouterr()


def test_examples_of_docstrings_become_code():
    pytest.importorskip("griffe")
    text = "Add.\n\n>>> 1 + 1\n2\n\nMore."
    assert script("doctest_blocks").fenced(text) == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."


def mentions() -> list[str]:
    """Commands in running text, such as ```iaa data check NAME --root DIR```."""
    texts = (FENCE.sub("", page.read_text()) for page in PAGES)
    return sorted({line for text in texts for line in re.findall(r"`(iaa [a-z][^`\n]*)`", text)})


@functools.cache
def help_of(*words: str) -> str:
    return str(script("command_reference").help_of(*words))


@pytest.mark.parametrize("line", mentions())
def test_every_command_mentioned_has_its_verb_and_options(line):
    verb, *words = line.split()[1:]
    assert verb in VERBS
    subs = [*script("command_reference").subcommands(verb)]
    sub = words[:1] if subs and words and re.fullmatch("[a-z]+", words[0]) else []
    assert not sub or sub[0] in subs
    known = help_of(verb, *sub) + "".join(help_of(verb, name) for name in subs if not sub)
    for option in re.findall(r"--[a-z][\w.-]*", line):
        assert option in known or option.replace("--", "--no-", 1) in known, option


@pytest.mark.filterwarnings(hub_stand_in.CLIENT_WARNING)
@pytest.mark.parametrize("page", sorted({page for page, _ in fenced("python")}), ids=lambda page: page.name)
def test_every_snippet_of_a_page_runs(page, tmp_path, monkeypatch, unchecked, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    if page.name == "quickstart.md":
        run = tiny_server.trained(tmp_path)
        shutil.copy(next((tmp_path / "images").rglob("*.png")), tmp_path / "query.jpg")
        monkeypatch.setattr(iaa, "train", lambda config: iaa.Run(run), raising=False)
    if page.name == "own-photos.md":
        (tmp_path / "runs").mkdir()
        shutil.copytree(tiny_server.trained(tmp_path / "tiny"), tmp_path / "runs" / "x")
        request.getfixturevalue("hub")
    if page.name == "datasets.md":
        tiny_datasets.cub(tmp_path / "data")
    names: dict[str, Any] = {"__name__": "snippet"}
    for owner, body in fenced("python"):
        if owner == page:
            exec(compile(body, str(page), "exec"), names)


def test_snippets_of_readme_are_the_three_lines_it_promises():
    (body,) = [body for page, body in fenced("python") if page.name == "README.md"]
    steps = [line for line in body.splitlines() if line and not line.startswith(("import", "from", "z, "))]
    assert len(steps) == 3


def test_the_command_reference_has_every_verb_and_sentences_that_fit():
    reference = script("command_reference")
    page = reference.page().removeprefix(reference.INTRODUCTION)
    for verb in VERBS:
        assert f"\n## iaa {verb}\n" in f"\n{page}"
    assert "\x1b" not in page
    assert max(len(line) for line in page.splitlines() if not line.startswith((" ", "- "))) <= reference.WIDTH


def test_the_sizing_table_is_what_the_script_computes():
    sizing = script("sizing")
    assert sizing.PAGE.read_text() == sizing.page(sizing.PAGE.read_text())
    million = next(row for row in sizing.table().splitlines() if row.startswith("| 1,000,000 |"))
    assert f"{1e6 * 512 * 4 / 2**30:.1f} GiB" in million  # four bytes for each of 512 dimensions


def test_the_figures_of_the_method_are_drawn_by_the_script(tmp_path):
    drawn = {path.name for path in script("method_figures").draw(tmp_path)}
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    assert drawn == set(re.findall(r"images/(method-\w+\.svg)", text))


def test_public_names_are_in_the_reference():
    text = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in iaa.__all__ if f"::: iaa.{name}" not in text]
    modules = {"train": "iaa.train.train", "Config": "iaa.config.Config"}
    assert [name for name in missing if f"::: {modules.get(name, '?')}" not in text] == []


def test_the_site_lists_every_page():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f" {page.name}" in nav
