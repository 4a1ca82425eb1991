"""The page in a real browser: upload, click on, filter, keys, phone and dark; and no word on its console."""

import io
import re
import shutil
from collections.abc import Iterator

import pytest
from PIL import Image

import tiny_server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
ABORTED = "net::ERR_ABORTED"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as tools:
        chromium = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, base, request) -> Iterator[object]:
    """The page, open; in the end nothing may have gone wrong on it."""
    options = getattr(request, "param", {"viewport": {"width": 1280, "height": 800}})
    context = browser.new_context(base_url=base, **options)
    page = context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda sent: wrong.append(sent.url) if sent.failure != ABORTED else None)
    page.on("request", lambda sent: None if sent.url.startswith((base, "blob:")) else wrong.append(sent.url))
    page.goto("/")
    page.wait_for_selector("#grid .tile")
    page.expected = wrong.clear  # for tests that provoke a refusal, which browsers log by themselves
    yield page
    context.close()
    assert wrong == []


def labels(page) -> list[str]:
    return page.locator("#grid .label").all_inner_texts()


def wait_for_results(page) -> None:
    page.wait_for_selector("#grid .similarity")


def test_the_page_starts_with_an_image_of_each_class(page):
    assert sorted(labels(page)) == sorted(set(labels(page)))
    assert len(labels(page)) == 8
    assert page.locator("#facts").inner_text() == "40 images · 8 classes · convnet, 8 dimensions"
    assert page.title() == "tiny · search"
    sizes = page.locator("#grid img").evaluate_all(
        "all => Promise.all(all.map(entry => entry.decode().then(() => entry.naturalWidth)))"
    )
    assert sizes == [24] * 8


def test_upload_then_click_through_then_back(page, photo, run):
    page.set_input_files("#file", run.parents[1] / "images" / "light red" / "0.png")
    wait_for_results(page)
    assert labels(page)[0] == "light red"
    assert page.locator(".similarity").first.inner_text() == "1.00"
    assert page.locator("#caption").inner_text().startswith("0.png")
    assert page.locator("#preview").evaluate("entry => entry.decode().then(() => entry.naturalWidth)") == 24
    assert "light red" in page.locator("#classification").inner_text()
    chosen = page.locator("#grid .tile").nth(3)
    label = chosen.locator(".label").inner_text()
    chosen.locator(".image").click()
    page.wait_for_url("**/?id=*")
    page.wait_for_selector(f"#caption .label:text-is('{label}')")
    assert len(labels(page)) == 24
    page.go_back()
    page.wait_for_selector("#caption:has-text('0.png')")
    assert labels(page)[0] == "light red"
    page.click("#clear")
    page.wait_for_selector("#heading:text-is('Start from any image')")
    assert page.locator("#preview").is_hidden()


def test_a_dropped_and_a_pasted_image_are_searched_for(page, photo):
    for kind, event in (("drop", "DragEvent"), ("paste", "ClipboardEvent")):
        page.goto("/")
        page.wait_for_selector("#grid .tile")
        page.evaluate(
            """([bytes, kind, event]) => {
                const given = new DataTransfer();
                given.items.add(new File([new Uint8Array(bytes)], "given.png", { type: "image/png" }));
                const name = kind === "drop" ? "dataTransfer" : "clipboardData";
                dispatchEvent(new window[event](kind, { [name]: given, cancelable: true }));
            }""",
            [list(photo), kind, event],
        )
        wait_for_results(page)
        assert labels(page)[0] == "light red"


def test_a_class_can_be_chosen_and_shows_how_it_varies(page):
    page.locator("#grid .image").first.click()
    wait_for_results(page)
    page.fill("#only", "dark gr")
    page.wait_for_selector("#names option[value='dark green']", state="attached")
    page.fill("#only", "dark green")
    page.keyboard.press("Enter")
    page.wait_for_selector("#heading:text-is('Most similar in dark green')")
    assert set(labels(page)) == {"dark green"}
    assert page.locator("#class-name").inner_text() == "dark green"
    captured = page.locator(".numbers").inner_text()
    assert "variation" in captured
    assert "× the average" in captured
    assert page.locator("#class-panel .strip li").count() == 5
    page.locator("#class-panel .chips button").first.click()
    page.wait_for_selector("#class-name:not(:text-is('dark green'))")
    page.fill("#only", "")
    page.wait_for_selector("#heading:text-is('Most similar')")
    assert len(set(labels(page))) > 1
    page.fill("#only", "no such")
    page.keyboard.press("Enter")
    page.wait_for_selector("#error:text-is('No class contains “no such”.')")


def test_everything_works_from_the_keyboard(page):
    choosers: list[object] = []
    page.on("filechooser", lambda entry: choosers.append(entry))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    focused = page.evaluate("document.activeElement.dataset.label")
    assert focused == labels(page)[1]
    page.keyboard.press("c")
    page.wait_for_selector(f"#class-name:text-is('{focused}')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#class-panel", state="hidden")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    wait_for_results(page)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "only"
    page.keyboard.type("light grey")
    page.keyboard.press("Enter")
    page.wait_for_selector("#heading:text-is('Most similar in light grey')")
    page.keyboard.press("Escape")  # out of the field
    page.keyboard.press("Escape")  # its class is closed
    page.keyboard.press("Escape")  # the query is cleared
    page.wait_for_selector("#heading:text-is('Start from any image')")
    page.keyboard.press("o")
    tiny_server.eventually(lambda: page.wait_for_timeout(20) or choosers)
    assert page.locator(".keys").evaluate("entry => getComputedStyle(entry).opacity") != "0"


