"""Metrics of each class of requests: latencies, deadlines met, and what was done for it per second.

Metric M of class C is called `C.M`, such as `online.ttft_p90` (`harness.metrics.metric_name`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from harness.metrics.definitions import PREEMPTIONS, TBT, TTFT, Definition, share_of, statistics
from harness.metrics.failed_turns import infinite_where_failed
from harness.metrics.metric import Measured, Metric, Result, by_class, statistic
from harness.metrics.metric_name import in_class
from harness.metrics.rates import RATE, Span, is_rate, within
from harness.request_tables.request_table import ABORTED, BARGED_IN, COMPLETED, FAILED
from harness.request_tables.steady_window import counted
from workloads.columns.classes import class_of

KEY = ["session", "turn"]
_DRY = ("backlog_dry",)
"""Kind of event of a backlog without a next session."""
READ = ("first_text", "text", *_DRY)
"""The kinds of events that metrics of classes are made of."""

Turns = Mapping[str, np.ndarray]
"""Columns of a request table with classes as arrays, one value per turn; floats but for status and class."""


def summarise_classes(turns: Turns, every: Turns, span: tuple[float, float] | None) -> dict[str, Metric]:
    """Return the metrics of every class that its requests give, by name; the most urgent class first. Empty without
    classes. `turns`: those of the steady window; `every`: those of the whole run; `span`: the time that rates are over,
    s, None where it has no length."""
    if "request_class" not in every:
        return {}
    names = every["request_class"]
    urgency = {name: every["priority"][names == name].min() for name in np.unique(names)}
    measured: dict[str, Result] = {}
    for name in sorted(urgency, key=lambda name: (urgency[name], name)):
        counting, whole = (
            {column: values[columns["request_class"] == name] for column, values in columns.items()}
            for columns in (turns, every)
        )
        results = _latencies(counting) | _deadlines(counting) | {"goodput_rps": _goodput(whole, span)}
        n = whole["status"].size
        for status in (COMPLETED, ABORTED):
            results[status] = (float((whole["status"] == status).sum()), n, 0)
        results["preemptions"] = statistic(whole["preemptions"], "sum")
        results["priority"] = (float(urgency[name]), n, 0)
        measured |= {in_class(str(name), metric): value for metric, value in results.items()}
    return by_class(measured, CLASS_DEFINITIONS)


def of_log(
    events: pd.DataFrame | Iterable[pd.DataFrame], trace: pd.DataFrame, requests: pd.DataFrame, span: Span | None
) -> dict[str, Metric]:
    """Return the metrics of every class that the log gives, by name; empty for a trace without classes.

    `events` and `trace` as for `harness.request_tables.request_table`, `requests` its table, `span` the time that rates
    are over, s.
    """
    if "request_class" not in requests or requests.empty:
        return {}
    pieces = [events] if isinstance(events, pd.DataFrame) else events
    events = pd.concat(piece.loc[piece["kind"].isin(READ).to_numpy(), [*KEY, "t", "kind", "value"]] for piece in pieces)
    text = _texts(events, requests)
    # The session that it names may be none that began.
    planned = trace[KEY].assign(request_class=class_of({str(name): trace[name] for name in trace}), status="")
    in_backlog = set(planned.loc[trace["backlog"].notna().to_numpy(), "request_class"])
    dry = _of(events, planned, _DRY)
    first_s, last_s = span or (0.0, 0.0)
    served = text.loc[text["t"].between(first_s, last_s, inclusive="right") & (text["status"] != FAILED)]
    prompts = served.loc[served["kind"] == "first_text"].merge(trace[[*KEY, "input_tokens"]], on=KEY)
    steady = counted(requests)[KEY].assign(steady=True)
    measured: dict[str, Result] = {}
    for name in requests["request_class"].unique():
        texts, replies, read = (table.loc[table["request_class"] == name] for table in (text, served, prompts))
        gaps = texts.loc[texts["gap_s"].notna()].merge(steady, on=KEY)
        n = int((requests["request_class"] == name).sum())
        output = float(replies["value"].sum())
        seconds = last_s - first_s
        results: dict[str, Result] = {
            "itl": gaps["gap_s"].to_numpy(),
            "tps": ((output + float(read["input_tokens"].sum())) / seconds if seconds else None, n, 0),
            "output_tps": (output / seconds if seconds else None, n, 0),
            "backlog_dry_s": (None, 0, 0),
        }
        if name in in_backlog and seconds:
            empty_s = dry.loc[dry["request_class"] == name, "t"].clip(first_s, last_s).to_numpy(float)
            results["backlog_dry_s"] = (last_s - float(empty_s.min(initial=last_s)), n, 0)
        measured |= {in_class(name, metric): value for metric, value in results.items()}
    return by_class(measured, CLASS_DEFINITIONS)


def _latencies(turns: Turns) -> dict[str, np.ndarray]:
    columns = {"ttft": "ttft_s", "tbt": "tbt_mean_s"}
    return {name: infinite_where_failed(turns["status"], turns[column]) for name, column in columns.items()}


def _deadlines(turns: Turns) -> dict[str, Measured]:
    ended = _ended(turns)
    wanted = turns["status"] != ABORTED
    ttft_due, tbt_due = (wanted & ~np.isnan(turns[name]) for name in ("ttft_deadline_s", "tbt_deadline_s"))
    return {
        "ttft_in_deadline": _share(_in_time(turns) & (turns["status"] != FAILED), ttft_due, np.isnan(turns["ttft_s"])),
        "tbt_in_deadline": _share(ended & ~_late(turns, "tbt_max_s"), tbt_due, ~ended),
        "tbt_p99_in_deadline": _share(ended & ~_late(turns, "tbt_p99_s"), tbt_due, ~ended),
        "deadlines_met": _share(_met(turns), ttft_due | tbt_due, ~ended),
    }


def _goodput(turns: Turns, span: Span | None) -> Measured:
    inside = within(turns["completion_s"], span) & _ended(turns)
    good = float((inside & _met(turns)).sum())
    rate = good / (span[1] - span[0]) if span and is_rate(turns, inside, span) else None
    return rate, int(inside.sum()), 0


def _ended(turns: Turns) -> np.ndarray:
    return np.isin(turns["status"], [COMPLETED, BARGED_IN])


def _in_time(turns: Turns) -> np.ndarray:
    """Return which turns met the first deadline: `Slo.first_due_s` of a turn's scheduled end, from which ttft_s counts.
    Rounded to the microsecond, as times of a trace are: a difference of two times has an error in its last bits."""
    return np.round(turns["ttft_s"], 6) <= turns["ttft_deadline_s"]


def _late(turns: Turns, column: str) -> np.ndarray:
    return np.round(turns[column], 6) > turns["tbt_deadline_s"]


def _met(turns: Turns) -> np.ndarray:
    return _ended(turns) & (np.isnan(turns["ttft_deadline_s"]) | _in_time(turns)) & ~_late(turns, "tbt_max_s")


def ttft_attainment(requests: pd.DataFrame, request_class: str, ttft_s: float) -> float | None:
    """Return the share of a class's requests whose TTFT is within a limit that is known only afterwards, such as a
    multiple of another run's P99; None where there are none.

    `requests`: the request table of a record. Failed and unfinished requests missed it; those aborted with their
    backlog do not count.
    """
    rows = requests.loc[requests["request_class"].eq(request_class) & requests["status"].ne(ABORTED)]
    if rows.empty:
        return None
    turns = {"ttft_s": rows["ttft_s"].to_numpy(float), "ttft_deadline_s": np.full(len(rows), ttft_s)}
    return float((_ended({"status": rows["status"].to_numpy()}) & _in_time(turns)).mean())


def tbt_attainment(events: pd.DataFrame, requests: pd.DataFrame, request_class: str, tbt_s: float) -> float | None:
    """Return the share of all times between tokens of a class's requests within such a limit; None where there are
    none. `events`: those of the record, of the kinds `first_text` and `text` at least."""
    text = _texts(events, requests)
    gaps_s = text.loc[text["request_class"].eq(request_class), "gap_s"].dropna().to_numpy(float)
    return float((np.round(gaps_s, 6) <= tbt_s).mean()) if gaps_s.size else None


def _share(met: np.ndarray, due: np.ndarray, unknown: np.ndarray) -> Measured:
    n = int(due.sum())
    return (float(met[due].mean()) if n else None, n, int(unknown[due].sum()))


def _texts(events: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """Return the tokens of the requests in their order; `gap_s`: the time since the previous one, NaN for the first."""
    text = _of(events, requests, ("first_text", "text")).sort_values([*KEY, "t"], kind="stable")
    # What follows in the table is of the same request.
    text["gap_s"] = text["t"].diff().where(text["kind"] != "first_text")
    return text


def _of(events: pd.DataFrame, requests: pd.DataFrame, kinds: tuple[str, ...]) -> pd.DataFrame:
    rows = events.loc[events["kind"].isin(kinds).to_numpy(), [*KEY, "t", "kind", "value"]]
    return rows.merge(requests[[*KEY, "request_class", "status"]], on=KEY)


_DUE = (
    "over the class's started requests with such a deadline, failed, unfinished and rejected ones as missed, without "
    "requests that were aborted with their backlog"
)
_SPAN = "per second of the steady window, the same for every class"

CLASS_DEFINITIONS: dict[str, Definition] = {
    **statistics(
        ("p50", "p90", "p99", "max"), {"ttft": replace(TTFT, definition=f"over requests: {TTFT.definition}")}),
    **statistics(("p50", "p99"), {
        "tbt": replace(TBT, definition=f"over requests: {TBT.definition}"),
        "itl": Definition(
            "s", "over all times between two text messages, those of all requests together: vLLM's inter-token "
            "latency, ConServe's TBT; tbt is over requests, each with its mean",
            "from text message to text message, at the client; n is the times", "lower", heading="ITL"),
    }),
    "ttft_in_deadline": share_of(
        "share of requests whose first text token came within their ttft_deadline_s; missing counts requests "
        "without one, which are also in n", _DUE, "higher",
        heading="TTFT", shown="% in time"),
    "tbt_in_deadline": share_of(
        "share of requests that ended with no time between two text messages above their tbt_deadline_s; missing "
        "counts those, also in n, that never ended", _DUE, "higher", heading="TBT", shown="% in time"),
    "tbt_p99_in_deadline": share_of(
        "the same share when 1 % of the times between a reply's tokens may be longer; tokens of one message come "
        "together", _DUE, "higher", heading="TBT P99", shown="% in time"),
    "deadlines_met": share_of(
        "share of requests that ended and met every deadline they have; missing counts those, also in n, that "
        "never ended",
        "over the class's started requests with a deadline", "higher", heading="all met"),
    "goodput_rps": Definition(
        "1/s", "requests that ended and met every deadline they have; a batch class may have none",
        f"{_SPAN}; n is the class's completions inside it; {RATE}", "higher", heading="goodput"),
    "output_tps": Definition(
        "1/s", "text tokens of the class's replies as they come to the client, without those of failed requests",
        f"{_SPAN}; n is the class's started requests", "higher", heading="output", shown="tokens/s", digits=1),
    "tps": Definition(
        "1/s", "tokens of prompts and replies processed, each once: a reply's as they come to the client, a prompt's "
        "with the first of them; nothing of failed requests, of what was computed again or of earlier turns",
        _SPAN, "higher"),
    "backlog_dry_s": Definition(
        "s", "time for which the class's backlog was not full, as the trace held no more for it: above 0 the server "
        "had too little to do",
        "within the same window; missing where the class has no backlog", "lower"),
    "completed": Definition(
        "1", "requests whose reply ended by itself", "over the class's started requests", "higher",
        shown="requests", digits=0),
    "aborted": Definition(
        "1", "requests that were under way when their backlog ended, with the last user; they are no failures and miss "
        "no deadline",
        "over the class's started requests", None),
    "preemptions": PREEMPTIONS,
    "priority": Definition(
        "1", "lowest priority of its requests, the most urgent; the lower is served first", "as the trace says", None),
}  # fmt: skip
"""The metrics of every class, by names that have no class yet."""
