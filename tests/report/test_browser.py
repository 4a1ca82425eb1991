"""The page in a real browser."""

import json
import shutil

import pytest

import hostile_gallery
from iaa.cli import main

for package in ("jinja2", "matplotlib", "sklearn"):
    pytest.importorskip(package)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to look at the page with")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """Two embeddings files of the same images side by side, with class names that want to be code."""
    folder = tmp_path_factory.mktemp("gallery")
    files = []
    for seed in range(2):
        hostile_gallery.embeddings(folder, seed=seed).save(folder / f"run{seed}.safetensors")
        files.append(str(folder / f"run{seed}.safetensors"))
    assert main(["report", *files, "--out", str(folder / "page.html"), "--queries", "3"]) == 0
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser, page_file, request):
    """The page, and all that it complained of or asked for."""
    options = getattr(request, "param", {})
    context = browser.new_context(viewport={"width": options.pop("width", 1280), "height": 900}, **options)
    page, heard = context.new_page(), []
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda asked: heard.append(asked.url) if not asked.url.startswith("data:") else None)
    page.goto(page_file.as_uri())
    yield page, heard
    context.close()


def column(page, number, atlas=0):
    rows = page.locator(".atlas").nth(atlas).locator("tbody tr")
    return [row.locator("th, td").nth(number).inner_text().strip() for row in rows.all()]


def test_no_complaints_and_no_network(opened, page_file):
    page, heard = opened
    page.wait_for_load_state("networkidle")
    assert heard == [page_file.as_uri()]
    text = page_file.read_text()
    assert "http://" not in text.replace("http://www.w3.org", "")  # names of XML, not addresses
    assert "https://" not in text


def test_every_image_is_there(opened):
    page, _ = opened
    page.wait_for_function("[...document.images].every((one) => one.complete)")
    widths = page.evaluate("[...document.images].map((one) => one.naturalWidth)")
    assert (
        len(widths) >= 2 * 3 * 6
    )  # three random and three worst queries, each with five answers in two runs
    assert min(widths) > 0
    assert all(page.evaluate("[...document.images].map((one) => one.alt.length)"))


def test_class_names_are_text_everywhere(opened):
    page, heard = opened
    names = column(page, 0)
    assert names[: len(hostile_gallery.NASTY)] == list(hostile_gallery.NASTY)
    assert not [word for word in heard if word.startswith(("dialog", "error"))]
    assert page.locator("b[onmouseover], img[onerror]").count() == 0
    assert page.locator("script").count() == 3  # the page's own, and the data of two atlases


def test_classes_can_be_sorted(opened):
    page, _ = opened
    head = page.locator(".atlas").first.locator("thead th")
    head.nth(1).get_by_role("button").click()
    assert head.nth(1).get_attribute("aria-sort") == "descending"
    head.nth(4).get_by_role("button").click()  # variance, largest first
    numbers = [float(word) for word in column(page, 4)]
    assert len(set(numbers)) > 10
    assert numbers == sorted(numbers, reverse=True)
    head.nth(4).get_by_role("button").click()
    assert head.nth(4).get_attribute("aria-sort") == "ascending"
    assert [float(word) for word in column(page, 4)] == sorted(float(word) for word in column(page, 4))
    head.nth(0).get_by_role("button").focus()
    page.keyboard.press("Enter")
    names = [name for name in column(page, 0) if name.startswith("class ")]
    assert names == sorted(names, key=lambda name: int(name.split()[1]))  # class 9 before class 10


def test_classes_can_be_searched(opened):
    page, _ = opened
    atlas = page.locator(".atlas").nth(1)
    assert atlas.locator("output").inner_text() == "60 of 60 classes"
    atlas.get_by_role("searchbox").fill("CLASS 5")
    assert column(page, 0, atlas=1) == [f"class {number}" for number in range(50, 60)]
    assert atlas.locator("output").inner_text() == "10 of 60 classes"
    assert len(column(page, 0, atlas=0)) == 50  # the other table is not concerned
    atlas.get_by_role("searchbox").fill("</script>")
    assert column(page, 0, atlas=1) == list(hostile_gallery.NASTY[:2])


def test_only_some_rows_are_drawn_until_more_are_wanted(opened):
    page, _ = opened
    more = page.locator(".atlas .more").first
    assert more.inner_text() == "Show 10 more"
    more.click()
    assert len(column(page, 0)) == 60
    assert not more.is_visible()


@pytest.mark.parametrize(
    "opened", [{"width": 390}, {"width": 390, "color_scheme": "dark"}, {"width": 1600}], indirect=True
)
def test_nothing_sticks_out(opened):
    page, _ = opened
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("opened", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True)
def test_words_and_figures_can_be_read(opened):
    page, _ = opened
    colours = page.evaluate("""() => {
        const of = (selector, what) => getComputedStyle(document.querySelector(selector))[what];
        return [of("body", "backgroundColor"), of("body", "color"), of(".subtitle", "color"),
                of("figure svg text", "fill"), of(".headline strong", "color")];
    }""")
    paper, *inks = [[int(number) for number in colour[4:-1].split(",")[:3]] for colour in colours]
    assert min(contrast(paper, ink) for ink in inks) > 4.5


def contrast(a, b):
    """Ratio of luminances as WCAG defines it."""

    def luminance(colour):
        parts = [v / 255 / 12.92 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_a_label_and_a_head_for_everything(opened):
    page, _ = opened
    assert page.locator("h1").count() == 1
    assert page.locator("figure [role=img]:not([aria-label])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("tbody th:not([scope=row]), thead th:not([scope=col])").count() == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    links = page.evaluate("[...document.querySelectorAll('nav a')].map((one) => one.hash.slice(1))")
    assert set(links) <= set(ids)


def test_the_data_of_an_atlas_is_json_whatever_it_holds(opened):
    page, _ = opened
    data = json.loads(page.locator(".atlas script").first.text_content())
    assert [row[0] for row in data["rows"][: len(hostile_gallery.NASTY)]] == list(hostile_gallery.NASTY)


def test_it_prints(opened):
    page, _ = opened
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_thousands_of_classes_stay_quick(browser, tmp_path):
    from iaa.report.blocks import Page, Section
    from iaa.report.page import render

    whole = [Section("classes", "Classes", "", [hostile_gallery.atlas("class", 8000)])]
    (tmp_path / "page.html").write_text(render(Page("many", "", "", (), (), ("run",), whole, (), "")))
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("tbody tr").count() == 50
    took = page.evaluate("""() => {
        const began = performance.now();
        for (const button of document.querySelectorAll("thead button")) button.click();
        const search = document.querySelector("input");
        search.value = "7999";
        search.dispatchEvent(new Event("input"));
        return performance.now() - began;
    }""")
    assert page.locator("tbody tr").count() == 1
    assert took < 5000  # nine sorts and a search; hundreds of milliseconds on a machine at rest
    page.close()
