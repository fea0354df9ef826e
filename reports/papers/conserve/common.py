"""What ConServe's cards share: its load, its baselines, its time limits, and the numbers that are read off a run.

The paper's SLO is Online-Only's own P99 on the same trace, times a scale (section 6.1), so that it has to be known
before ConServe runs: `SLO` holds what Online-Only's points of these cards measured, medians of three seeds. They are
anchors of the baseline and no result; `slo_check` says in each card how far they lie from what it measures.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.experiment import Experiment
from harness.metrics.classes import attainment
from reports.claims import Claim
from reports.figures.drawing import legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Measured, Run, over_seeds
from reports.quantities import Measure, Quantity, Setting, each, of, quotient, value
from reports.stated import claim, level
from reports.style import Look, engine_looks

ONLINE_ONLY, NON_PREEMPTIVE, SARATHI, OURS = "vllm_omni_wo", "non_preemptive", "sarathi_p", "conserve"
CO_SERVERS = [NON_PREEMPTIVE, SARATHI, OURS]
"""Online-Only is vLLM's own chunked prefill with the batch left out of the trace."""

SEEDS = [0, 1, 2]
ALONE, BOTH = "online alone", "with batch"

TTFT, TBT, TPS = "online.ttft_p99", "online.itl_p99", "batch.tps"
"""P99 over online requests, P99 over all their inter-token times, and offline tokens per second, prompts included."""

SYNTHETIC: dict[str, Any] = {
    "deployment": "llama_8b_h100",
    "cv": 0.5,
    "rate": 2.0,
    "requests": 240,
    "input_tokens": 4096,
    "output_tokens": 256,
}
"""Section 6.3: Gamma arrivals, 4,096 tokens in, 256 out, 2 requests/s; two minutes."""

BURSTGPT: dict[str, Any] = {"online": "burstgpt", "chat": "burstgpt"}
"""Bursts fitted to BurstGPT, chat lengths of Table 1."""

LLAMA_70B: dict[str, Any] = {"deployment": "llama_70b_4xh100", **BURSTGPT, "rate": 1.0, "requests": 240}
"""The rate is not stated: [chosen] one at which Online-Only's P99 TTFT is near the paper's 1.08 s."""

SLO: Mapping[str, tuple[float, float]] = {
    "rate 2": (0.142, 0.1019),
    "8b burst": (0.323, 0.0833),
    "70b": (1.049, 0.2113),
    "14b": (0.221, 0.1823),
}
"""Online-Only's P99 TTFT and TBT, s. The cards that vary the load of "rate 2" keep its limits: "varying one parameter
at a time" (section 6.4)."""

POOL = 96
"""Documents at the server: [chosen] more than its KV pool holds, so that somebody always waits."""

_WITHOUT: dict[str, Any] = {"ttft_deadline_s": None, "tbt_deadline_s": None}


def load(name: str, slo: tuple[float, float], scale: float = 1.0, **changes: Any) -> dict[str, Experiment]:
    """Online-Only, and the co-servers beside the same online trace; the panels are `ALONE` and `BOTH`, or are prefixed
    with `name`, which other loads of the card do not have. `slo` times `scale` is what ConServe keeps to."""
    return {f"{name}: {ALONE}": alone(name, **changes), f"{name}: {BOTH}": both(name, slo, scale, **changes)}


def alone(name: str, **changes: Any) -> Experiment:
    """The online trace by itself."""
    fixed = {**_WITHOUT, "documents": 0, **_online(changes)}
    return _experiment(f"conserve-{_slug(name)}", [ONLINE_ONLY], fixed)


def both(
    name: str,
    slo: tuple[float, float],
    scale: float = 1.0,
    engines: Sequence[str] = tuple(CO_SERVERS),
    grid: dict[str, list[Any]] | None = None,
    **changes: Any,
) -> Experiment:
    """The same with a pool of documents that never runs dry."""
    limits = {"ttft_slo_s": round(scale * slo[0], 4), "tbt_slo_s": round(scale * slo[1], 4)}
    limits = limits if OURS in engines else {}
    fixed = {**_WITHOUT, "pool": POOL, **limits, **_online(changes)}
    return _experiment(f"conserve-{_slug(name)}", engines, fixed, grid)


