"""Fig. 6b: attainment and offline throughput over the scale of the SLO, 2 requests/s."""

from reports.papers.conserve.common import *

TITLE = "Fig. 6b: how many online requests keep the SLO, and what the batch gets, over its scale"

_LIMITS, _FIXED = SLO["rate 2"], "rate 2"
SCALES = (1.0, 1.25, 1.5, 2.0)
EXPERIMENTS = load(_FIXED, _LIMITS, bound=True, apart=True) | {
    f"scale {scale:g}: {BOTH}": both(f"scale {scale:g}", _LIMITS, scale, [OURS]) for scale in SCALES[1:]
}
_TO_THE_LETTER = "to the letter"
EXPERIMENTS[f"{_TO_THE_LETTER}: {BOTH}"] = both(
    _TO_THE_LETTER, _LIMITS, 1.25, [OURS], queue_estimate="prompts", guard=0.0
)
"""Algorithms 1 and 2 without what is [derived] here: room for the error of predictions, and for filled steps."""
QUICK = {"requests": "40"}


def _name(scale: float) -> str:
    return _FIXED if scale == 1.0 else f"scale {scale:g}"


def _ours(scale: float) -> Any:
    return value(attained(_LIMITS, scale), at(_name(scale), OURS))


def _baseline(engine: str, scale: float) -> Any:
    return value(attained(_LIMITS, scale), at(_FIXED, engine))


def _of_optimal(scale: float) -> Any:
    return quotient(value(TPS, at(_name(scale), OURS)), value(TPS, at(_FIXED, OURS)))


CLAIMS = {
    "fig6b-at-1": claim(
        "at s = 1.0 at least 86 % of online requests keep both limits",
        level((0.86, 1.0), "%"),
        _ours(1.0),
        "{percent:.0f} %: t_TBT is the step of one prompt, so that beside replies it is read in two, the second filled",
    ),
    "fig6b-above-1": claim(
        "above s = 1 more than 99 % do (lowest share)",
        level((0.99, 1.0), "%", within=0.005),
        smallest(*(_ours(scale) for scale in SCALES[1:])),
        "{percent:.0f} %: who comes while another's prompt is read waits for the rest of it",
    ),
    "fig6b-baselines": claim(
        "at every scale more than with any baseline (smallest difference)",
        level((0.02, 1.0), "%", neutral=0),
        smallest(
            *(
                minus(
                    _ours(s), largest(*(_baseline(each, s) for each in (NON_PREEMPTIVE, SARATHI, DISTSERVE)))
                )
                for s in SCALES
            )
        ),
        "{percent:.0f} points",
    ),
    "fig6b-letter": claim(
        "(ours) Algorithms 1 and 2 to the letter, without room for wrong predictions: at s = 1.25 so many keep both",
        level((0.0, 0.5), "%", words="less than half"),
        value(attained(_LIMITS, 1.25), at(_TO_THE_LETTER, OURS)),
    ),
    "fig6b-optimal": claim(
        "at s = 1.5 93 % of the optimal offline throughput",
        level(0.93, "%", within=0.07),
        quotient(value(TPS, at(_name(1.5), OURS)), optimal(_FIXED)),
        "{percent:.0f} %",
    ),
    "fig6b-slack": claim(
        "a looser limit leaves the batch more until s = 1.5",
        times((1.01, 1.5), words="more"),
        _of_optimal(1.5),
        "× {ours:.2f}: steps of the lower limit are as efficient already, and with longer ones replies stay longer in "
        "memory that documents could have",
    ),
    "fig6b-beyond": claim(
        "and beyond it hardly (2 %)",
        level((0.0, 0.02), "%", within=0.005, neutral=-0.05),
        minus(_of_optimal(2.0), _of_optimal(1.5)),
        "{percent:.0f} points: as before",
    ),
}


def _points(panels: Panels) -> list[Measured]:
    return [p for engine in system_looks() for s in SCALES for p in _at(s, engine).points(panels)]


def _at(scale: float, engine: str) -> Setting:
    """The others know no scale and are held to it all the same."""
    return at(_name(scale) if engine == OURS else _FIXED, engine)


@picture(TITLE, 1, 2, points=_points, bars=True)
def draw(panels: Panels, paper: Any, left: Any, right: Any) -> str:
    """Attainment and throughput over the scale."""
    for engine, look in system_looks().items():
        points = {s: _at(s, engine).points(panels) for s in SCALES}
        kept = {s: spread(found, attained(_LIMITS, s)) for s, found in points.items()}
        line(left, kept, look, NAMES[engine], 100)
        if engine != ONLINE_ONLY:
            share = 0.5 if engine == DISTSERVE else 1.0
            line(
                right,
                {s: spread(found, TPS) for s, found in points.items()},
                look,
                NAMES[engine],
                share * 1e-3,
            )
    left.set_ylabel("online requests that keep the SLO, %")
    right.set_ylabel("offline tokens, 1000/s")
    for own in (left, right):
        own.set(ylim=(0, None), xlabel="scale of the SLO")
    legend(left)
    return (
        "A request keeps it with its TTFT and the P99 of its times between tokens. The paper: 86 % at 1.0, more than "
        "99 % above, flat baselines. DistServe-P's tokens by half of its GPUs. " + told(_points(panels))
    )
