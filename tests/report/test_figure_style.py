import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from iaa.report.figure_style import INK, SERIES, Figure, label_text, panels


def drawn(name="line", label="a", colour=SERIES[0]):
    with panels() as (figure, (axes,)):
        axes.plot([0, 1], [1, 0], color=colour, label=label_text(label))
        axes.set_title("title", color=INK)
        axes.legend()
    return Figure(name, figure, "Title", "what it shows")


def words(svg):
    return [
        "".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    ]


def test_a_page_gets_colours_as_variables_and_no_size():
    svg = drawn().svg(1)
    assert "var(--series-1)" in svg
    assert "var(--ink)" in svg
    assert SERIES[0] not in svg
    head = svg[: svg.index(">")]
    assert "viewBox" in head
    assert not re.search(r'\b(width|height)="', head)


def test_two_figures_of_a_page_share_no_id():
    ids = [set(re.findall(r'\bid="([^"]+)"', drawn().svg(number))) for number in (1, 2)]
    assert ids[0]
    assert not ids[0] & ids[1]
    svg = drawn().svg(3)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    assert used <= set(re.findall(r'\bid="([^"]+)"', svg))


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "$a^{", "$x$ and $y$", "_low", "\\$", "日本", "a & b"]
)
def test_any_name_is_shown_as_it_is(name):
    assert name in [word.replace("\u200b", "") for word in words(drawn(label=name).svg(1))]


def test_long_names_are_cut():
    assert label_text("x" * 100, 10) == "x" * 9 + "…"


def test_files_are_on_white_and_the_same_every_time(tmp_path):
    first, second = (drawn().save(tmp_path / folder / "line.svg").read_bytes() for folder in "ab")
    assert first == second
    assert SERIES[0].encode() in first  # a file needs no style sheet
    assert drawn().save(tmp_path / "line.png").stat().st_size > 1000


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"the figure's ending must be one of '.svg', '.png', '.pdf'; got '.gif'"
    ):
        drawn().save(tmp_path / "line.gif")
