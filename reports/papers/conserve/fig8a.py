"""Fig. 8a: tails and offline throughput over the burstiness of arrivals, Llama-3.1-8B."""

from reports.claims.quantities import average
from reports.claims.stated import claim, merged, times
from reports.papers.conserve.figures import drawn
from reports.papers.conserve.loads import SLO, load
from reports.papers.conserve.measures import BY_TARGET, TBT, TPS, TTFT, gains
from reports.papers.conserve.systems import OURS, SARATHI

TITLE = "Fig. 8a: online tails and offline throughput over the burstiness of arrivals"

LOADS = {0.5: "rate 2", 1.0: "cv 1", 2.0: "cv 2", 4.0: "cv 4"}
EXPERIMENTS = merged(load(name, SLO["rate 2"], cv=x) for x, name in LOADS.items())
QUICK = {"requests": "40"}

CLAIMS = {
    "fig8a-ttft": claim(
        "P99 TTFT lower by 1.68 × on average than the best baseline's, which is Sarathi-P",
        times(1.68, within=0.3),
        average(*gains(LOADS.values(), TTFT, SARATHI, OURS)),
        "× {ours:.2f}: Sarathi-P takes slots and memory from online requests as well, latest first, as vLLM does",
        chosen=BY_TARGET,
    ),
    "fig8a-tbt": claim(
        "P99 TBT lower by 2.38 ×",
        times(2.38, within=0.4),
        average(*gains(LOADS.values(), TBT, SARATHI, OURS)),
        "× {ours:.2f}: t_TBT is the limit at every burstiness",
    ),
    "fig8a-throughput": claim(
        "offline throughput × 3.62",
        times(3.62, within=0.7),
        average(*gains(LOADS.values(), TPS, OURS, SARATHI)),
        "× {ours:.2f}: Sarathi-P loses throughput to recomputing",
    ),
}

draw = drawn(
    TITLE,
    "coefficient of variation of the gaps",
    {"": LOADS},
    "The paper, on average over the best baseline: TTFT ÷ 1.68, TBT ÷ 2.38, throughput × 3.62.",
    log=True,
)
