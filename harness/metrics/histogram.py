"""Quantiles of histograms: counts of observations up to each bound, and beyond the last."""

from collections.abc import Sequence


def quantile(bounds: Sequence[float], counts: Sequence[float], q: float) -> float | None:
    """Return the quantile, interpolated within its bucket, as Prometheus does; beyond the last bound it is that bound;
    None of nothing. `bounds`: the upper ones, ascending; `counts` has one more."""
    wanted, below = q * sum(counts), 0.0
    if not any(counts):
        return None
    edges = (0.0, *bounds, bounds[-1])
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if count and below + count >= wanted:
            return low + (high - low) * (wanted - below) / count
        below += count
    return bounds[-1]  # the sum of the shares may be a bit below the whole
