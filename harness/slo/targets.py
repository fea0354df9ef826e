"""Targets on metrics, as in `ttfp_p90<=800ms continuity>=95%`: read, judged, and said in words.

What `rehearse live` and the searches share: `live --slo`, `live --find`, and `find --slo` in virtual time. Turns that
failed count as infinitely late: nothing gets faster by dropping its callers.

A bound is written with its unit, ms or s of a time and % of a share, or bare: seconds up to `MOST_BARE_S`, shares up
to 1. Tables, targets and errors say times in ms and shares in %, see `scale`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

import harness.kinds  # noqa: F401  (metrics of other packages are known once their kinds are)
from harness.metrics.metric import statistic
from harness.metrics.metric_name import parsed
from harness.metrics.replies import FAILED_SHARE
from harness.metrics.stats import least_for_quantile, least_for_share
from harness.metrics.turn_taking import DELAYS, delays
from harness.metrics.turns import DISTRIBUTIONS, columns_of
from harness.metrics.vocabulary import definition, metric_named
from harness.request_tables.steady_window import counted
from workloads.errors import UserError, printable

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]
PASS, FAIL, INCONCLUSIVE = "PASS", "FAIL", "INCONCLUSIVE"

_SIGN = {"<=": "≤", ">=": "≥"}
EXAMPLE = "ttfp_p90<=800ms continuity>=95%"
MOST_BARE_S = 10.0
"""Above it a bare number of seconds is asked back: nobody means to wait 500 s for a first sound. [chosen]"""

_NAMES = {FAILED_SHARE: "failed turns", "continuity_fixed_timeline": "cumulative continuity"}
"""Names of metrics in sentences where another word than the metric's own is the field's."""
_TARGET = re.compile(
    r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]++)\s*(<=|>=)\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)(?:\s*(ms|s|%)(?![\w%])|([A-Za-z%µ]+))?"
)


@dataclass(frozen=True)
class Target:
    """One condition on a metric, in the metric's own unit."""

    metric: str
    op: Literal["<=", ">="]
    bound: float

    def met(self, value: float | None) -> bool:
        """Return whether the value meets the target; a missing value meets nothing."""
        if value is None or math.isnan(value):
            return False
        return value <= self.bound if self.op == "<=" else value >= self.bound

    @property
    def asked(self) -> str:
        """Return the target's bound with its sign: ≤ 800 ms."""
        factor, unit = scale(self.metric)
        return f"{_SIGN[self.op]} {factor * self.bound:,.6g}{unit and f' {unit}'}"

    def __str__(self) -> str:
        """Name it as people say it: P90 TTFP ≤ 800 ms."""
        return f"{name_of(self.metric)} {self.asked}"


