"""Fig. 8c: tails and offline throughput over the length of online outputs, Llama-3.1-8B."""

from reports.claims.quantities import average, ratio
from reports.claims.stated import claim, merged, times
from reports.papers.conserve.fig8b import LATENCY
from reports.papers.conserve.figures import drawn
from reports.papers.conserve.loads import SLO, at, load
from reports.papers.conserve.measures import BY_TARGET, TBT, TPS, gains
from reports.papers.conserve.systems import OURS, SARATHI

TITLE = "Fig. 8c: online tails and offline throughput over the length of online outputs"

LOADS = {64: "out 64", 256: "rate 2", 1024: "out 1024"}
EXPERIMENTS = merged(
    load(name, SLO["rate 2"], output_tokens=x, rate=2.0 * 256 / x, requests=120 * 2 * 256 // x)
    for x, name in LOADS.items()
)
QUICK = {"requests": "40"}

CLAIMS = {
    "fig8c-idle": claim(
        "below 128 tokens little remains for the batch: its throughput at 64 over that at 256",
        times((0.0, 0.5), words="little"),
        ratio(TPS, at("out 64", OURS), to=at("rate 2", OURS)),
    ),
    "fig8c-tbt": claim(
        "P99 TBT lower than Sarathi-P's on average",
        times((1.05, 10.0), words="good online latency"),
        average(*gains(LOADS.values(), TBT, SARATHI, OURS)),
        fact=LATENCY,
        chosen=BY_TARGET,
    ),
}

draw = drawn(
    TITLE,
    "tokens of an online output",
    {"": LOADS},
    "The rate falls as outputs grow. Below 128 tokens the online prompts alone fill the GPU.",
    log=True,
)
