"""trace.html: one self-contained page with a trace's origin, its statistics and its pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.figures.svg import embedded
from reports.pages.templates import write
from reports.traces import arrivals, lengths, sessions, waveform
from reports.traces.numbers import tables
from reports.traces.trace_figures import Shown, shown
from workloads.atomic_file import cannot_write, replacing
from workloads.statistics.describe import notes
from workloads.trace import Trace

PICTURES: tuple[Callable[[Sequence[Shown]], Picture | LeftOut], ...] = (
    arrivals.arrivals,
    arrivals.gaps,
    lengths.draw,
    sessions.draw,
    waveform.draw,
)
DPI = 144
_NO_METADATA = {"Software": None}


def write_trace_page(trace: Trace, label: str, folder: Path, other: Trace | None = None, other_label: str = "") -> Path:
    """Write trace.html and each picture as NAME.svg, .pdf and .png into `folder`; the path of the page.

    `other` is drawn with it where two traces can be compared. UserError when the folder cannot be written.
    """
    traces = shown(trace, label, other, other_label)
    with style():
        drawn = [draw(traces) for draw in PICTURES]
    return write_page(
        folder, "trace", drawn, title=f"Trace {label}", header=trace.header, notes=notes(trace), tables=tables(trace)
    )


def write_page(folder: Path, name: str, drawn: Sequence[Picture | LeftOut], **values: Any) -> Path:
    """Write the pictures and NAME.html, made from `NAME.html.j2`, into `folder`; the path of the page."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = [_saved(picture, folder) for picture in drawn if isinstance(picture, Picture)]
        left_out = [picture for picture in drawn if isinstance(picture, LeftOut)]
        for picture in left_out:  # of an earlier page
            for suffix in ("svg", "pdf", "png"):
                (folder / f"{picture.name}.{suffix}").unlink(missing_ok=True)
        page = folder / f"{name}.html"
        return write(page, f"traces/{name}.html.j2", **values, pictures=pictures, left_out=left_out)
    except OSError as error:
        raise cannot_write(folder, error) from None


def _saved(picture: Picture, folder: Path) -> dict[str, Any]:
    with style():
        svg = embedded(picture, folder)
        with replacing(folder / f"{picture.name}.png") as file:
            picture.figure.savefig(file, format="png", dpi=DPI, metadata=_NO_METADATA)
    return {"picture": picture, "svg": svg}
