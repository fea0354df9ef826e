"""Parity: the same users and the same engines, once in virtual time and once over real sockets on the wall clock.

Nothing is shared but the engine's code and the model of its GPUs: over sockets the server is a process of its own,
its clock is the machine's, users are processes with WebSockets, their playback reports and interruptions travel, and
the heard duration comes back with `response.done`. The wire has no delay of its own here, so both sides have
`network_ms` 0.
"""

from typing import Any

from harness.experiments.experiment import Experiment
from reports.claims.bands import of_model
from reports.claims.quantities import Panels, of, ratio
from reports.claims.stated import claim, level
from reports.figures.forms import bars, distribution, figure
from reports.figures.style import Look
from reports.papers.experiment import experiment

TITLE = "Parity: the same calls with barge-in, in virtual time and over real sockets"

ENGINES = ["vllm_omni", "liveserve"]
VIRTUAL, SOCKETS = "virtual time", "real sockets"
SETTINGS: dict[str, Any] = {
    "deployment": "qwen3_omni_8gpu",
    "sessions": 64,
    "rate": 8.0,  # all connected within ten seconds [chosen]
    "turns": 8,  # no session ends before the minute is over [chosen]
    "p": 0.5,
    "max_reply_tokens": 128,  # as `rehearse live` asks for: about 36 s [chosen]
    "network_ms": 0,
    "stop_after_s": 60,
}


def both_sides(*what: Any) -> dict[str, Experiment]:
    """The same experiment in virtual time and over sockets."""
    return {
        side: experiment(*what, timeout_s=600, device=device)
        for side, device in ((VIRTUAL, "virtual"), (SOCKETS, "sockets"))
    }


EXPERIMENTS = both_sides("parity", ENGINES, "speech", SETTINGS)
QUICK = {"sessions": "16", "stop_after_s": "20"}

PARITY = of_model(0.1, "[chosen] 10 %, or 5 ms if that is wider, which it is below 50 ms")
_LABELS = {
    "audio_ttfp_p50": "median TTFP",
    "audio_ttfp_p90": "P90 TTFP",
    "wasted_token_ratio": "share of wasted tokens",
}
WHY = (
    "messages wait for the event loops of server and clients, which share this machine's cores; each "
    "point also shows the load generator's own send delay"
)


CLAIMS = {
    f"{engine}-{metric}": claim(
        f"{label} of {engine}, over sockets / in virtual time",
        level(1.0, "×", within=PARITY),
        ratio(metric, of(SOCKETS, engine), to=of(VIRTUAL, engine)),
        WHY,
    )
    for metric, label in _LABELS.items()
    for engine in ENGINES
}

_STYLE = {VIRTUAL: Look("#b9c3cf", "o", ":", 3), SOCKETS: Look("#4a5666", "s", "-", 1.4)}
_BY_SIDE = {side: {engine: of(side, engine) for engine in ENGINES} for side in EXPERIMENTS}


def _delay(panels: Panels) -> str:
    """Return the send delay of the load generator over the counting points."""
    points = [point for setting in _BY_SIDE[SOCKETS].values() for point in setting.points(panels)]
    delays = [delay for point in points if (delay := point.value("send_delay_p99")) is not None]
    if not delays:
        return ""
    low, high = (f"{1000 * end:.1f}" for end in (min(delays), max(delays)))
    return f"The P99 of the send delay was {low if low == high else f'{low} to {high}'} ms a run."


draw = figure(
    TITLE,
    *(
        distribution(
            "audio_ttfp_s",
            {side: by_engine[engine] for side, by_engine in _BY_SIDE.items()},
            style=_STYLE,
            title=engine,
            xlabel="TTFP, ms",
        )
        for engine in ENGINES
    ),
    bars("wasted_token_ratio", _BY_SIDE, style=_STYLE),
    height_in=3.2,
    caption=lambda panels: (
        "Left: share of turns with first audio within the time on the horizontal axis; if the thin "
        "line covers the dotted one, sockets and virtual time agree. Right: tokens generated and "
        "never heard, over all generated ones: pale in virtual time, full over sockets. "
        f"{_delay(panels)}".rstrip()
    ),
)
