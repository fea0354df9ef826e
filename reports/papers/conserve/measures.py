"""Metrics and measures of ConServe's cards."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.metrics.classes import tbt_attainment, ttft_attainment
from reports.claims.claim import Claim, Untold
from reports.claims.quantities import Measure, Quantity, Setting, each, largest, of, quotient, ratio, value
from reports.claims.stated import claim, level, unpublished
from reports.papers.conserve.loads import BOUND, SMALL_STEP, TARGET, at, small
from reports.papers.conserve.systems import DISTSERVE, NON_PREEMPTIVE, ONLINE_ONLY, OURS
from reports.runs.measured import Measured

TTFT, TBT, TPS = "online.ttft_p99", "online.itl_p99", "batch.tps"
"""P99 over online requests, P99 over all their inter-token times, and offline tokens per second, prompts included, in
the steady state (`harness.metrics.classes.steady`)."""

Named = Callable[[str], str]
"""A load's name with steps of one size, from its own: `str` with the deployments', `loads.small` with small ones."""

BY_TARGET = f"the targets, {TARGET:g} times Online-Only's P99, were chosen with such numbers in view"
"""`chosen` of ConServe's P99 TTFT and TBT, unless they came out alike at 1.0 and at every factor from 1.1 to 1.2."""
BY_ADMISSION = "prompts are admitted whole, as by chunk Sarathi-P has next to no throughput"
"""`chosen` of Sarathi-P's offline throughput."""
BY_GUARD = "the guard, which the paper does not have, came after late tokens"
"""`chosen` of ConServe's attainment."""


def against(quantity: Quantity, name: str, engine: str, to: str) -> Measure:
    """The quantity of one engine over that of another, at the same load and seed."""
    return ratio(quantity, at(name, engine), to=at(name, to))


def gains(names: Iterable[str], quantity: Quantity, engine: str, to: str) -> list[Measure]:
    """The same at each of these loads."""
    return [against(quantity, name, engine, to) for name in names]


def optimal(name: str) -> Measure:
    """The upper bound of offline throughput: Non-Preemptive's with the better of two step sizes."""
    return largest(value(TPS, at(name, NON_PREEMPTIVE)), value(TPS, of(f"{name}: {BOUND}", NON_PREEMPTIVE)))


def of_optimal(name: str, engine: str = OURS, named: Named = str) -> Measure:
    """Offline throughput as a share of that, which is the optimum of both step sizes."""
    return quotient(tokens(at(named(name), engine)), optimal(name))


def by_step(measure: Callable[[Named], Measure]) -> Untold:
    """Evidence that the size of a step, which the paper does not state, decides a claim. `measure`: the claim's measure
    at loads so named."""
    return unpublished(
        f"the tokens of a step (vLLM's default of 8,192, or its own example's {SMALL_STEP:,})",
        {f"steps of {SMALL_STEP:,} tokens": measure(small)},
    )


def tokens(setting: Setting) -> Measure:
    """Offline throughput, DistServe-P's by GPUs as many as the others have."""
    times = 2 if setting.engine == DISTSERVE else 1
    return each(value(TPS, setting), lambda tps: tps / times)


def slo_check(slos: Mapping[str, tuple[float, float]]) -> Claim:
    """Return the difference between `SLO`, the basis of ConServe's targets, and the measured Online-Only, by load."""
    return claim(
        "(ours) ConServe's targets were made from Online-Only's P99 TTFT and TBT (largest difference)",
        level((0.0, 0.15), "%"),
        largest(
            *(
                each(value(metric, at(name, ONLINE_ONLY)), lambda measured, slo=slo: abs(measured / slo - 1))
                for name, limits in slos.items()
                for metric, slo in zip((TTFT, TBT), limits, strict=True)
            )
        ),
        "limits are medians of three seeds, and a P99 over few long steps depends on the seed",
    )


ATTAINED = ("ttft", "tbt")
"""The two attainments of section 6.2."""


def kept(which: str, slo: tuple[float, float], scale: float) -> Quantity:
    """The share that keeps to `scale` times the SLO: of online requests by their TTFT, or of all times between tokens
    of online requests, as the paper's limit of TBT is a multiple of a P99 over tokens."""
    ttft_s, tbt_s = (scale * limit_s for limit_s in slo)
    if which == "ttft":
        return lambda point: ttft_attainment(point.requests, "online", ttft_s)
    return lambda point: tbt_attainment(point.kinds("first_text", "text"), point.requests, "online", tbt_s)


def online_requests(point: Measured) -> Any:
    """The rows of the request table without the batch."""
    return point.requests.loc[point.requests["request_class"] == "online"]
