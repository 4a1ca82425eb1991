"""Search results as one self-contained HTML file: images are embedded, and all text is escaped."""

import base64
import io
from html import escape
from pathlib import Path
from typing import Any

from iaa.data.image_io import UnreadableImage, read
from iaa.data.image_ref import Box
from iaa.files import write_text
from iaa.gallery.gallery import Gallery

SIDE = 176
"""Longest side of an image on the page, in pixels."""

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #2563eb; }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem; max-width: 1240px; }
h1 { font-size: 1.25rem; margin: 0 0 .2rem; } p { margin: .2rem 0 1rem; } .quiet { opacity: .7; }
section { display: grid; grid-template-columns: 200px 1fr; gap: 1.2rem; padding: 1.1rem 0; }
section + section { border-top: 1px solid var(--line); }
ol { list-style: none; display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr));
  gap: .9rem; margin: 0; padding: 0; align-content: start; }
figure { margin: 0; } .frame { display: grid; place-items: center; height: 176px; background: var(--soft);
  border-radius: 8px; overflow: hidden; } .frame img { width: 100%; height: 176px; object-fit: contain; }
.query .frame { outline: 2px solid var(--accent); outline-offset: 2px; }
figcaption { padding-top: .35rem; overflow-wrap: anywhere; } .label { font-weight: 600; }
.path { font-size: .75rem; opacity: .65; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.similarity { font-variant-numeric: tabular-nums; white-space: nowrap; }
.line { display: flex; align-items: center; gap: .5rem; font-size: .85rem; }
.bar { flex: 1; height: 4px; border-radius: 2px; background: var(--soft); }
.bar i { display: block; height: 100%; border-radius: 2px; background: var(--accent); }
.classes { margin: .5rem 0 0; padding: 0; font-size: .85rem; display: block; } .unknown { color: #b45309; }
.classes li { display: flex; justify-content: space-between; gap: .5rem; overflow-wrap: anywhere; }
@media (max-width: 640px) { section { grid-template-columns: 1fr; } body { padding: 1rem; }
  .query { max-width: 220px; } ol { grid-template-columns: repeat(2, 1fr); } ol.classes { display: block; } }
"""


def write_page(
    path: Path, gallery: Gallery, answers: list[dict[str, Any]], *, title: str, about: str
) -> None:
    """Write every query with its hits to one file, atomically."""
    sections = "\n".join(_section(gallery, answer) for answer in answers)
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f'<body><h1>{escape(title)}</h1><p class="quiet">{escape(about)}</p>\n{sections}\n</body></html>\n'
    )
    write_text(path, text)


def _section(gallery: Gallery, answer: dict[str, Any]) -> str:
    hits = "".join(_hit(gallery, hit) for hit in answer["hits"])
    name = Path(answer["query"]).name
    return (
        f'<section><figure class="query">{_image(answer["query"], f"query {name}")}'
        f'<figcaption><span class="label">{escape(name)}</span>{_classes(answer)}</figcaption></figure>'
        f"<ol>{hits}</ol></section>"
    )


def _hit(gallery: Gallery, hit: dict[str, Any]) -> str:
    ref = gallery.image(hit["row"])
    image = _image(hit["path"], hit["label"], None if ref is None else ref.box)
    short_path = "/".join(Path(hit["path"]).parts[-2:])
    share = 100 * min(max(hit["similarity"], 0.0), 1.0)
    return (
        f'<li><figure>{image}<figcaption><div class="line"><div class="bar"><i style="width:{share:.1f}%">'
        f'</i></div><span class="similarity quiet">{hit["similarity"]:.3f}</span></div>'
        f'<div class="label">{escape(hit["label"])}</div>'
        f'<div class="path" title="{escape(hit["path"])}">{escape(short_path)}</div>'
        "</figcaption></figure></li>"
    )


def _classes(answer: dict[str, Any]) -> str:
    if "classes" not in answer:
        return ""
    rows = "".join(
        f'<li><span>{escape(c["label"])}</span><span class="similarity quiet">{c["shown"]}</span></li>'
        for c in answer["classes"]
    )
    verdict = "unknown; the nearest classes" if answer["known"] is False else "likeliest classes"
    mark = ' class="unknown"' if answer["known"] is False else ""
    return f'<div{mark}>{verdict}</div><ol class="classes">{rows}</ol>'


def _image(path: str, alt: str, box: Box | None = None) -> str:
    """A small copy of an image for the page, or a note if it cannot be read."""
    try:
        image = read(path, at_least=2 * SIDE, box=box)
    except UnreadableImage as error:
        return f'<div class="frame quiet" title="{escape(error.reason)}">not available</div>'
    image.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<div class="frame"><img alt="{escape(alt)}" src="data:image/jpeg;base64,{data}"></div>'
