"""Fig. 17: what counting KV pressure in the utility of U2 does to the KV that the thinkers hold."""

from typing import Any

import numpy as np

from reports.claims.bands import of_digits
from reports.claims.quantities import Quantity, Setting, change, of, ratio
from reports.claims.stated import claim, moves, times
from reports.figures.forms import Plot, bars, figure, over_time
from reports.figures.frames import after_steps
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import WARM_SESSIONS, at_thinker, experiment
from reports.runs.measured import Measured

TITLE = "Fig. 17: KV-aware deferral and the thinker's resident KV (interactive)"

OFF, AWARE, ON = "KV-unaware", "KV term in eq. 1", "KV term and relief"
VARIANTS: dict[str, dict[str, Any]] = {
    OFF: {"kv_aware": False, "kv_relief": False},
    AWARE: {"kv_aware": True, "kv_relief": False},
    ON: {"kv_aware": True, "kv_relief": True},
}
"""Variants that differ only in this. Relief: paused requests continue while an urgent one lacks blocks."""

POOLS = {"pressure ratio 4.0": 4096, "pressure ratio 8.0": 2048}
"""16 callers with about 1,020 blocks each; in either pool their running requests hold all blocks at times."""
_LOW, _HIGH = POOLS

_SERVER = {**WARM_SESSIONS, "sessions": 16, "turns": 3, "rate": 0.5, "c": 16, "p": 0, "pacing": "always"}
"""A replay of a fixed set of turns to its end, whole: the paper names no c, so there is a slot for each caller."""


def _at(pool: str, variant: str) -> Setting:
    return of(f"{pool}, {variant}")


EXPERIMENTS = {
    _at(pool, variant).panel: experiment(
        "fig17", ["liveserve"], "interactive", {**_SERVER, "kv_pool_blocks": blocks, **switches}
    )
    for pool, blocks in POOLS.items()
    for variant, switches in VARIANTS.items()
}
QUICK = {"sessions": "8"}


_PACED = (
    "leads are always capped in this card (pacing=always): there are no interruptions, and by default "
    "no lead would be capped"
)
_PRESSED = "requests with a large share of a full pool continue instead of waiting, and release it sooner"


def resident_s(point: Measured) -> float | None:
    """Return the mean time from a request's first step at the thinker to its last, s, during which it holds KV."""
    at = at_thinker(point)
    return float(np.mean(at["finish"] - at["start"])) if len(at) else None


_ENDS = "the replay ends when the last callers have heard their replies, who in some seeds wait for no KV"
_EARLIER = "Section 7.4, Fig. 17: long requests finish and release KV earlier"
_SHORTER = "Section 7.4, Fig. 17: a shorter replay and a lower resident-KV footprint"
_LESS: tuple[tuple[str, str, Quantity, str, str], ...] = (
    ("footprint", "resident KV (block-seconds)", "kv_block_seconds_entry", _PRESSED, _SHORTER),
    ("earlier", "time that a request holds KV, mean", resident_s, _PRESSED, _EARLIER),
    ("completion", "time to the end of the replay", "makespan", _ENDS, _SHORTER),
)

CLAIMS = {
    **{
        f"fig17-{name}{key}": claim(
            f"{what}, KV-aware over unaware, {pool}",
            times((0.2, 0.95), words="less"),
            ratio(quantity, _at(pool, AWARE), to=_at(pool, OFF)),
            why,
            fact=fact,
            chosen=_PACED,
            remark="the paper shows bars without numbers; a twentieth less counts",
        )
        for pool, key in ((_LOW, ""), (_HIGH, "-high"))
        for name, what, quantity, why, fact in _LESS
    },
    "fig17-peak": claim(
        f"peak resident KV, {ON} since unaware, {_LOW}",
        moves(-0.26, within=of_digits(0.01), words="about −26 %"),
        change("kv_occupancy_entry_peak", _at(_LOW, ON), since=_at(_LOW, OFF)),
        "the peak is a moment when many requests begin, and deferral does not lower it",
        chosen=_PACED,
        remark="the introduction credits this to cache management and names neither figure nor baseline",
    ),
}

MEASURES = {"replay ends": "makespan", "mean held": "kv_occupancy_entry_mean", "peak held": "kv_occupancy_entry_peak"}
_LOOKS = dict(zip(VARIANTS, engine_looks("vllm_omni", "liveserve", "?").values(), strict=True))


def held(point: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Middle of each 2 s of the run, and the mean of the blocks that the thinker held meanwhile."""
    steps = point.record.table("steps")
    steps = steps.loc[steps["stage"] == "thinker"]
    times = np.arange(0, (steps["t_s"] + steps["dt_s"]).max(), 0.05)
    bins = (times // 2).astype(int)
    means = np.bincount(bins, after_steps(steps, "kv_used", times)) / np.bincount(bins)
    return 2 * np.arange(len(means)) + 1, means


def _timeline(pool: str) -> Plot:
    series = {variant: _at(pool, variant) for variant in VARIANTS}
    dressed = {"across": {POOLS[pool]: "the pool"}, "ylabel": "KV blocks held"}
    return over_time(held, series, style=_LOOKS, title=pool, **dressed)


def _over_unaware(pool: str) -> Plot:
    series = {
        variant: {name: ratio(q, _at(pool, variant), to=_at(pool, OFF)) for name, q in MEASURES.items()}
        for variant in VARIANTS
    }
    return bars(None, series, style=_LOOKS, across={1: ""}, ylabel="over KV-unaware")


draw = figure(
    TITLE,
    *(plot for pool in POOLS for plot in (_timeline(pool), _over_unaware(pool))),
    columns=2,
    height_in=2.7,
    caption="One replica pair. KV held: blocks of running requests, paused ones included; idle cached KV is "
    "not counted. Lines are means over 2 s of one seed; equal lines overlap. KV-unaware: no KV term "
    "in eq. 1, and paused requests stay paused while others wait for blocks.",
)
