"""The look of the pictures: one matplotlib style, a fixed colour, marker and line for every engine, and in pictures of
papers its name there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from reports.cards.papers import papers
from reports.runs.measured import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, SPEECH, BROKEN, HEALTHY = "#222b36", "#5d6b7c", "#8793a3", "#b3003c", "#00884f"
"""Text; notes; the user's own speech; what goes wrong for a listener (gaps, waste); what a dashboard calls well."""

WIDTH_IN = 9.6
"""Width of every picture: the report's column at 96 dpi."""

STAGES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
"""Colours of stages, for a picture that shows stages instead of engines."""
# Okabe and Ito's colour-blind-safe hues. A paper's baseline is calm, so that what is compared with it stands out.
_OTHERS = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = "os^Dv*PX"
_LINES = ("-", "-", "--", "-.", ":")


@dataclass(frozen=True)
class Look:
    """The look of one variant in every picture; marker and line distinguish it without colour."""

    colour: str
    marker: str
    line: str
    width: float
    """Width of a line. The baseline's is broad, so that it shows under a line that runs over it."""

    @property
    def stroke(self) -> dict[str, Any]:
        """Its line, as matplotlib's arguments."""
        return {"color": self.colour, "ls": self.line, "lw": self.width}

    @property
    def joined(self) -> dict[str, Any]:
        """Its line with its markers, as matplotlib's arguments."""
        return {**self.stroke, "marker": self.marker, "mec": "white"}


@cache
def names() -> dict[str, str]:
    """Names in papers of the systems that have another name in code. Reports of a user's own runs keep the typed
    names."""
    return _first(paper.about.names for paper in papers().values())


@cache
def _colours() -> dict[str, str]:
    return _first(paper.about.colours for paper in papers().values())


def _first(of_papers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return what each engine has; of several papers with it the first counts, so that ours look as ever."""
    return dict(reversed([each for of_paper in of_papers for each in of_paper.items()]))


def looks(variants: Sequence[Variant], kept: Mapping[str, str] | None = None) -> dict[Variant, Look]:
    """A look for each variant. An engine's first one has the engine's own colour, wherever it appears, or the one that
    is `kept` for it; no other engine has a colour that is kept."""
    kept = kept or {}
    free = {**kept, **_colours()}
    taken = {*kept.values(), *(free.get(variant.engine) for variant in variants)}
    spare = iter(([colour for colour in _OTHERS if colour not in taken] or _OTHERS) * (1 + len(variants)))
    return {
        variant: Look(
            free.pop(variant.engine, None) or next(spare),
            _MARKERS[index % len(_MARKERS)],
            _LINES[index % len(_LINES)],
            1.8 if index else 3,
        )
        for index, variant in enumerate(variants)
    }


def engine_looks(*engines: str, kept: Mapping[str, str] | None = None) -> dict[str, Look]:
    """A look for each engine, baselines first; where no variant has parameters of its own."""
    variants = looks([Variant(engine) for engine in engines], kept)
    return {variant.engine: look for variant, look in variants.items()}


def named(text: str, by: Mapping[str, str]) -> str:
    """Return the text with whole words replaced by their names."""
    if not by:
        return text
    longest_first = sorted(map(re.escape, by), key=len, reverse=True)
    return re.sub(rf"(?<![\w-])({'|'.join(longest_first)})(?![\w-])", lambda match: by[match[0]], text)


def name_systems(figure: Figure, by: Mapping[str, str]) -> None:
    """Replace names in all text of a picture, as `named` does."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(named(text.get_text(), by))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            renamed = [named(label, by) for label in labels]
            if renamed != labels:
                axis.set_ticklabels(renamed)


def style() -> AbstractContextManager[None]:
    """Return the context in which pictures are drawn and saved."""
    import matplotlib.style

    return matplotlib.style.context(str(files("reports.figures") / "rehearsal.mplstyle"))
