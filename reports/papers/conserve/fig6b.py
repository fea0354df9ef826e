"""Fig. 6b: attainment of TTFT and of TBT, and offline throughput, over the scale of the SLO, three models at two
requests/s."""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.claims.bands import of_share
from reports.claims.quantities import Measure, Setting, average, largest, minus, quotient, ratio, smallest, value
from reports.claims.stated import claim, level, merged, moves, times
from reports.figures.forms import Plot, behind, figure, lines
from reports.papers.conserve import fig6a
from reports.papers.conserve.figures import STYLE, SYSTEMS, compared, run_notes
from reports.papers.conserve.loads import BOTH, SLO, TARGET, at, both, load
from reports.papers.conserve.measures import ATTAINED, BY_GUARD, TBT, TPS, TTFT, kept, optimal
from reports.papers.conserve.precision import OFFLINE_TPS, REQUESTS, of_two, offline
from reports.papers.conserve.systems import DISTSERVE, NAMES, NON_PREEMPTIVE, ONLINE_ONLY, OURS, SARATHI

TITLE = "Fig. 6b: first and later tokens within the SLO, and batch throughput, over the SLO's scale"

LOADS = {model: names[2] for model, names in fig6a.LOADS.items()}
"""Section 6.2's setup: two requests/s (section 6.4), for each model."""
SCALES = (1.0, TARGET, 1.25, 1.5, 2.0)
_8B = LOADS["Llama-3.1-8B"]


def _name(of: str, scale: float) -> str:
    return of if scale == TARGET else f"{of}, s = {scale:g}"


_LETTER, _ON_THEIR_WAY = f"{_8B}, by the letter", f"{_8B}, on their way"
_S = 1.25
ON_THEIR_WAY_S = 0.035
"""P99 of the time that a request and its first token are between client and engine, s (Online-Only, any load)."""
EXPERIMENTS = merged(
    load(name, SLO[name], bound=True, apart=True, **fig6a.SETTINGS[name])
    | {
        f"{_name(name, scale)}: {BOTH}": both(_name(name, scale), SLO[name], scale, [OURS], **fig6a.SETTINGS[name])
        for scale in SCALES
        if scale != TARGET
    }
    for name in LOADS.values()
) | {
    f"{_LETTER}: {BOTH}": both(_LETTER, SLO[_8B], _S, [OURS], guard=0.0, ttft_fill=False),
    f"{_ON_THEIR_WAY}: {BOTH}": both(_ON_THEIR_WAY, (SLO[_8B][0] - ON_THEIR_WAY_S / _S, SLO[_8B][1]), _S, [OURS]),
}
"""By the letter: without the guard, and with t_TBT as the only limit of Algorithm 1. On their way: t_TTFT is shorter by
`ON_THEIR_WAY_S`."""
QUICK = {"requests": "40"}

_AT_LEAST = (
    (0.86, "Sec. 6.2, Fig. 6b: at least 86 % of first and of later tokens in time at s = 1"),
    (0.99, "Sec. 6.2, Fig. 6b: more than 99 % of first and of later tokens in time in all settings with s > 1"),
)
_AHEAD = "Sec. 6.2, Fig. 6b: attainment significantly above all baselines'"
_WHAT = {
    "ttft": (
        "online requests have their first token in time",
        "{percent:.0f} %: t_TTFT counts from the arrival at the engine, and steps are filled up to it; the way from "
        "and to the client takes 13 ms more on average, and 35 in one of a hundred requests",
    ),
    "tbt": (
        "their later tokens come in time",
        "{percent:.1f} %: the five terms predict a prompt next to a document too short",
    ),
}


def _at(of: str, scale: float, engine: str) -> Setting:
    """The others know no scale and are held to it all the same."""
    return at(_name(of, scale) if engine == OURS else of, engine)


def _kept(which: str, of: str, scale: float, engine: str = OURS) -> Measure:
    return value(kept(which, SLO[of], scale), _at(of, scale, engine))


def _ahead(which: str, engines: Sequence[str]) -> list[Measure]:
    """By how much more ConServe attains than the best of these systems, at every load and scale."""
    return [
        minus(_kept(which, of, s), largest(*(_kept(which, of, s, engine) for engine in engines)))
        for of in LOADS.values()
        for s in SCALES
    ]


def _tokens(scale: float, to: float) -> Measure:
    """Offline tokens/s over those at another scale, on average over the loads."""
    return average(*(ratio(TPS, _at(of, scale, OURS), to=_at(of, to, OURS)) for of in LOADS.values()))


def _over_alone(metric: str, of: str, scale: float) -> Measure:
    return ratio(metric, _at(of, scale, OURS), to=at(of, ONLINE_ONLY))