def test_tab_reaches_everything_and_every_control_has_a_name(page):
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached[:6] == ["skip", "brand", "quiet", "file", "only", "top"]
    assert reached[6].startswith("image")
    assert reached[7] == "label"
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, select")].filter((one) => {
            const images = [...one.querySelectorAll("img")].map((image) => image.alt).join("");
            const label = one.labels?.[0]?.textContent || one.textContent || one.ariaLabel || images;
            return !label.trim();
        }).map((one) => one.outerHTML)"""
    )
    assert unnamed == []


def test_a_file_that_is_not_an_image_is_refused_with_a_message(page, tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("no image")
    page.set_input_files("#file", text)
    assert page.locator("#error").inner_text() == "notes.txt is not an image."
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n")
    page.set_input_files("#file", broken)
    page.wait_for_selector("#error:has-text('the file is not a readable image')")
    huge = tmp_path / "huge.png"
    huge.write_bytes(b"\x00" * 300_000)
    page.set_input_files("#file", huge)
    page.wait_for_selector("#error:has-text('huge.png has')")
    page.expected()
    page.goto("/?id=4000")
    page.wait_for_selector("#error:has-text('no image 4000')")
    page.expected()


def test_class_names_are_shown_as_text_and_not_as_html(page, base):
    """A class or a file may be called anything."""
    page.route(
        "**/api/gallery?*",
        lambda route: route.fulfill(
            json={
                "results": [
                    {
                        "id": 0,
                        "label": "<img src=x onerror=alert(1)>",
                        "name": "\"'><b>",
                        "image": "/api/images/0",
                    }
                ],
                "total": 1,
            }
        ),
    )
    page.goto("/")
    page.wait_for_selector("#grid .tile")
    assert labels(page) == ["<img src=x onerror=alert(1)>"]
    assert page.locator("#grid img").count() == 1


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("page", [PHONE, {**PHONE, "viewport": {"width": 320, "height": 568}}], indirect=True)
def test_on_a_phone_nothing_is_cut_off(page):
    page.locator("#grid .image").first.tap()
    wait_for_results(page)
    page.locator("#grid .label").first.tap()
    page.wait_for_selector("#class-name")
    wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= room
    heights = page.locator("#clear, #only, #top, #class-panel .plain").evaluate_all(
        "all => all.map(entry => entry.getBoundingClientRect().height)"
    )
    assert min(heights) >= 38


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_long_class_names_are_shown_in_full_on_a_phone(page):
    names = [
        "021.Eastern_Towhee",
        "007.Parakeet_Auklet",
        "034.Gray_crowned_Rosy_Finch",
        "Überlanger Klassenname",
    ]
    items = [{"id": row, "label": name, "name": name, "image": None} for row, name in enumerate(names)]
    page.route("**/api/gallery?*", lambda route: route.fulfill(json={"results": items, "total": len(items)}))
    page.goto("/")
    page.wait_for_selector("#grid .label:has-text('Towhee')")
    hidden = page.locator("#grid .label").evaluate_all(
        """all => all.filter(it => it.scrollHeight > 1 + it.clientHeight
            || it.scrollWidth > 1 + it.clientWidth).map(it => it.textContent)"""
    )
    assert hidden == []


def test_a_server_with_a_token_asks_for_it_once(browser, run):
    token = "correct-horse-battery"
    with tiny_server.served(tiny_server.service(run), token=token) as address:
        context = browser.new_context(base_url=address)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.goto("/")
        page.fill("dialog input", "wrong-token-12345")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog:has-text('That is not the token')")
        assert page.locator("#grid .tile").count() == 0
        page.fill("dialog input", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("#grid .tile")
        page.wait_for_selector("#facts:has-text('40 images')")
        assert page.locator("dialog").count() == 0
        loaded = "all => Promise.all(all.map(it => it.decode().then(() => it.naturalWidth)))"
        assert page.locator("#grid img").evaluate_all(loaded) == [24] * 8  # images have the cookie
        page.goto("/api")
        page.wait_for_selector("pre:has-text('Authorization: Bearer $IAA_TOKEN')")
        context.close()


def contrast(one: str, other: str) -> float:
    """As the accessibility guidelines (WCAG 2) define it."""
    light = []
    for text in (one, other):
        parts = [int(value) / 255 for value in re.findall(r"\d+", text)[:3]]
        r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
        light.append(0.2126 * r + 0.7152 * g + 0.0722 * b)
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize(
    ("page", "dark"),
    [({"color_scheme": "light"}, False), ({"color_scheme": "dark"}, True)],
    indirect=["page"],
)
def test_light_and_dark(page, dark):
    shot = Image.open(io.BytesIO(page.screenshot())).convert("L")
    assert (shot.getpixel((4, 300)) < 60) == dark
    colours = page.evaluate(
        """() => [["#status", "html"], [".tile .label", ".tile"], [".field span", "html"]].map((pair) => [
            getComputedStyle(document.querySelector(pair[0])).color,
            getComputedStyle(document.querySelector(pair[1])).backgroundColor])"""
    )
    for text, under in colours:
        assert contrast(text, under) > 4.5


def test_the_api_page_lists_every_operation(page, base):
    page.goto("/api")
    page.wait_for_selector("article")
    shown = page.locator("article h2").all_inner_texts()
    assert "POST/api/search" in [text.replace(" ", "") for text in shown]
    assert len(shown) == 8
    assert f"curl -F image=@photo.jpg {base}/api/embed" in page.locator("pre").all_inner_texts()
