"""Fig. 5 and section 3: the fate of a preempted request's KV, under bursts and in a small pool."""

from typing import Any

from reports.claims.bands import of_share
from reports.claims.quantities import Measure, ratio, value
from reports.claims.stated import claim, level, times
from reports.papers.conserve.loads import BOTH, SLO, at, both
from reports.papers.conserve.measures import TPS
from reports.papers.conserve.precision import REQUESTS
from reports.papers.conserve.systems import OURS
from reports.runs.measured import Measured

TITLE = "Fig. 5: recomputing, swapping, or copying KV as it is computed, bursts of online requests"

_RESUMES = ("recompute", "swap", "ic", "ic_prefetch")
_PRESSED: dict[str, Any] = {"cv": 2.0, "kv_pool_blocks": 12_000, "admit": "chunk", "online_reserve": 0.0}
"""A pool of 192,000 tokens, less than half of the GPU's [chosen]; documents are let in by their first chunk."""
SEEDS = range(8)
"""[chosen] Enough that the interval of a ratio of two throughputs is shorter than the ratio's distance from 1: single
runs differ by a tenth."""
EXPERIMENTS = {
    f"{resume}: {BOTH}": both(f"fig5 {resume}", SLO["rate 2"], engines=[OURS], seeds=SEEDS, resume=resume, **_PRESSED)
    for resume in _RESUMES
}
QUICK = {"requests": "40"}


def wasted(point: Measured) -> float | None:
    """Share of the tokens computed, in the steady window, that had been computed before."""
    if point.span is None:
        return None
    begin, end = point.span
    steps = point.record.table("steps")
    computed = float(steps.loc[(steps["t_s"] >= begin) & (steps["t_s"] < end), "tokens"].sum())
    useful = [point.value(name) for name in ("online.tps", TPS)]
    if not computed or None in useful:
        return None
    return max(0.0, 1.0 - sum(rate for rate in useful if rate is not None) * (end - begin) / computed)


def _beats(resume: str, other: str) -> Measure:
    return ratio(TPS, at(resume, OURS), to=at(other, OURS))


_CHECKPOINTS = "Sec. 4.4, Fig. 5c: incremental checkpoints avoid the cost of recomputing and of swapping"
CLAIMS = {
    "fig5-wasted": claim(
        "up to 69 % of the GPU's time is lost to recomputing or swapping (share of tokens computed again)",
        level(0.69, "%", within=of_share(0.69, REQUESTS), words="up to 69 %", neutral=0),
        value(wasted, at("recompute", OURS)),
        "{percent:.0f} %: at this load and in this pool",
        chosen="the small pool and the admission by chunk were chosen to lose as much",
    ),
    "fig5-ic-wasted": claim(
        "with incremental checkpoints almost nothing is lost",
        level((0.0, 0.05), "%", words="near-zero overhead"),
        value(wasted, at("ic_prefetch", OURS)),
        "{percent:.0f} %: tokens since the last whole block, and steps that documents had to leave",
        fact=_CHECKPOINTS,
    ),
    "fig5-recompute": claim(
        "incremental checkpoints beat recomputing (offline tokens/s)",
        times((1.05, 10.0), words="recomputes nothing"),
        _beats("ic_prefetch", "recompute"),
        fact=_CHECKPOINTS,
    ),
    "fig5-swap": claim(
        "and swapping",
        times((1.02, 10.0), words="does not block"),
        _beats("ic_prefetch", "swap"),
        "× {ours:.2f}: PCIe copies in 7 ms the KV of 51 ms of prompt",
        fact=_CHECKPOINTS,
    ),
    "fig5-prefetch": claim(
        "restoring KV during steps beats waiting for it",
        times((1.01, 2.0), words="overlaps"),
        _beats("ic_prefetch", "ic"),
        "× {ours:.2f}: another document can always be computed meanwhile",
    ),
}
