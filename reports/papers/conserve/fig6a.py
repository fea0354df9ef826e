"""Fig. 6a: tails and offline throughput over the online rate, three models."""

from reports.papers.conserve.common import *

TITLE = "Fig. 6a: online tails and offline throughput over the online rate, three models"

LOADS: Mapping[str, Mapping[int, str]] = {
    "Llama-3.1-8B": {rate: f"rate {rate}" for rate in (2, 3, 4)},
    "Qwen2.5-14B": {rate: f"14b {rate}" for rate in (1, 2)},
    "Llama-3.1-70B": {rate: f"70b {rate}" for rate in (1, 2)},
}
"""[chosen] requests/s: below, fewer than one token in a hundred waits for a prompt, so that Online-Only's P99 TBT is
that of a decode step, 9 ms, which no step with a document in it keeps to."""
_DEPLOYMENTS = {
    "Llama-3.1-8B": "llama_8b_h100",
    "Qwen2.5-14B": "qwen2_5_14b_h100",
    "Llama-3.1-70B": "llama_70b_4xh100",
}
EXPERIMENTS = merged(
    load(
        name,
        SLO[name],
        bound=True,
        apart=True,
        deployment=_DEPLOYMENTS[model],
        rate=float(rate),
        requests=120 * rate,
    )
    for model, names in LOADS.items()
    for rate, name in names.items()
)
QUICK = {"requests": "40"}

_NAMES = [name for names in LOADS.values() for name in names.values()]


def _over(quantity: str, engine: str, to: str, names: list[str]) -> list[Measure]:
    return [against(quantity, name, engine, to) for name in names]


def _every(measure: Callable[[str], Measure]) -> list[Measure]:
    return [measure(name) for name in _NAMES]


_TWICE = "Online-Only reads a prompt in just the step that t_TBT allows; with replies in it here it takes two"


def _near(model: str) -> dict[str, Claim]:
    names, short = list(LOADS[model].values()), model.split("-")[-1].lower()
    return {
        f"fig6a-{short}-ttft": claim(
            f"{model}: P99 TTFT within 25 % of Online-Only at every rate (largest ratio)",
            level((1.0, 1.25), "×", within=0.05),
            largest(*_over(TTFT, OURS, ONLINE_ONLY, names)),
            "× {ours:.2f}: " + _TWICE,
        ),
        f"fig6a-{short}-tbt": claim(
            f"{model}: P99 TBT within 19 % of Online-Only at every rate (largest ratio)",
            level((1.0, 1.19), "×", within=0.05),
            largest(*_over(TBT, OURS, ONLINE_ONLY, names)),
            "× {ours:.2f}",
        ),
    }


CLAIMS = {
    **merged(map(_near, LOADS)),
    "fig6a-optimal": claim(
        "82.3 % of the optimal offline throughput, which is Non-Preemptive's, on average over rates and models",
        level(0.823, "%", within=0.08),
        average(*_every(of_optimal)),
        "{percent:.0f} %",
    ),
    "fig6a-low-load": claim(
        "at low load both have over 70 % of it (Sarathi-P, Llama-3.1-8B, 2 requests/s)",
        level((0.7, 1.0), "%", within=0.05),
        of_optimal("rate 2", SARATHI),
        "{percent:.0f} %: 2 requests/s are no low load where the bound is as high; at less no limit can be kept to",
    ),
    "fig6a-sarathi": claim(
        "3.0 × the offline throughput of Sarathi-P on average",
        times(3.0, within=0.5),
        average(*_over(TPS, OURS, SARATHI, _NAMES)),
        "× {ours:.2f}: at the highest rates next to nothing is left of it",
    ),
    "fig6a-sarathi-most": claim(
        "up to 7.48 × (largest)",
        times(7.48, within=1.5),
        largest(*_over(TPS, OURS, SARATHI, _NAMES)),
        "× {ours:.2f}: how little is left at the highest rate hangs on that rate",
    ),
    "fig6a-widens": claim(
        "the advantage over Sarathi-P widens with the load (4 over 2 requests/s, Llama-3.1-8B)",
        times((1.05, 10.0), words="widens"),
        quotient(against(TPS, "rate 4", OURS, SARATHI), against(TPS, "rate 2", OURS, SARATHI)),
    ),
    "fig6a-sarathi-ttft": claim(
        "P99 TTFT lower by 2.37 × on average than Sarathi-P's",
        times(2.37, within=0.4),
        average(*_over(TTFT, SARATHI, OURS, _NAMES)),
        "÷ {ours:.2f}",
    ),
    "fig6a-sarathi-tbt": claim(
        "P99 TBT lower by 2.72 × on average",
        times(2.72, within=0.5),
        average(*_over(TBT, SARATHI, OURS, _NAMES)),
        "÷ {ours:.2f}",
    ),
    "fig6a-distserve": claim(
        "DistServe-P has the lowest throughput of all (its own by GPU over Sarathi-P's, on average)",
        times((0.0, 0.95), words="below 1"),
        average(*_every(lambda name: quotient(per_gpu(name), value(TPS, at(name, SARATHI))))),
        "× {ours:.2f}: documents wait for decode blocks before they are read, so that no decode is ever preempted",
    ),
    "fig6a-distserve-ttft": claim(
        "and poor latencies: P99 TTFT above ConServe's at every rate (smallest ratio)",
        times((1.05, 20.0), words="above 1"),
        smallest(*_over(TTFT, DISTSERVE, OURS, _NAMES)),
    ),
    **merged(slo_check(name, SLO[name]) for name in _NAMES),
}

draw = drawn(
    TITLE,
    "online requests/s",
    LOADS,
    "Left and middle: lower is better; right: higher is better, DistServe-P's by half of its GPUs. ConServe is held to "
    "Online-Only's own P99. All have steps of up to 8,192 tokens.",
)
