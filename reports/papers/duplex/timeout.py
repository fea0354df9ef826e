"""The silence after which a turn is over, swept: a short one takes pauses for ends, a long one answers late.

Compared with a semantic detector, which is SIMULATED: it knows the truth and errs at published rates.
"""

from dataclasses import replace
from typing import Any

from reports.claims.quantities import average, difference, of, quotient, value
from reports.claims.stated import claim, level
from reports.figures.forms import figure, lines
from reports.figures.style import looks
from reports.papers.duplex.common import duplex
from reports.runs.measured import Measured, Variant

TITLE = "End of turn: delay of the answer against answers during a pause"

ENGINE = "vllm_omni"
TIMEOUTS_MS = [200, 300, 500, 700, 1000]
EAGERNESS = ["high", "low"]
CALLS = [1, 64]
SETTINGS = {"hesitations": 0.6}
VAD, SEMANTIC = "server_vad", "semantic"

EXPERIMENTS = {
    VAD: duplex("timeout", [ENGINE], SETTINGS, c=CALLS, silence_duration_ms=TIMEOUTS_MS),
    SEMANTIC: duplex("timeout", [ENGINE], {**SETTINGS, "turn_detection": SEMANTIC}, c=CALLS, eagerness=EAGERNESS),
}
QUICK = {"sessions": "16", "silence_duration_ms": "200,1000"}

LATE, EARLY = "end_of_turn_delay_p50", "takeover"


def longer(point: Measured) -> float | None:
    """Return the share of hesitations whose silence lasts longer than the time-out, until speech is detected again."""
    turns = point.requests.loc[point.requests["takeover"].notna(), ["session", "turn"]]
    trace = point.record.table("trace")
    pauses_s = turns.merge(trace, on=["session", "turn"])["pause_s"]
    found_s = pauses_s + point.params["vad_delay_s"]
    return float((found_s > point.params["silence_duration_ms"] / 1000).mean()) if len(pauses_s) else None


def _at(c: int, timeout_ms: int):
    return of(VAD, ENGINE, c=c, silence_duration_ms=timeout_ms)


CLAIMS = {
    **{
        f"timeout-adds-{c}": claim(
            f"the median delay grows by what the time-out does, 200 to 1,000 ms, at {c} call{'s' if c > 1 else ''}",
            level(0.8, "ms", within=0.02),
            difference(LATE, _at(c, 1000), less=_at(c, 200)),
            "a pause taken for the end causes a second prompt and a discarded reply: the shorter the "
            "time-out, the busier the server",
        )
        for c in CALLS
    },
    "timeout-takeover-one": claim(
        "replies that sound in a pause or the rest of its turn, over hesitations longer than the time-out, at one call",
        level((0.7, 1.0), "×", words="at most one"),
        quotient(
            average(*(value(EARLY, _at(1, ms)) for ms in TIMEOUTS_MS)),
            average(*(value(longer, _at(1, ms)) for ms in TIMEOUTS_MS)),
        ),
        "a reply that is not audible before the user goes on is cut before it sounds",
    ),
    "timeout-semantic": claim(
        "the simulated detector calls 9.4 % of hesitations finished, at one call, with a time-out of 8 s behind it",
        level(0.094, "%", within=0.05),
        value(EARLY, of(SEMANTIC, ENGINE, c=1, eagerness="low")),
        "ours {percent:.0f} %: a pause that ends before the reply sounds, 0.4 s after its begin, costs nothing",
        fitted="the simulated detector errs at this rate",
    ),
}

_NAMES = {c: f"{c} call{'s' if c > 1 else ''}" for c in CALLS}
_SERIES = {
    **{f"{VAD}, {_NAMES[c]}": {f"{ms} ms": _at(c, ms) for ms in TIMEOUTS_MS} for c in CALLS},
    **{
        f"{SEMANTIC} (simulated), {_NAMES[c]}": {how: of(SEMANTIC, ENGINE, c=c, eagerness=how) for how in EAGERNESS}
        for c in CALLS
    },
}
_PAIR = list(looks([Variant("vllm_omni"), Variant("liveserve")]).values())
_STYLE = dict(zip(_SERIES, [*_PAIR, *(replace(look, marker="*", line=":") for look in _PAIR)], strict=True))
_DELAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    (LATE, {"xlabel": "end-of-turn delay, median, ms"}),
    ("end_of_turn_delay_p95", {"xlabel": "end-of-turn delay, P95, ms", "xscale": "log", "xlim": (None, None)}),
)
draw = figure(
    TITLE,
    *(
        lines(
            EARLY,
            _SERIES,
            against=delay,
            style=_STYLE,
            beside=str,
            ylabel="takeovers, of turns with a hesitation",
            **axes,
        )
        for delay, axes in _DELAYS
    ),
    height_in=3.4,
    sharey=True,
    caption="Down and to the left is better. Labels: the time-out, or the eagerness of the simulated semantic "
    "detector to end a turn that it takes for unfinished (high: after 2 s, low: 8 s). A takeover is a "
    "reply that begins in the user's pause, or in the rest of the turn; hesitations last 0.3 to 2 s.",
)
