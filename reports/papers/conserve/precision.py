"""Precision of the paper's numbers, by the requests and documents behind them."""

from dataclasses import replace
from math import sqrt

from reports.claims.bands import Band, of_mean, of_percentile

SECONDS = 600
"""Ten minutes, the only duration that the paper states (section 6.3)."""
REQUESTS = 2 * SECONDS
"""Online requests of a synthetic load, at section 6.4's 2 requests/s."""
CHATS = 1140
"""Online requests of Table 2: [calibrated] 1.9 requests/s (`loads.LLAMA_70B`)."""
DOCUMENTS = {"mixed": (16131, 0.45), "dureader": (21942, 0.13), "multinews": (7310, 0.24), "vcsum": (19140, 0.25)}
"""Mean tokens of a document in and out, and their standard deviation over it, by the means and P99 of Table 1 and
log-normal lengths; mixed: a third of each set."""
OFFLINE_TPS = 11_366
"""ConServe's offline tokens/s with a synthetic load, the only one that the paper prints (section 6.5)."""


def p99(requests: int) -> Band:
    """Band of a P99. TBT has as many independent long steps as prompts, and so requests."""
    return of_percentile(0.99, requests)


def offline(*tokens_per_s: float, shape: str = "mixed", loads: int = 1) -> Band:
    """Band of an offline throughput, or of each of two in a ratio, by the documents of all loads."""
    mean, cv = DOCUMENTS[shape]
    counts = [loads * SECONDS * each / mean for each in tokens_per_s]
    return of_mean(max(1, round(len(counts) / sum(1 / count for count in counts))), cv)


def of_two(band: Band) -> Band:
    """Band of a ratio of two such numbers that has no "no effect"."""
    return replace(band, relative=sqrt(2) * band.relative, because=f"ratio; {band.because} each")
