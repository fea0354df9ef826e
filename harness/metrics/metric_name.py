"""Names of metrics: `[CLASS.]QUANTITY[_STATISTIC]`, such as `continuity`, `ttft_p99.9` and `online.itl_mean`.

All other code takes names apart, and puts them together, by what stands here.
"""

import re
from fractions import Fraction
from functools import cache
from typing import NamedTuple

_PERCENTILE = r"p(?:[1-9]\d?|0(?=\.\d*[1-9]))(?:\.\d*[1-9])?"
"""Above 0 and below 100, and written in one way only."""
_NAME = re.compile(rf"(?:([^.]+)\.)?([A-Za-z]\w*?)(?:_(mean|max|{_PERCENTILE}))?")


class MetricName(NamedTuple):
    """A metric's name in its parts; the last two may be empty."""

    quantity: str
    statistic: str = ""
    """`mean`, `max`, or a percentile such as `p50` or `p99.9`."""
    request_class: str = ""
    """No class has a dot in its name."""

    def __str__(self) -> str:
        of_class = f"{self.request_class}." if self.request_class else ""
        return of_class + "_".join(filter(None, (self.quantity, self.statistic)))

    @property
    def family(self) -> str:
        """The part that all statistics of the same values share."""
        return str(self._replace(statistic=""))

    @property
    def quantile(self) -> Fraction | None:
        """999/1000 for P99.9; None where it is no percentile."""
        return quantile_of(self.statistic)


@cache
def parsed(name: str) -> MetricName:
    """Return the parts of a name; one that has other characters is a quantity as a whole."""
    match = _NAME.fullmatch(name)
    return MetricName(name) if match is None else MetricName(match[2], match[3] or "", match[1] or "")


def quantile_of(statistic: str) -> Fraction | None:
    """Return 999/1000 for `p99.9`; None for what is no percentile: `mean`, `p0`, `p100` or `p999`."""
    return Fraction(statistic[1:]) / 100 if re.fullmatch(_PERCENTILE, statistic) else None


def in_class(request_class: str, metric: str) -> str:
    """Return the name of a metric of a class of requests."""
    return str(parsed(metric)._replace(request_class=request_class))


def word_for(statistic: str) -> str:
    """Return the word for a statistic: P99.9, Mean or Largest."""
    return {"max": "Largest"}.get(statistic, statistic.capitalize())
