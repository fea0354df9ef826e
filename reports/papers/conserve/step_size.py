"""Tokens of a step, which the paper does not state: evidence from Fig. 3 and the ablation."""

from collections.abc import Mapping
from typing import Any

from reports.claims.quantities import Measure, counter, largest, quotient, value
from reports.claims.stated import claim, level, merged, times
from reports.figures.forms import Plot, bars, behind, figure
from reports.papers.conserve import ablation, fig3, kv_cost
from reports.papers.conserve.loads import BOTH, BOUND_TOKENS, SLO, SMALL_SLO, SMALL_STEP, at, both, load
from reports.papers.conserve.measures import BY_TARGET, TBT, TPS, TTFT, against
from reports.papers.conserve.precision import REQUESTS, p99
from reports.papers.conserve.systems import NON_PREEMPTIVE, ONLINE_ONLY, OURS, SARATHI

TITLE = "Steps of 2,048, 4,096 or 8,192 tokens, Llama-3.1-8B: evidence for each, and ConServe's results with it"

_LIMITS = {SMALL_STEP: SMALL_SLO["rate 2"], 4096: (0.153, 0.0994), 8192: SLO["rate 2"]}
"""Online-Only's P99 TTFT and TBT with such steps, s."""

_NAMES = {size: "rate 2" if size == 8192 else f"{size} tokens" for size in _LIMITS}


def _of(size: int) -> dict[str, Any]:
    budget: dict[str, Any] = {} if size == 8192 else {"max_num_batched_tokens": size}  # the deployment's
    name = _NAMES[size]
    shared = load(name, _LIMITS[size], **budget)
    return shared | {
        f"{name}, scheduler: {BOTH}": both(
            f"ablation scheduler {size}", _LIMITS[size], engines=[OURS], **budget, **ablation.STEPS["scheduler"]
        )
    }


EXPERIMENTS = merged(map(_of, _LIMITS))
QUICK = {"requests": "40"}

PAPER = {
    **fig3.PAPER,
    "before": ablation.PAPER["tbt"][0],
    "after": ablation.PAPER["tbt"][1],
    "ours": 1.25,
    "share": 0.823,
}

_BOUND = largest(*(value(TPS, at(_NAMES[size], NON_PREEMPTIVE)) for size in (BOUND_TOKENS, 8192)))
"""The optimal offline throughput, as in the other cards."""


def _measures(size: int) -> Mapping[str, Measure]:
    name = _NAMES[size]
    return {
        "ttft": against(TTFT, name, SARATHI, ONLINE_ONLY),
        "tbt": against(TBT, name, SARATHI, ONLINE_ONLY),
        "throughput": against(TPS, name, NON_PREEMPTIVE, SARATHI),
        "before": value(TBT, at(name, SARATHI)),
        "after": value(TBT, at(f"{name}, scheduler", OURS)),
        "ours": against(TTFT, name, OURS, ONLINE_ONLY),
        "share": quotient(value(TPS, at(name, OURS)), _BOUND),
    }


CLAIMS = {
    "step-size-2048-ttft": claim(
        "(ours) with steps of 2,048 tokens strict priority's P99 TTFT would be × 3.59 of Online-Only's",
        times(3.59, within=0.65),
        _measures(2048)["ttft"],
        "× {ours:.2f}: the step that an arrival waits for is too short",
    ),
    "step-size-2048-before": claim(
        "(ours) and its P99 TBT 375 ms",
        level(0.375, "ms", within=0.06),
        _measures(2048)["before"],
        "{ms:.0f} ms: no step of 2,048 tokens lasts as long",
    ),
    "step-size-8192-before": claim(
        "Sarathi-P: P99 TBT 375 ms, with steps of 8,192 tokens",
        level(0.375, "ms", within=p99(REQUESTS)),
        _measures(8192)["before"],
        "{ms:.0f} ms: 2,048 tokens take 47 ms here for the paper's 51",
        fact=ablation.BY_SCHEDULER,
        fitted=fig3.STEP,
    ),
    "step-size-8192-after": claim(
        "and with the scheduler 73 ms",
        level(0.073, "ms", within=p99(REQUESTS)),
        _measures(8192)["after"],
        "{ms:.0f} ms: the scheduler keeps to Online-Only's P99, a prompt's step; 73 ms needs fewer than 4,096 tokens",
        fact=ablation.BY_SCHEDULER,
        chosen=BY_TARGET,
    ),
    "step-size-2048-copy": claim(
        "(ours) with 2,048 the largest copy to the host ends within 7 ms",
        level((0.0, 0.007), "ms", within=0.001),
        value(kv_cost.longest_s, at(_NAMES[2048], OURS)),
        check="the KV of 2,048 tokens over the link",
    ),
    "step-size-2048-optimal": claim(
        "(ours) ConServe has 82.3 % of the optimal offline throughput",
        level(0.823, "%", within=0.08),
        _measures(2048)["share"],
        "{percent:.0f} %: the optimum is with such steps, too",
    ),
    "step-size-2048-ours": claim(
        "(ours) and P99 TTFT within 25 % of Online-Only",
        level((1.0, 1.25), "×", within=0.05),
        _measures(2048)["ours"],
        "× {ours:.2f}: a prompt takes two steps anyway and its remainder a third step, which documents fill",
    ),
    "step-size-2048-interrupted": claim(
        "(ours) and documents leave a running step for arrivals (number of such arrivals)",
        level((1.0, 240.0), words="some"),
        value(counter("thinker.interrupted"), at(_NAMES[2048], OURS)),
        "{ours:.0f}: the rest of such a short step is never too long",
    ),
}


def _bars(named: Mapping[str, str], label: str) -> Plot:
    """A group for each number, a bar for each step size, the paper's value on it."""
    sizes = {f"{size:,}": _measures(size) for size in _LIMITS}
    series = {size: {text: measures[key] for key, text in named.items()} for size, measures in sizes.items()}
    marks = {size: {text: PAPER[key] for key, text in named.items()} for size in sizes}
    return bars(None, series, marks=marks, ylabel=label)


_RATIOS = {"ttft": "Sarathi-P:\nP99 TTFT", "tbt": "Sarathi-P:\nP99 TBT", "throughput": "Non-Preemptive:\ntokens/s"}
_CONSERVE = {"ours": "P99 TTFT over\nOnline-Only's", "share": "tokens/s over\nthe bound"}
draw = figure(
    TITLE,
    _bars(_RATIOS, "ratio (over Online-Only's; over Sarathi-P's)"),
    _bars({"before": "Sarathi-P", "after": "with the scheduler"}, "P99 TBT, ms"),
    _bars(_CONSERVE, "ConServe: ratio"),
    points=behind([at(name, SARATHI) for name in _NAMES.values()]),
    caption="Bars: tokens of a step. Three of the five numbers to the left need 8,192 tokens; 73 ms needs "
    "fewer than 4,096. No size gives all of them, so the paper's systems may have had different sizes.",
)
