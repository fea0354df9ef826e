"""Fig. 2: idle capacity of an online service, and the cost of using it, Llama-3.1-8B."""

from reports.claims.bands import of_digits
from reports.claims.quantities import Measure, each, quotient, ratio, value
from reports.claims.stated import claim, level, times
from reports.papers.conserve.figures import drawn
from reports.papers.conserve.loads import SLO, alone, at, both
from reports.papers.conserve.measures import TPS, TTFT
from reports.papers.conserve.systems import NON_PREEMPTIVE, ONLINE_ONLY
from reports.runs.measured import Measured

TITLE = "Fig. 2: Llama-3.1-8B on one H100 with online requests alone, over their tokens per second"

TOKENS = 4352
OFFERED = (2000, 8000, 16_000, 24_000)
LOADS = {offered: f"{offered} tokens/s" for offered in OFFERED}
_BUSY = "8000 tokens/s, full"
EXPERIMENTS = {
    f"{name}: online alone": alone(name, rate=round(offered / TOKENS, 3), requests=max(60, 90 * offered // TOKENS))
    for offered, name in LOADS.items()
} | {f"{_BUSY}: with batch": both(_BUSY, SLO["rate 2"], engines=[NON_PREEMPTIVE])}
QUICK = {"requests": "40"}


def tokens_per_s(point: Measured) -> float | None:
    """Useful tokens per second of both classes."""
    rates = [rate for name in ("online.tps", TPS) if (rate := point.value(name)) is not None]
    return sum(rates) if rates else None


def _used(offered: int) -> Measure:
    """Return tokens per second over the largest measured rate, which is with as much batch work as fits."""
    return quotient(
        value("online.tps", at(LOADS[offered], ONLINE_ONLY)), value(tokens_per_s, at(_BUSY, NON_PREEMPTIVE))
    )


CLAIMS = {
    "fig2-idle": claim(
        "at 2,000 tokens/s more than 70 % of the GPU is idle",
        level((0.7, 1.0), "%", within=of_digits(0.01)),
        each(_used(2000), lambda share: 1.0 - share),
    ),
    "fig2-ttft": claim(
        "P99 TTFT grows steeply towards saturation (24,000 over 2,000 tokens/s)",
        times((3.0, 50.0), words="steeply"),
        ratio(TTFT, at(LOADS[24_000], ONLINE_ONLY), to=at(LOADS[2000], ONLINE_ONLY)),
        "× {ours:.1f}: Gamma arrivals with CV 0.5 hardly queue up to 24,000 tokens/s, 5.5 requests/s",
    ),
}

draw = drawn(TITLE, "offered tokens/s", {"": LOADS}, "Online requests of 4,096 tokens in and 256 out.")
