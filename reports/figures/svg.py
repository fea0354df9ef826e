"""Pictures as files and as parts of a page: deterministic bytes, ids that no other picture has."""

from __future__ import annotations

import io
import os
import re
import signal
from collections.abc import Sequence
from functools import partial
from html import escape
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from harness.clocks.parent import end_with_parent
from harness.experiments.provenance import cores
from reports.figures.column import fit
from reports.figures.picture import Picture
from workloads.atomic_file import replacing

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_NO_PDF_METADATA = {"CreationDate": None, "Creator": None, "Producer": None}
_REFERENCES = re.compile(r'(\bid="|url\(#|href="#)(?!DejaVu)')
_COLOURS = re.compile("(fill|stroke): #([0-9a-f]{6})")
_OUTSIDE_SVG = re.compile(r"^.*?(?=<svg)", re.DOTALL)


def embedded(picture: Picture, folder: Path, pdf: bool = True) -> Markup:
    """Write the picture into `folder`, see `save`, and return its `<svg>` elements for a page, for a desk and for a
    phone: a point shows its values under the pointer, and the label says the values of each series."""
    lines = {
        f"line-{place}": line
        for place, line in enumerate(line for axes in picture.figure.axes for line in axes.get_lines())
    }
    for gid, line in lines.items():
        line.set_gid(gid)
    svg = save(picture, folder, pdf)
    series = []
    for gid, line in lines.items():
        name, points = _points(line)
        svg = _titled(svg, gid, name, points)
        if name and 0 < len(points) <= _MOST_LABELLED:
            series.append(f"{name}: {', '.join(f'{y} at {x}' for x, y in points)}")
    label = ". ".join([picture.title, *(["; ".join(series)] if series else [])])
    desk, small = inline(svg, picture.name, label), inline(phone(picture), f"{picture.name}-phone", label)
    return Markup(f'<div class="desk">{desk}</div><div class="phone">{small}</div>')


def embedded_all(pictures: Sequence[Picture], folder: Path) -> list[Markup]:
    """Return `embedded` of each, without PDF, drawn by as many forked processes as there are cores."""
    jobs = min(cores(), len(pictures))
    if jobs < 2:
        return [embedded(picture, folder, pdf=False) for picture in pictures]
    with get_context("fork").Pool(jobs, _begin, (os.getpid(), pictures)) as pool:
        return pool.map(partial(_embedded, folder), range(len(pictures)), chunksize=1)


_pictures: list[Picture] = []
"""In a process of `embedded_all`: what it was forked with, as figures take long to pickle."""


def _begin(parent_pid: int, pictures: Sequence[Picture]) -> None:
    end_with_parent(parent_pid)
    # Ctrl-C reaches the whole terminal group; the command decides, and ends these processes by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _pictures[:] = pictures


def _embedded(folder: Path, index: int) -> Markup:
    return embedded(_pictures[index], folder, pdf=False)


PHONE_IN = 3.7
"""Width of a picture on a phone: 390 px, less the margins of the page."""


def phone(picture: Picture) -> str:
    """Return the picture as SVG at a phone's width, its panels below each other; the picture stays so."""
    fit(picture.figure, PHONE_IN, 1.0)
    return _svg(picture.figure)


def _svg(figure: Figure) -> str:
    _no_mathematics(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()


_MOST_LABELLED, _MOST_TITLED = 12, 400
"""Points of a line up to which the label says its values, and up to which each shows its own."""


def _points(line: Line2D) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of a line, and x and y of its markers as the axes write them; empty without markers."""
    import numpy as np

    name = str(line.get_label())
    x, y = (np.ma.filled(np.ma.asarray(each, float), np.nan) for each in line.get_data())
    axes = line.axes
    if line.get_marker() in ("", "None", None) or axes is None or x.size > _MOST_TITLED:
        points = []
    else:
        finite = np.isfinite(x) & np.isfinite(y)
        points = [
            (_written(axes.xaxis, at), _written(axes.yaxis, value))
            for at, value in zip(x[finite], y[finite], strict=True)
        ]
    return "" if name.startswith("_") else name, points


def _written(axis: Axis, value: float) -> str:
    from matplotlib.ticker import FixedFormatter

    formatter = axis.get_major_formatter()
    if isinstance(formatter, FixedFormatter):
        ticks = dict(zip(map(float, axis.get_majorticklocs()), formatter.seq, strict=False))
        return str(ticks.get(value, f"{value:g}"))
    return formatter.format_data_short(value).strip()


def _titled(svg: str, gid: str, name: str, points: list[tuple[str, str]]) -> str:
    """Give the group of a line its name, and each of its markers its values, as `<title>`."""
    head, tag, rest = svg.partition(f'<g id="{gid}">')
    end = rest.find('<g id="')
    group, rest = rest[:end], rest[end:]
    markers = re.findall(r"<use [^>]*/>", group)
    if not tag or end < 0:
        return svg
    if points and len(markers) == len(points):
        lines = iter(f"{name}\n{y} at {x}".strip() for x, y in points)
        group = re.sub(r"(<use [^>]*)/>", lambda use: f"{use[1]}><title>{escape(next(lines))}</title></use>", group)
    title = f"<title>{escape(name)}</title>" if name else ""
    return head + tag + title + group + rest


def save(picture: Picture, folder: Path, pdf: bool = True) -> str:
    """Write NAME.svg into `folder`, and NAME.pdf unless `pdf` is False, and return the SVG."""
    svg = _svg(picture.figure)
    with replacing(folder / f"{picture.name}.svg") as file:
        file.write(svg.encode())
    if pdf:
        with replacing(folder / f"{picture.name}.pdf") as file:
            picture.figure.savefig(file, format="pdf", metadata=_NO_PDF_METADATA)
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


def inline(svg: str, name: str, label: str) -> str:
    """The `<svg>` element for a page: it names nothing outside the page, scales to its place, and has the colours of
    the page's scheme, `--c-RRGGBB` for each of its own.

    Matplotlib's ids (markers, clip paths) repeat in other pictures; the picture's name makes them unique. Glyphs are
    the same in all: the page has each once (`reports.pages.templates`).
    """
    body = _OUTSIDE_SVG.sub("", svg, count=1)
    head, rest = body.split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None
    rest = re.sub(r"\s*<metadata>.*?</metadata>", "", rest, count=1, flags=re.DOTALL)
    rest = re.sub(r"\n\s+", "\n", _COLOURS.sub(r"\1: var(--c-\2)", rest))
    start = f'<svg {view.group()} role="img" aria-label="{escape(label, quote=True)}">'
    return start + _REFERENCES.sub(rf"\g<1>{name}-", rest)
