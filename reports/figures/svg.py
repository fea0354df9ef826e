"""Pictures as files and as parts of a page: deterministic bytes, ids that no other picture has."""

from __future__ import annotations

import io
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from reports.figures.picture import Picture
from workloads.atomic_file import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    _no_mathematics(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    svg = buffer.getvalue()
    with replacing(folder / f"{picture.name}.svg") as file:
        file.write(svg.encode())
    with replacing(folder / f"{picture.name}.pdf") as file:
        figure.savefig(file, format="pdf", metadata=_NO_PDF_METADATA)
    return svg


def _no_mathematics(figure: Figure) -> None:
    """Keep dollar signs of names and server texts as they are. Only powers on logarithmic axes are typeset."""
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    labels = {axis: axis.get_ticklabels(which="both") for axis in axes}  # which makes them, too
    powers = [axis for axis in axes if isinstance(axis.get_major_formatter(), LogFormatter)]
    for text in {*figure.findobj(Text)} - {label for axis in powers for label in labels[axis]}:
        assert isinstance(text, Text)
        if text.get_wrap():  # wrapping looks for mathematics even if parsing is off
            text.set_text(text.get_text().replace("$", r"\$"))
        else:
            text.set_parse_math(False)


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
