"""Request classes: name, priority, deadlines, and membership in a backlog.

The columns are younger than the first traces and most leave them empty; an empty class is "" here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

DEADLINES = ("ttft_deadline_s", "tbt_deadline_s")
DEFAULT_CLASS = "default"
"""Class of turns without one, in a trace in which others have a class or a deadline."""
MOST_PRIORITY = 1000
"""Priorities lie between this and its negative: wide enough for any ladder of classes, exact in a float."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class Slo:
    """The service promised to one request. `request_class`: its class, None where a trace has one only. `priority`: as
    vLLM's, lower is served first. `ttft_deadline_s`: time from the user's act that asks for it, as scheduled, until its
    first token is due. `tbt_deadline_s`: the same from each token to the next one. None: never due."""

    request_class: str | None = None
    priority: int = 0
    ttft_deadline_s: float | None = None
    tbt_deadline_s: float | None = None

    def first_due_s(self, act_s: float) -> float | None:
        """Return the due time of the first token that a user requests by an act at `act_s`, on the same clock.
        Policies order by it, and metrics check whether the client had that token by then."""
        return None if self.ttft_deadline_s is None else act_s + self.ttft_deadline_s


@dataclass(frozen=True, slots=True)
class RequestClass:
    """The class of a turn's request, and how urgent it is.

    request_class     name of the class; None: the trace has one class only
    priority          as in vLLM: the lower is served first, -1000 to 1000; None: 0
    ttft_deadline_s   the first token should come within this of the turn's scheduled end; None: no deadline
    tbt_deadline_s    no time between two tokens should be longer; None: no deadline
    backlog           this many sessions of its class and number are under way at once, if they have arrived:
                      as one ends, the next begins; all end with the last session of no backlog. None: of no backlog
    """

    request_class: str | None = None
    priority: int | None = None
    ttft_deadline_s: float | None = None
    tbt_deadline_s: float | None = None
    backlog: int | None = None

    @property
    def slo(self) -> Slo:
        return Slo(self.request_class, self.priority or 0, self.ttft_deadline_s, self.tbt_deadline_s)


NO_CLASS = RequestClass()
CLASS_COLUMNS = tuple(field.name for field in fields(RequestClass))

# Column, which turns break the rule, and the rule.
Rule = tuple[str, np.ndarray, str]


def class_of(columns: Mapping[str, Any]) -> np.ndarray | None:
    """Each turn's class by name; None for a trace (or a table of one) that has neither classes nor deadlines."""
    if not {"request_class", *DEADLINES} <= set(columns):
        return None
    names = np.asarray(columns["request_class"]).astype(str)
    due = any(bool((~np.isnan(np.asarray(columns[name], float))).any()) for name in DEADLINES)
    named = names != ""
    return np.where(named, names, DEFAULT_CLASS) if due or named.any() else None


def in_order(columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Class -> which turns are of it, the most urgent class first; empty where `class_of` is None."""
    names = class_of(columns)
    if names is None:
        return {}
    priority = np.nan_to_num(np.asarray(columns["priority"], float))
    members = {str(name): names == name for name in np.unique(names)}
    return dict(sorted(members.items(), key=lambda item: (priority[item[1]].min(), item[0])))


def as_names(values: Any) -> np.ndarray:
    """Class names as str; None, NaN and a missing column are ""."""
    array = np.asarray("" if values is None else values)
    if array.dtype.kind == "U":
        return array
    # NaN is what other programs leave in an empty cell; it differs from itself.
    plain = ["" if value is None or value != value else str(value) for value in array.ravel().tolist()]
    return np.array(plain, str).reshape(array.shape)


def rules(columns: Mapping[str, np.ndarray]) -> list[Rule]:
    """Return the rules of the columns, with the turns that break each. At most 32 characters keep tables readable."""
    names, priority = columns["request_class"], columns["priority"]
    named = names != ""
    if named.any():
        named &= ~np.isin(names, [name for name in np.unique(names) if _NAME.fullmatch(name)])
    odd = (np.abs(priority) > MOST_PRIORITY) | (~np.isnan(priority) & (priority != np.floor(priority)))
    backlog = columns["backlog"]
    return [
        ("request_class", named, "must be a-z, 0-9, _ and -, a letter first, at most 32 characters"),
        ("priority", odd, f"must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}"),
        *((name, columns[name] <= 0, "must be more than 0 s") for name in DEADLINES),
        (
            "backlog",
            (backlog < 1) | (~np.isnan(backlog) & (backlog != np.floor(backlog))),
            "must be a whole number above 0",
        ),
    ]
