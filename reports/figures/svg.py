"""Pictures as files and as parts of a page: deterministic bytes, ids that no other picture has."""

import io
import re
from html import escape
from pathlib import Path

from markupsafe import Markup

from reports.figures.picture import Picture

_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_NO_PDF_METADATA = {"CreationDate": None, "Creator": None, "Producer": None}
_REFERENCES = re.compile(r'(\bid="|url\(#|href="#)')
_OUTSIDE_SVG = re.compile(r"^.*?(?=<svg)", re.DOTALL)


def embedded(picture: Picture, folder: Path) -> Markup:
    """Write the picture into `folder`, see `save`, and return its `<svg>` element for a page."""
    return Markup(inline(save(picture, folder), picture.name, picture.title))


def save(picture: Picture, folder: Path) -> str:
    """Write NAME.svg and NAME.pdf into `folder` and return the SVG."""
    figure = picture.figure
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    svg = buffer.getvalue()
    (folder / f"{picture.name}.svg").write_text(svg)
    figure.savefig(folder / f"{picture.name}.pdf", metadata=_NO_PDF_METADATA)
    return svg


def inline(svg: str, name: str, title: str) -> str:
    """The `<svg>` element for a page: it names nothing outside the page and scales to its place.

    Matplotlib's ids (glyphs, clip paths) repeat in other pictures; the picture's name makes them unique.
    """
    body = _OUTSIDE_SVG.sub("", svg, count=1)
    head, rest = body.split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None
    rest = re.sub(r"\s*<metadata>.*?</metadata>", "", rest, count=1, flags=re.DOTALL)
    label = escape(title, quote=True)
    return f'<svg {view.group()} role="img" aria-label="{label}">' + _REFERENCES.sub(rf"\g<1>{name}-", rest)
