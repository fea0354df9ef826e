"""Regularity or burstiness of arrivals, compared with a Poisson process of the same rate.

All functions take times in s, ascending, and give None where there is too little to measure.
"""

import numpy as np

MIN_WINDOWS = 10


def rate(times: np.ndarray) -> float | None:
    """Arrivals per second between the first and the last."""
    span = times[-1] - times[0] if len(times) else 0.0
    return float((len(times) - 1) / span) if span > 0 else None


def gap_cv(times: np.ndarray) -> float | None:
    """Coefficient of variation of the gaps: 1 for Poisson, above it bursts, 0 for a constant rate."""
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.any() else None


def lag_1(times: np.ndarray) -> float | None:
    """Correlation of each gap with the next: 0 for a renewal process, above it short gaps come together."""
    gaps = np.diff(times)
    if len(gaps) < 3 or np.ptp(gaps[:-1]) == 0 or np.ptp(gaps[1:]) == 0:
        return None
    return float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])


def dispersion(times: np.ndarray, window_s: float) -> float | None:
    """Index of dispersion: variance by mean of the counts in windows of `window_s`; 1 for Poisson.

    Windows begin at the first arrival; a last one that is not full is left out, and fewer than 10 measure
    nothing.
    """
    windows = int((times[-1] - times[0]) / window_s) if len(times) else 0
    if windows < MIN_WINDOWS:
        return None
    index = ((times - times[0]) / window_s).astype(np.int64)
    counts = np.unique(index[index < windows], return_counts=True)[1]  # non-empty windows
    mean = counts.sum() / windows
    return float((np.sum(counts**2) - windows * mean**2) / (windows - 1) / mean)