CLAIMS = {
    **{
        f"fig6b-{which}-{scale:g}": claim(
            f"at s = {scale:g} {'at least 86' if scale == 1.0 else 'more than 99'} % of {what} (lowest of three)",
            level((least, 1.0), "%", within=of_share(least, REQUESTS)),
            smallest(*(_kept(which, of, scale) for of in LOADS.values())),
            why,
            fact=fact,
            chosen=BY_GUARD,
        )
        for scale in SCALES
        for least, fact in [_AT_LEAST[scale > 1.0]]
        for which, (what, why) in _WHAT.items()
    },
    "fig6b-ttft-baselines": claim(
        "at every scale more first tokens in time than with any baseline (smallest difference)",
        level((0.02, 1.0), "%", neutral=0, words="significantly"),
        smallest(*_ahead("ttft", (NON_PREEMPTIVE, SARATHI, DISTSERVE))),
        "{percent:.1f} points",
        fact=_AHEAD,
        chosen=BY_GUARD,
    ),
    "fig6b-tbt-baselines": claim(
        "at every scale more later tokens in time than with Non-Preemptive and Sarathi-P (smallest difference)",
        level((0.02, 1.0), "%", neutral=0, words="significantly"),
        smallest(*_ahead("tbt", (NON_PREEMPTIVE, SARATHI))),
        "{percent:.1f} points",
        fact=_AHEAD,
        chosen=BY_GUARD,
    ),
    "fig6b-tbt-distserve": claim(
        "and in most cases more than with DistServe-P (mean difference over loads and scales)",
        level((0.001, 1.0), "%", neutral=0, words="most cases"),
        average(*_ahead("tbt", (DISTSERVE,))),
        "{percent:.1f} points: decodes that no prompt interrupts meet any limit",
        chosen=BY_GUARD,
    ),
    **{
        f"fig6b-over-{which}-{scale:g}": claim(
            f"(ours) at s = {scale:g} P99 {which.upper()} is at most {scale:g} times Online-Only's (largest ratio)",
            level((0.0, scale), "×", within=0.02),
            largest(*(_over_alone(metric, of, scale) for of in LOADS.values())),
            "× {ours:.2f}",
        )
        for scale in SCALES[:-1]
        for which, metric in (("ttft", TTFT), ("tbt", TBT))
    },
    "fig6b-letter": claim(
        "(ours) Algorithms 1 and 2 to the letter, without guard and with t_TBT alone: later tokens in time at s = 1.25",
        level((0.0, 0.98), "%", words="fewer"),
        value(kept("tbt", SLO[_8B], _S), at(_LETTER, OURS)),
        "{percent:.1f} %",
    ),
    "fig6b-letter-ttft": claim(
        "(ours) and first tokens",
        level((0.0, 0.98), "%", words="fewer"),
        value(kept("ttft", SLO[_8B], _S), at(_LETTER, OURS)),
        "{percent:.1f} %",
    ),
    "fig6b-on-their-way": claim(
        "(ours) with a t_TTFT that leaves the way to the client free more first tokens come in time at s = 1.25",
        level((0.02, 1.0), "%", neutral=0, words="more"),
        minus(value(kept("ttft", SLO[_8B], _S), at(_ON_THEIR_WAY, OURS)), _kept("ttft", _8B, _S)),
        "{percent:.1f} points",
    ),
    "fig6b-optimal": claim(
        "at s = 1.5 93 % of the optimal offline throughput (mean of three models)",
        level(0.93, "%", within=of_two(offline(OFFLINE_TPS, OFFLINE_TPS / 0.93, loads=len(LOADS)))),
        average(*(quotient(value(TPS, _at(of, 1.5, OURS)), optimal(of)) for of in LOADS.values())),
        "{percent:.0f} %: documents that leave a step lose what it has computed for them",
    ),
    "fig6b-slack": claim(
        "a looser limit gives the batch more until s = 1.5 (mean of three models)",
        times((1.01, 1.5), words="more"),
        _tokens(1.5, 1.0),
        "× {ours:.2f}",
    ),
    "fig6b-slack-1.25": claim(
        "(ours) and at s = 1.25 (mean of three models)",
        times((1.001, 1.5), words="more"),
        _tokens(1.25, 1.0),
        "× {ours:.2f}",
    ),
    "fig6b-beyond": claim(
        "and beyond it hardly (2 %)",
        moves(0.02, within=offline(OFFLINE_TPS, OFFLINE_TPS, loads=len(LOADS))),
        minus(_tokens(2.0, 1.0), _tokens(1.5, 1.0)),
        "{percent:.0f} points: as from 1 to 1.5",
    ),
}


def _plots(model: str, of: str) -> list[Plot]:
    axes: dict[str, Any] = {"style": STYLE, "xlabel": "scale of the SLO"}
    attained: Mapping[str, Any] = {
        which: {NAMES[engine]: {s: _kept(which, of, s, engine) for s in SCALES} for engine in SYSTEMS}
        for which in ATTAINED
    }
    settings = {engine: {s: _at(of, s, engine) for s in SCALES} for engine in SYSTEMS}
    return [
        *(
            lines(None, attained[which], ylabel=f"{model}\n{which.upper()} within the SLO, %", **axes)
            for which in ATTAINED
        ),
        lines(TPS, compared(TPS, settings), ylabel="offline tokens, 1000/s", **axes),
    ]


_points = behind([_at(of, s, engine) for of in LOADS.values() for s in SCALES for engine in SYSTEMS])
draw = figure(
    TITLE,
    *(plot for model, of in LOADS.items() for plot in _plots(model, of)),
    columns=3,
    points=_points,
    caption=lambda panels: (
        "TTFT over requests, TBT over tokens. The paper: 86 % at 1.0, more than 99 % above, flat "
        f"baselines. {TARGET:g} is ConServe's scale in the other cards. DistServe-P's tokens by half "
        "of its GPUs. " + run_notes(_points(panels))
    ),
)
