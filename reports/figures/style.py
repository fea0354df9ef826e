"""The look of the pictures: one matplotlib style, a fixed colour, marker and line for every engine, and in pictures of
papers its name there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from reports.runs.measured import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, SPEECH, BROKEN, HEALTHY = "#222b36", "#5d6b7c", "#8793a3", "#b3003c", "#00884f"
"""Text; notes; the user's own speech; what goes wrong for a listener (gaps, waste); what a dashboard calls well."""

WIDTH_IN = 9.6
"""Width of every picture: the report's column at 96 dpi."""

# Okabe and Ito's colour-blind-safe hues. The baseline is calm, so that the engines compared with it stand out.
_ENGINES = {
    "vllm_omni_wo": "#a08a5b",
    "vllm_omni": "#6f87a6",
    "liveserve": "#d55e00",
    "vllm_realtime": "#6f87a6",
    "vllm_realtime_pr49439": "#0072b2",
    "recycling": "#cc79a7",
    "metronome": "#d55e00",
}
NAMES = {
    "vllm_omni_wo": "vLLM-Omni-wo",
    "vllm_omni": "vLLM-Omni",
    "liveserve": "LiveServe",
    "vllm_realtime_pr49439": "vLLM PR 49439",
    "vllm_realtime": "vLLM-realtime",
    "metronome": "Metronome",
    "sarathi_p": "Sarathi-P",
    "non_preemptive": "Non-Preemptive",
    "distserve_p": "DistServe-P",
    "conserve": "ConServe",
    "pf_limit": "PF-Limit",
    "chunked": "Chunk",
    "multi_stream": "Multi-Stream",
    "nova": "Nova",
    "eplb": "EPLB",
    "omniplacement": "OmniPlacement",
    "omniattn": "OmniAttn",
    "omniinfer": "OmniInfer",
}
"""Names in papers of the systems that have another name in code. Reports of a user's own runs keep the typed names."""
STAGES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
"""Colours of stages, for a picture that shows stages instead of engines."""
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


def looks(variants: Sequence[Variant]) -> dict[Variant, Look]:
    """A look for each variant. An engine's first one has the engine's own colour, wherever it appears."""
    taken = {_ENGINES.get(variant.engine) for variant in variants}
    spare = iter([colour for colour in _OTHERS if colour not in taken] * (1 + len(variants)))
    free = dict(_ENGINES)
    return {
        variant: Look(
            free.pop(variant.engine, None) or next(spare),
            _MARKERS[index % len(_MARKERS)],
            _LINES[index % len(_LINES)],
            1.8 if index else 3,
        )
        for index, variant in enumerate(variants)
    }


def engine_looks(*engines: str) -> dict[str, Look]:
    """A look for each engine, baselines first; where no variant has parameters of its own."""
    return {variant.engine: look for variant, look in looks([Variant(engine) for engine in engines]).items()}


def named(text: str, names: Mapping[str, str] = NAMES) -> str:
    """Return the text with whole words replaced by `names`; default: the systems' names in papers."""
    if not names:
        return text
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    return re.sub(rf"(?<![\w-])({'|'.join(longest_first)})(?![\w-])", lambda match: names[match[0]], text)


def name_systems(figure: Figure, names: Mapping[str, str] = NAMES) -> None:
    """Replace names in all text of a picture, as `named` does."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(named(text.get_text(), names))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            renamed = [named(label, names) for label in labels]
            if renamed != labels:
                axis.set_ticklabels(renamed)


def style() -> AbstractContextManager[None]:
    """Return the context in which pictures are drawn and saved."""
    import matplotlib.style

    return matplotlib.style.context(str(files("reports.figures") / "rehearsal.mplstyle"))
