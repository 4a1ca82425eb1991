import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

import hostile_gallery

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from iaa.report.blocks import (
    FactTable,
    Figures,
    Headline,
    Page,
    Paragraph,
    Section,
    Strip,
    Strips,
    StripTile,
    Table,
    TableCell,
)
from iaa.report.figure_style import Figure, label_text, panels
from iaa.report.page import render

EVIL = "</script></style><img src=x onerror=alert(1)>\"'`<script>alert(2)</script>`{{ 7 * 7 }}"


class Seen(HTMLParser):
    """Every tag, every attribute, all text outside of style and script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self.inside = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.inside.append(tag)

    def handle_endtag(self, tag):
        if tag in self.inside:
            while self.inside.pop() != tag:
                pass

    def handle_data(self, data):
        if not {"style", "script"} & set(self.inside):
            self.words.append(data)


def figure():
    with panels() as (drawn, (axes,)):
        axes.plot([0, 1], label=label_text(EVIL, 200))
        axes.legend()
    return Figure("figure", drawn, EVIL, EVIL, EVIL)


@pytest.fixture(scope="module")
def page():
    tile = StripTile(None, EVIL, "wrong", EVIL)
    blocks = [
        Table(EVIL, ("", EVIL), ((TableCell(EVIL, EVIL, strong=True), TableCell(EVIL)),), (EVIL,)),
        Paragraph(EVIL, (EVIL,), "good"),
        Figures((figure(),)),
        FactTable(EVIL, ((EVIL, EVIL),), ((EVIL, EVIL),)),
        Strips(EVIL, EVIL, (Strip(tile, ((EVIL, (tile,)),)),)),
        hostile_gallery.atlas(EVIL),
    ]
    whole = [Section("one", EVIL, EVIL, blocks)]
    return render(
        Page(
            EVIL,
            EVIL,
            EVIL,
            (Headline(EVIL, EVIL, EVIL),),
            (EVIL,),
            (EVIL, EVIL),
            whole,
            ((EVIL, EVIL),),
            EVIL,
        )
    )


def test_nothing_that_is_shown_becomes_code(page):
    seen = Seen(page)
    assert seen.tags.count("script") == 2  # the page's own, and the data of the atlas
    assert "img" not in seen.tags
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "49" not in "".join(seen.words)  # no template within the template


def test_every_word_is_shown_as_it_is(page):
    text = "".join(Seen(page).words)
    shown = EVIL.replace("`", "")  # backquotes mark code in sentences
    assert text.count(EVIL) > 10
    assert text.count(shown) >= 4
    assert "<code>&lt;script&gt;alert(2)&lt;/script&gt;</code>" in page


def test_the_data_of_the_atlas_cannot_end_its_script(page):
    data = re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1]
    assert "<" not in data
    assert "\\u003c/script\\u003e" in data


def test_numbers_worse_than_before_training_are_not_in_the_accent_colour():
    numbers = (Headline("R@1", "30.0 %", "", worse=True), Headline("MAP@R", "9.0 %", ""))
    text = render(Page("x", "", "", numbers, ("Training made search worse.",), ("run",), [], (), ""))
    assert '<div class="worse"><dt>R@1</dt>' in text
    assert "<div><dt>MAP@R</dt>" in text
    assert text.index("Training made search worse.") < text.index("</header>")
    assert ".headline div.worse strong { color: var(--wrong); }" in text


def test_only_the_page_s_own_script_may_run_and_nothing_be_fetched(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
