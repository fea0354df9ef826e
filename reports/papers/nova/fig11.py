"""Figs. 11 and 12: time to the first token, time between tokens and decode batches over the rate."""

import numpy as np

from reports.claims.quantities import largest, of_turns, smallest, value
from reports.claims.stated import claim, level, times
from reports.papers.nova.common import BOUND, EVERYBODY, RATES, STREAMS, TBT, at, best, drawn, over, steps
from reports.runs.measured import Measured

TITLE = "Figs. 11 and 12: time to the first token, time between tokens, and decode batches over the rate"

EXPERIMENTS = EVERYBODY
QUICK = {"requests": "120"}

TTFT = of_turns("ttft_s")


def decode_batch(point: Measured) -> float | None:
    """Requests that decode in a step, on average over the steps that have any; one of vLLM's may hold a chunk."""
    passes = steps(point, "decode", "thinker")
    decoding = np.asarray(passes["requests"]) - (np.asarray(passes["prefill_tokens"]) > 0)
    return float(decoding[decoding > 0].mean())


PLAIN = "Sec. V-C, Fig. 11: Multi-Stream has a low TTFT and a high TBT"
CLAIMS = {
    "fig11-tbt": claim(
        "no baseline has a lower time between tokens (lowest of a baseline's over Nova's, all rates)",
        times((1.001, 20.0), words="the lowest"),
        smallest(*(best(TBT, rate) for rate in RATES)),
    ),
    "fig11-streams-tbt": claim(
        "Multi-Stream's time between tokens is high (lowest over Nova's, all rates)",
        times((1.3, 20.0), words="high"),
        smallest(*(over(TBT, rate, STREAMS) for rate in RATES)),
        fact=PLAIN,
    ),
    "fig11-streams-ttft": claim(
        "Multi-Stream's time to the first token is low (highest over Nova's, all rates)",
        times((0.0, 0.97), words="low"),
        largest(*(over(TTFT, rate, STREAMS) for rate in RATES)),
        fact=PLAIN,
    ),
    "fig12-batch": claim(
        "Nova's decode batches are the smallest (lowest of a baseline's over Nova's, all rates)",
        times((1.001, 20.0), words="the smallest"),
        smallest(*(best(decode_batch, rate) for rate in RATES)),
    ),
    "fig12-below-5": claim(
        "they stay below 5 requests (largest mean, all rates)",
        level((0.0, 5.0), "", BOUND, "below 5"),
        largest(*(value(decode_batch, at(rate)) for rate in RATES)),
        check="a step has at least one request, and 0.8 requests a second of 50 tokens at about 50 ms each "
        "are two at once",
    ),
}

draw = drawn(
    TITLE,
    {"time to the first token, s": TTFT, "time between tokens, ms": TBT, "requests in a decode step": decode_batch},
    "The paper states only their order, not the numbers.",
)
