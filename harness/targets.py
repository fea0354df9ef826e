"""Targets on metrics, as in `ttfp_p90<=1.0 continuity>=0.95`: read, judged, and said in words.

What searches share: `rehearse live --find` at an endpoint and `rehearse find` in virtual time. Turns that failed count
as infinitely late: nothing gets faster by dropping its callers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from rehearsal.harness.metrics.definitions import DEFINITIONS, DISTRIBUTIONS, OWN_DEFINITIONS
from rehearsal.harness.metrics.frame_definitions import FRAME_DEFINITIONS, definition
from rehearsal.harness.metrics.live_definitions import LIVE_DEFINITIONS
from rehearsal.harness.metrics.live_window import counted
from rehearsal.harness.metrics.requests import BARGED_IN
from rehearsal.harness.metrics.turn_taking_definitions import DELAYS, STATISTICS
from rehearsal.harness.metrics.turn_taking_summary import delays
from rehearsal.workloads.errors import UserError, nearest

SIGN = {"<=": "≤", ">=": "≥"}

_ALIASES = {"ttfp": "audio_ttfp"}
_TARGET = re.compile(r"([A-Za-z0-9_.-]+)\s*(<=|>=)\s*([0-9.eE+-]+)(%?)")


@dataclass(frozen=True)
class Target:
    """One condition on a metric, in the metric's own unit."""

    metric: str
    op: Literal["<=", ">="]
    bound: float

    def met(self, value: float | None) -> bool:
        """A missing value meets nothing."""
        if value is None or math.isnan(value):
            return False
        return value <= self.bound if self.op == "<=" else value >= self.bound


@dataclass(frozen=True)
class Repeat:
    """One measured run: the value of each target's metric, in their order, and why it does not count, if so."""

    point: str
    values: tuple[float | None, ...]
    error: str = ""

    def meets(self, targets: Sequence[Target]) -> bool:
        """Whether it was measured and meets every target."""
        return not self.error and all(t.met(v) for t, v in zip(targets, self.values, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Infinite values, of turns that failed, are written as the string "inf"."""
        values = ["inf" if v is not None and math.isinf(v) else v for v in self.values]
        return {"point": self.point, "values": values, "error": self.error}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Repeat:
        """What `as_dict` wrote."""
        values = tuple(None if v is None else float(v) for v in data["values"])
        return cls(data["point"], values, data["error"])


def parse_targets(text: str, option: str = "--find") -> tuple[Target, ...]:
    """Targets as in `ttfp_p90<=1.0 continuity>=0.95`; UserError for what is none, or the wrong way round."""
    left = _TARGET.sub("", text).replace(",", " ").strip()
    found = _TARGET.findall(text)
    if left or not found:
        raise UserError(
            f"{option} {text!r} is no list of targets{f' ({left!r} is none)' if left and found else ''}; write for "
            f'example {option} "ttfp_p90<=1.0 continuity>=0.95".'
        )
    return tuple(_target(option, *parts) for parts in found)


def _target(option: str, name: str, op: Literal["<=", ">="], number: str, percent: str) -> Target:
    family, _, statistic = name.rpartition("_")
    metric = f"{_ALIASES[family]}_{statistic}" if family in _ALIASES else name
    try:
        meaning = definition(metric)
    except KeyError:
        known = [
            *DEFINITIONS,
            *FRAME_DEFINITIONS,
            *LIVE_DEFINITIONS,
            *OWN_DEFINITIONS,
            "ttfp_p50",
            "ttfp_p90",
            "ttfp_p95",
            "ttfp_p99",
        ]
        several = [each for each in known if each.rpartition("_")[0] == name]
        if several:
            asked = f"{op}{number}{percent}"
            raise UserError(
                f"{option} {name}{asked}: there is no {name} by itself, but {', '.join(several)}; write for example "
                f"{several[min(1, len(several) - 1)]}{asked}."
            ) from None
        raise UserError(f"{option}: unknown metric {name!r}.{nearest(name, known)}") from None
    try:
        bound = float(number) / (100 if percent else 1)
    except ValueError:
        raise UserError(
            f"{option} {name}{op}{number}: {number!r} is no number; write for example {name}{op}1."
        ) from None
    wanted = {"lower": "<=", "higher": ">="}.get(meaning.better or "", op)
    if op != wanted:
        raise UserError(
            f"{option} {name}{op}{number}: {meaning.better} is better; write {name}{wanted}{number}."
        )
    return Target(metric, op, bound)


def judged_value(metric: str, metrics: dict[str, dict[str, Any]], requests: pd.DataFrame) -> float | None:
    """A metric as a target judges it: percentiles and means take turns without a value for infinitely late ones."""
    family, _, statistic = metric.rpartition("_")
    found = metrics.get(metric)
    if found is None:
        return None
    values = _of_turns(family, statistic, requests) if found["missing"] else None
    if values is None:
        return found["value"]
    known = np.sort(values[~np.isnan(values)])
    if not values.size or statistic == "mean":
        return math.inf if values.size else None
    rank = float(statistic[1:]) / 100 * (values.size - 1)
    above = math.ceil(rank)
    return math.inf if above >= known.size else float(np.interp(rank, np.arange(known.size), known))


def _of_turns(family: str, statistic: str, requests: pd.DataFrame) -> np.ndarray | None:
    """What such a metric is over, a value for each turn that should have one; None where it is no such metric."""
    requests = counted(requests)
    distribution = DISTRIBUTIONS.get(family)
    if distribution is None or statistic not in distribution.statistics:
        known = family in DELAYS and statistic in STATISTICS
        return delays(requests, family) if known else None
    among = np.ones(len(requests), bool)
    if distribution.spoken_only:
        among &= requests["spoken"].to_numpy(bool)
    if distribution.whole_only:
        among &= requests["status"].to_numpy() != BARGED_IN
    return requests[distribution.column].to_numpy(float)[among]


def name_of(metric: str) -> str:
    """As people say it: P90 TTFP."""
    family, _, statistic = metric.rpartition("_")
    if family in DISTRIBUTIONS or (family in DELAYS and statistic in STATISTICS):
        said = {"audio_ttfp": "TTFP", "ttft": "TTFT"}.get(family, family.replace("_", " "))
        return f"{statistic.upper()} {said}"
    return metric.replace("_", " ")


def number(metric: str, value: float, unit: bool = True) -> str:
    """A value of a metric with its unit; shares in %."""
    if math.isinf(value):
        return "∞"
    meaning = definition(metric)
    if meaning.unit == "s":
        return f"{value:.3g}{' s' if unit else ''}"
    if (meaning.unit == "1" and "share" in meaning.definition) or "ratio" in metric:
        return f"{100 * value:.1f}{' %' if unit else ''}"
    return f"{value:g}{' ' + meaning.unit if unit and meaning.unit != '1' else ''}"