@dataclass(frozen=True)
class Repeat:
    """One measured run: the value of each target's metric, in their order, and the reason if it does not count."""

    point: str
    values: tuple[float | None, ...]
    error: str = ""

    def meets(self, targets: Sequence[Target]) -> bool:
        """Return whether it was measured and meets every target."""
        return not self.error and all(t.met(v) for t, v in zip(targets, self.values, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON. Infinite values, of failed turns, are written as the string "inf"."""
        values = ["inf" if v is not None and math.isinf(v) else v for v in self.values]
        return {"point": self.point, "values": values, "error": self.error}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Repeat:
        """Make a repeat of the output of `as_dict`."""
        values = tuple(None if v is None else float(v) for v in data["values"])
        return cls(data["point"], values, data["error"])


def parse_targets(text: str, option: str = "--find") -> tuple[Target, ...]:
    """Parse targets as in `ttfp_p90<=800ms continuity>=95%`. UserError for an unknown metric, the wrong direction, a
    unit that the metric does not have, or an implausible bare number."""
    left = _TARGET.sub("", text).replace(",", " ").strip()
    written = [_Written(option, *(part or "" for part in parts)) for parts in _TARGET.findall(text)]
    if left or not written:
        odd = f" ({printable(left, 80)!r} is none)" if left and written else ""
        raise UserError(
            f'{option} {printable(text, 160)!r} is not a list of targets{odd}; write for example {option} "{EXAMPLE}".'
        )
    return tuple(_target(each) for each in written)


@dataclass(frozen=True)
class _Written:
    """A target as it was written; `odd`: letters that are not a unit of ours."""

    option: str
    name: str
    op: str
    digits: str
    unit: str
    odd: str

    def __str__(self) -> str:
        return f"{self.option} {self.name}{self.op}{self.digits}{self.unit}{self.odd}"

    def like(self, bound: str) -> str:
        """Return the same target with another bound."""
        return f"{self.name}{self.op}{bound}"


def _target(written: _Written) -> Target:
    # A count depends on the length of the run.
    metric = FAILED_SHARE if written.name == "failed" else metric_named(written.name, written.option)
    meaning, bound = definition(metric), _bound(written, metric)
    wanted = {"lower": "<=", "higher": ">="}.get(meaning.better or "", written.op)
    if written.op != wanted:
        right = f"{written.name}{wanted}{written.digits}{written.unit}"
        raise UserError(f"{written}: {meaning.better} is better; write {right}.")
    return Target(metric, "<=" if wanted == "<=" else ">=", bound)


def _bound(written: _Written, metric: str) -> float:
    """Return the bound in the metric's own unit. UserError where the unit is ambiguous, or no value can meet it."""
    try:
        number = float(written.digits)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise UserError(
            f"{written}: {written.digits!r} is not a number from 0 on; write for example {written.like('1')}."
        )
    meaning = definition(metric)
    if meaning.share:
        return _share(written, number)
    if meaning.unit == "s":
        return _seconds(written, number)
    if written.unit or written.odd:
        raise UserError(
            f"{written}: {written.name} is neither a time nor a share, and has no unit; write "
            f"{written.like(written.digits)}."
        )
    return number


def _share(written: _Written, number: float) -> float:
    percent = written.unit == "%"
    if written.odd or written.unit not in ("", "%"):
        raise UserError(f"{written}: {written.name} is a share; write for example {written.like('95%')}.")
    if percent and number > 100:
        raise UserError(f"{written}: a share is 100 % at most; write for example {written.like('95%')}.")
    if not percent and number > 1:
        asked = f"{written}: {number:g} % or {number:g} times the whole? "
        if number > 100:
            raise UserError(f"{asked}A share is 100 % at most; write for example {written.like('95%')}.")
        raise UserError(f"{asked}Write {written.like(f'{number:g}%')} or {written.like(f'{number / 100:g}')}.")
    return number / 100 if percent else number


def _seconds(written: _Written, number: float) -> float:
    if written.odd or written.unit == "%":
        raise UserError(
            f"{written}: {written.name} is a time; write for example {written.like('800ms')} or {written.like('0.8s')}."
        )
    if not written.unit and number > MOST_BARE_S:
        raise UserError(
            f"{written}: {number:g} ms or {number:g} s? Write {written.like(f'{number:g}ms')} or "
            f"{written.like(f'{number:g}s')}."
        )
    return number / 1000 if written.unit == "ms" else number


def judged_value(metric: str, metrics: Mapping[str, dict[str, Any]], requests: pd.DataFrame) -> float | None:
    """Return a metric as a target judges it, None where it is missing: the value of every table, made of the turns anew
    where some lack it, as an older record may have left failed turns out."""
    measured = metrics.get(metric)
    if measured is None:
        return None
    values = turn_values(metric, requests) if measured["missing"] else None
    return measured["value"] if values is None else statistic(values, parsed(metric).statistic)[0]


def is_sampled(metric: str) -> bool:
    """Return whether it is a percentile or a mean over turns."""
    name = parsed(metric)
    return name.statistic != "" and (name.family in DISTRIBUTIONS or name.family in DELAYS)


def counts_events(metric: str) -> bool:
    """Return whether the metric is a share of turns, replies or events: independent draws, unlike time or tokens."""
    text = definition(metric).definition
    return text.startswith(("share of ", "the same share")) and not text.startswith(
        ("share of the time", "share of the user's speech")
    )


def needed(target: Target) -> int | None:
    """Return the fewest turns, replies or events that show a target to be met if all of them meet it; None: no number
    does."""
    metric, bound = target.metric, target.bound
    if metric == FAILED_SHARE:
        return 1
    if is_sampled(metric):
        if (quantile := parsed(metric).quantile) is None:
            return 2
        return least_for_quantile(float(quantile if target.op == "<=" else 1 - quantile))
    if not counts_events(metric):
        return 1
    missed = bound if target.op == "<=" else 1 - bound
    return least_for_share(missed) if missed > 0 else None


def judges_turns(target: Target) -> bool:
    """Return whether a number of turns decides the target, and not a length of time."""
    return target.metric == FAILED_SHARE or is_sampled(target.metric) or counts_events(target.metric)


def turn_values(metric: str, requests: pd.DataFrame) -> np.ndarray | None:
    """Return the values behind a percentile or mean: one for each turn that has one, infinite for a turn that failed.
    None where the metric is neither."""
    if not is_sampled(metric):
        return None
    family = parsed(metric).family
    distribution = DISTRIBUTIONS.get(family)
    if distribution is None or not distribution.whole_run:
        requests = counted(requests)
    if (DELAYS[family][0] if distribution is None else distribution.column) not in requests:
        return None
    values = delays(requests, family) if distribution is None else distribution.sample(columns_of(requests))
    return values[~np.isnan(values)]


def name_of(metric: str) -> str:
    """Return its name as people say it: P90 TTFP."""
    if metric in _NAMES:
        return _NAMES[metric]
    name = parsed(metric)
    if name.quantile is None and name.statistic != "mean":
        return metric.replace("_", " ")
    quantity = {"audio_ttfp": "TTFP", "ttft": "TTFT"}.get(name.family, name.family.replace("_", " "))
    return f"{name.statistic.replace('p', 'P')} {quantity}"


def scale(metric: str) -> tuple[float, str]:
    """Return the factor from its own unit to the unit of targets, and that unit; empty where it has none."""
    meaning = definition(metric)
    if meaning.share:
        return 100.0, "%"
    if meaning.unit == "s":
        return (1000.0, "ms") if meaning.column[0] == "ms" else (1.0, "s")
    return 1.0, "" if meaning.unit == "1" else meaning.unit


def number(metric: str, value: float, unit: bool = True) -> str:
    """Return a value of a metric with its unit."""
    if math.isinf(value):
        return "∞"
    factor, name = scale(metric)
    shown = factor * value
    text = {"%": f"{shown:.1f}".removesuffix(".0"), "ms": f"{shown:,.0f}" if shown >= 100 else f"{shown:.3g}"}
    return f"{text.get(name, f'{shown:.3g}' if name == 's' else f'{shown:g}')}{' ' + name if unit and name else ''}"
