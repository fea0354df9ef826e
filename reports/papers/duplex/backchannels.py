"""The cost of a backchannel on a server that loads KV as soon as its user speaks: LiveServe's preload on false starts.

Without a gate the backchannel cuts the reply, and is answered. A gate of a second of speech passes it over, and the KV
loaded and protected for its turn is given back.
"""

from typing import Any

from reports.claims.quantities import Panels, Quantity, Setting, of, value
from reports.claims.stated import claim, level
from reports.figures.forms import figure, lines
from reports.papers.duplex.common import duplex
from reports.runs.measured import Measured

TITLE = "Backchannels: their cost for LiveServe's preload, without and with a gate"

RATES = [0.0, 0.5, 1.0]
GATES = {"every sound cuts": 0.0, "1 s of speech cuts": 1.0}
OVER = "backchannels"
EXPERIMENTS = {
    OVER: duplex(
        "backchannels",
        ["liveserve"],
        {
            "c": 32,
            "sessions": 32,
            "turns": 4,
            "kv_pool_blocks": 256,
            "hesitations": 0,
            "p": 0,
            "corrections": 0,
            "side_speech": 0,
            "background_speech": 0,
            "noise": 0,
        },
        backchannels=RATES,
        min_duration_s=list(GATES.values()),
    )
}
"""One kind of event alone. 32 calls share 4,096 tokens of KV, so that listening callers lose history to answered
ones."""
QUICK = {"turns": "2", "backchannels": "0,1"}


def counter(name: str) -> Quantity:
    """Return a counter of the thinker's KV manager; 0 where it did not count."""

    def quantity(point: Measured) -> float | None:
        return float(point.record.counters.get(f"thinker.{name}", 0))

    return quantity


def _at(rate: float, gate_s: float):
    return of(OVER, "liveserve", backchannels=rate, min_duration_s=gate_s)


CLAIMS = {
    "backchannels-gate": claim(
        "with the gate no backchannel cuts a reply: none lasts longer than a second",
        level(0.0, "%", within=0.001, words="none"),
        value("false_interruption", _at(1.0, 1.0)),
        check="the gate is longer than any of them",
    ),
    "backchannels-none": claim(
        "without backchannels no preload is wasted",
        level(0.0, "", within=0.5, words="none"),
        value(counter("preload_false"), _at(0.0, 1.0)),
        check="no other sound begins a turn that does not come",
    ),
    "backchannels-wasted": claim(
        "with one in every reply, and the gate, some are",
        level((1, 1e6), "", words="some"),
        value(counter("preload_false"), _at(1.0, 1.0)),
        "the KV of callers with backchannels was still on the GPU",
    ),
}

SHOWN: dict[str, tuple[Quantity, dict[str, Any]]] = {
    "preloads begun": (counter("preload_issued"), {}),
    "blocks loaded for no turn": (counter("preload_false_blocks"), {}),
    "blocks evicted": (counter("evict_blocks"), {}),
    "P90 TTFP, ms": ("audio_ttfp_p90", {}),
    "false interruptions": ("false_interruption", {"percent": (0, 1)}),
    "wasted tokens": ("wasted_token_ratio", {}),
}
"""Name -> quantity, and what else its axes have."""


def _over(panels: Panels) -> dict[str, dict[float, Setting]]:
    rates = panels[OVER].values("backchannels")
    return {label: {rate: _at(rate, gate_s) for rate in rates} for label, gate_s in GATES.items()}


draw = figure(
    TITLE,
    *(
        lines(quantity, _over, ylabel=name, xlabel="replies with a backchannel", **axes)
        for name, (quantity, axes) in SHOWN.items()
    ),
    columns=3,
    height_in=2.3,
    caption="32 calls on 256 blocks of KV (4,096 tokens), so a listener's history may be on the host by then.",
)
