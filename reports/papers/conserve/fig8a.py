"""Fig. 8a: tails and offline throughput over the burstiness of arrivals, Llama-3.1-8B."""

from reports.claims.quantities import average
from reports.claims.stated import claim, merged, times
from reports.papers.conserve.figures import drawn
from reports.papers.conserve.loads import SLO, load
from reports.papers.conserve.measures import BY_ADMISSION, BY_TARGET, TBT, TPS, TTFT, gains
from reports.papers.conserve.precision import OFFLINE_TPS, REQUESTS, offline, p99
from reports.papers.conserve.systems import OURS, SARATHI

TITLE = "Fig. 8a: online tails and offline throughput over the burstiness of arrivals"

LOADS = {0.5: "rate 2", 1.0: "cv 1", 2.0: "cv 2", 4.0: "cv 4"}
EXPERIMENTS = merged(load(name, SLO["rate 2"], cv=x) for x, name in LOADS.items())
QUICK = {"requests": "40"}

_FACT = "Sec. 6.4, Fig. 8a: P99 TTFT ÷ 1.68, P99 TBT ÷ 2.38, offline throughput × 3.62 on average"
CLAIMS = {
    "fig8a-ttft": claim(
        "P99 TTFT lower by 1.68 × on average than the best baseline's, which is Sarathi-P",
        times(1.68, within=p99(len(LOADS) * REQUESTS)),
        average(*gains(LOADS.values(), TTFT, SARATHI, OURS)),
        "× {ours:.2f}: Sarathi-P takes slots and memory from online requests as well, latest first, as vLLM does",
        fact=_FACT,
        chosen=BY_TARGET,
    ),
    "fig8a-tbt": claim(
        "P99 TBT lower by 2.38 ×",
        times(2.38, within=p99(len(LOADS) * REQUESTS)),
        average(*gains(LOADS.values(), TBT, SARATHI, OURS)),
        "× {ours:.2f}: t_TBT is the limit at every burstiness",
        fact=_FACT,
        chosen=BY_TARGET,
    ),
    "fig8a-throughput": claim(
        "offline throughput × 3.62",
        times(3.62, within=offline(OFFLINE_TPS, OFFLINE_TPS / 3.62, loads=len(LOADS))),
        average(*gains(LOADS.values(), TPS, OURS, SARATHI)),
        "× {ours:.2f}: Sarathi-P loses throughput to recomputing, and less of it here",
        fact=_FACT,
        chosen=BY_ADMISSION,
    ),
}

draw = drawn(
    TITLE,
    "coefficient of variation of the gaps",
    {"": LOADS},
    "The paper, on average over the best baseline: TTFT ÷ 1.68, TBT ÷ 2.38, throughput × 3.62.",
    log=True,
)