def _online(changes: dict[str, Any]) -> dict[str, Any]:
    return changes if "online" in changes else {**SYNTHETIC, **changes}


def _experiment(
    name: str, engines: Sequence[str], fixed: dict[str, Any], grid: dict[str, list[Any]] | None = None
) -> Experiment:
    return Experiment(
        name=name,
        engines=list(engines),
        workload="co_serving",
        set={key: value for key, value in fixed.items() if key not in (grid or {})},
        grid=grid or {},
        seeds=SEEDS,
        timeout_s=900,
    )


def at(name: str, engine: str, **params: Any) -> Setting:
    """An engine at a load of the card."""
    return of(f"{name}: {ALONE if engine == ONLINE_ONLY else BOTH}", engine, **params)


def against(quantity: Quantity, name: str, engine: str, to: str) -> Measure:
    """The quantity of one engine over that of another, at the same load and seed."""
    return quotient(value(quantity, at(name, engine)), value(quantity, at(name, to)))


def slo_check(name: str, slo: tuple[float, float]) -> list[Claim]:
    """How far the limits that ConServe was given lie from what Online-Only has measured here."""
    return [
        claim(
            f"{_slug(name)}-slo-{short}",
            f"{name}: ConServe was held to Online-Only's P99 {text}",
            level(1.0, "×", within=0.15),
            each(value(quantity, at(name, ONLINE_ONLY)), lambda measured, limit=limit: measured / limit),
            "limits are medians over three seeds",
            calibrated="the limit was taken from such runs",
        )
        for short, text, quantity, limit in (("ttft", "TTFT", TTFT, slo[0]), ("tbt", "TBT", TBT, slo[1]))
    ]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower())


def attained(slo: tuple[float, float], scale: float) -> Quantity:
    """Share of online requests whose TTFT and mean time between tokens both keep to the limits: those are P99s over all
    requests and over all tokens, so that a request's own worst gaps cannot be held against the second."""

    def quantity(point: Measured) -> float | None:
        limits = {"ttft_s": scale * slo[0], "tbt_s": scale * slo[1]}
        return attainment(point.requests, "online", **limits, tbt="tbt_mean_s").share

    return quantity


def counted(name: str) -> Quantity:
    """A counter of the engine's; None where it has none of that name."""
    return lambda point: point.record.counters.get(name) if point.error is None else None


def tokens_per_s(point: Measured) -> float | None:
    """Useful tokens per second of both classes."""
    known = [found for name in ("online.tps", TPS) if (found := point.value(name)) is not None]
    return sum(known) if known else None


def looks() -> dict[str, Look]:
    return engine_looks(ONLINE_ONLY, *CO_SERVERS)


def drawn(
    card: str,
    title: str,
    axis: str,
    names: Mapping[Any, str],
    panels: Mapping[str, Run],
    caption: str,
    log: bool = False,
) -> Picture | LeftOut:
    """P99 TTFT, P99 TBT and offline tokens/s over `axis`; `names`: the load's name for each value of it."""
    figure, axes = sheet(1, 3, title)
    used: list[Measured] = []
    for engine, look in looks().items():
        points = {x: at(name, engine).points(panels) for x, name in names.items()}
        used += [point for found in points.values() for point in found]
        for own, metric, factor in zip(axes, (TTFT, TBT, TPS), (1, 1000, 1e-3), strict=True):
            if metric == TPS and engine == ONLINE_ONLY:
                continue
            label = "online alone" if engine == ONLINE_ONLY else engine
            line(own, {x: over_seeds(found, metric) for x, found in points.items()}, look, label, factor)
    if all(point.error is not None for point in used):
        return LeftOut(card, title, "no point of it is finished")
    labels = ("P99 TTFT of online requests, s", "P99 TBT of online requests, ms", "offline tokens, 1000/s")
    for own, label in zip(axes, labels, strict=True):
        if log:
            own.set_xscale("log", base=2)
        own.set_ylim(bottom=0)
        own.set_xlabel(axis)
        own.set_ylabel(label)
    legend(figure, axes[0])
    return Picture(card, title, figure, f"{caption} {made_from(used, bars=True)}")
