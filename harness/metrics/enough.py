"""How many events a percentile needs before it says more than the slowest of them.

Of n events, n × (1 − q) are expected beyond the q-quantile. With less than one there, the percentile is a number
between the two largest, as its rank from 0, (n − 1) × q (Hyndman and Fan 1996, type 7, NumPy's default), is above
n − 2: it is the slowest event's, and not a share's. So P50 needs 2 events, P90 10, P95 20, P99 100.
"""

import re
from fractions import Fraction
from math import ceil

_PERCENTILE = re.compile(r"_p(\d{2,3})$")


def least_events(metric: str) -> int:
    """So many events the metric needs; 1 where it is no percentile. `NAME_p999` is P99.9."""
    found = _PERCENTILE.search(metric)
    if found is None:
        return 1
    beyond = 1 - Fraction(int(found[1]), 10 ** len(found[1]))
    return ceil(1 / beyond)


def too_few(metric: str, n: int) -> bool:
    """Whether a value of the metric over `n` events is one of fewer than it needs; not of none, which is no value."""
    return 0 < n < least_events(metric)
