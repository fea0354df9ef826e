"""Fig. 8b: tails and offline throughput over the length of online inputs, Llama-3.1-8B."""

from reports.claims.quantities import average, quotient
from reports.claims.stated import claim, merged, times
from reports.papers.conserve.figures import drawn
from reports.papers.conserve.loads import SLO, load
from reports.papers.conserve.measures import BY_ADMISSION, BY_TARGET, TPS, TTFT, against, gains
from reports.papers.conserve.systems import OURS, SARATHI

TITLE = "Fig. 8b: online tails and offline throughput over the length of online inputs"

LOADS = {1024: "in 1024", 4096: "rate 2", 16384: "in 16384"}
EXPERIMENTS = merged(
    load(name, SLO["rate 2"], input_tokens=x, rate=2.0 * 4096 / x, requests=120 * 2 * 4096 // x)
    for x, name in LOADS.items()
)
QUICK = {"requests": "40"}

LATENCY = "Sec. 6.4, Figs. 8b and 8c: good online latency across most lengths"
CLAIMS = {
    "fig8b-ttft": claim(
        "P99 TTFT lower than Sarathi-P's on average",
        times((1.05, 10.0), words="good online latency"),
        average(*gains(LOADS.values(), TTFT, SARATHI, OURS)),
        fact=LATENCY,
        chosen=BY_TARGET,
    ),
    "fig8b-throughput": claim(
        "most offline throughput is gained between 2K and 16K: the gain at 4K is above that at 1K",
        times((1.02, 10.0), words="most pronounced"),
        quotient(against(TPS, LOADS[4096], OURS, SARATHI), against(TPS, LOADS[1024], OURS, SARATHI)),
        "× {ours:.2f}: neither input length causes much recomputing",
        chosen=BY_ADMISSION,
    ),
}

draw = drawn(
    TITLE,
    "tokens of an online input",
    {"": LOADS},
    "The rate falls as inputs grow, so that tokens per second stay. The paper gains most from 2K to 16K.",
    log=True,
)
