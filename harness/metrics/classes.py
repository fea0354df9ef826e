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
from harness.metrics.metric import Measured, Metric, Result, measured_as, metrics_of, statistic
from harness.metrics.metric_name import in_class, parsed
from harness.request_tables.request_table import ABORTED, BARGED_IN, COMPLETED, FAILED, UNFINISHED
from workloads.columns.classes import class_of

KEY = ["session", "turn"]
_DRY = ("backlog_dry",)
"""Kind of event of a backlog without a next session."""
READ = ("first_text", "text", *_DRY)
"""The kinds of events that metrics of classes are made of."""

Turns = Mapping[str, np.ndarray]
"""Columns of a request table with classes as arrays, one value per turn; floats but for status and class."""


def summarise_classes(turns: Turns, run_end_s: float) -> dict[str, Metric]:
    """Return the metrics of every class that its requests give, by name; the most urgent class first. Empty without
    classes. `run_end_s`: end of the run after its drain."""
    if "request_class" not in turns:
        return {}
    names = turns["request_class"]
    urgency = {name: turns["priority"][names == name].min() for name in np.unique(names)}
    measured: dict[str, Result] = {}
    for name in sorted(urgency, key=lambda name: (urgency[name], name)):
        rows = names == name
        class_turns = {column: values[rows] for column, values in turns.items()}
        results = _latencies(class_turns) | _deadlines(class_turns) | _rates(class_turns, run_end_s)
        n = int(rows.sum())
        for status in (COMPLETED, ABORTED):
            results[status] = (float((class_turns["status"] == status).sum()), n, 0)
        results["preemptions"] = statistic(class_turns["preemptions"], "sum")
        results["priority"] = (float(urgency[name]), n, 0)
        measured |= {in_class(str(name), metric): value for metric, value in results.items()}
    return _named(measured)


def _named(measured: Mapping[str, Result]) -> dict[str, Metric]:
    definitions = {
        in_class(name, metric): meaning
        for name in dict.fromkeys(parsed(each).request_class for each in measured)
        for metric, meaning in CLASS_DEFINITIONS.items()
        if in_class(name, measured_as(metric, meaning)) in measured
    }
    return metrics_of(measured, definitions, [dict])


def of_log(
    events: pd.DataFrame | Iterable[pd.DataFrame], trace: pd.DataFrame, requests: pd.DataFrame
) -> dict[str, Metric]:
    """Return the metrics of every class that the log gives, by name; empty for a trace without classes.

    `events` and `trace` as for `harness.request_tables.request_table`, `requests` the counting part of its table.
    """
    if "request_class" not in requests or requests.empty:
        return {}
    pieces = [events] if isinstance(events, pd.DataFrame) else events
    events = pd.concat(
        piece.loc[piece["kind"].isin(READ).to_numpy(), [*KEY, "t", "kind", "value"]] for piece in pieces
    )
    urgent = requests.loc[requests["priority"] == requests["priority"].min()]
    first_s, last_s = steady(urgent["turn_start_s"].to_numpy(float))
    text = _texts(events, requests)
    # The session that it names may be none that counts.
    planned = trace[KEY].assign(request_class=class_of({str(name): trace[name] for name in trace}), status="")
    in_backlog = set(planned.loc[trace["backlog"].notna().to_numpy(), "request_class"])
    dry = _of(events, planned, _DRY)
    turns = (
        requests[[*KEY, "request_class", "status"]]
        .merge(trace[[*KEY, "input_tokens"]], on=KEY, how="left")
        .merge(text.loc[text["kind"] == "first_text", [*KEY, "t"]], on=KEY, how="left")
        .rename(columns={"t": "read_s"})
    )
    measured: dict[str, Result] = {}
    for name in turns["request_class"].unique():
        rows, texts = (table.loc[table["request_class"] == name] for table in (turns, text))
        useful = texts.loc[texts["t"].between(first_s, last_s) & (texts["status"] != FAILED), "value"].sum()
        read = rows["read_s"].between(first_s, last_s) & (rows["status"] != FAILED)
        tokens = float(useful + rows.loc[read, "input_tokens"].sum())
        results: dict[str, Result] = {
            "itl": texts["gap_s"].dropna().to_numpy(),
            "tps": (tokens / (last_s - first_s) if last_s > first_s else None, len(rows), 0),
            "backlog_dry_s": (None, 0, 0),
        }
        if name in in_backlog:
            empty_s = dry.loc[dry["request_class"] == name, "t"].clip(first_s, last_s).to_numpy(float)
            results["backlog_dry_s"] = (last_s - float(empty_s.min(initial=last_s)), len(rows), 0)
        measured |= {in_class(name, metric): value for metric, value in results.items()}
    return _named(measured)


def _latencies(turns: Turns) -> dict[str, np.ndarray]:
    columns = {"ttft": "ttft_s", "tbt": "tbt_mean_s"}
    return {name: infinite_where_failed(turns["status"], turns[column]) for name, column in columns.items()}


def _deadlines(turns: Turns) -> dict[str, Measured]:
    ended = _ended(turns)
    wanted = turns["status"] != ABORTED
    ttft_due, tbt_due = (wanted & ~np.isnan(turns[name]) for name in ("ttft_deadline_s", "tbt_deadline_s"))
    return {
        "ttft_in_deadline": _share(
            _in_time(turns) & (turns["status"] != FAILED), ttft_due, np.isnan(turns["ttft_s"])
        ),
        "tbt_in_deadline": _share(ended & ~_late(turns, "tbt_max_s"), tbt_due, ~ended),
        "tbt_p99_in_deadline": _share(ended & ~_late(turns, "tbt_p99_s"), tbt_due, ~ended),
        "deadlines_met": _share(_met(turns), ttft_due | tbt_due, ~ended),
    }


def span(turns: Turns, run_end_s: float) -> tuple[float, float]:
    """Return the first start of one of the turns and the last completion, s; the end of the run where one never
    ended."""
    last_s = run_end_s
    if not np.isin(turns["status"], [UNFINISHED, ABORTED]).any():
        # Failed requests have no completion, but waited at least to the end of their user's turn.
        last_s = float(
            np.nanmax(np.concatenate([turns["completion_s"], turns["turn_end_s"], turns["turn_start_s"]]))
        )
    return float(turns["turn_start_s"].min()), last_s


def steady(starts_s: np.ndarray) -> tuple[float, float]:
    """Return the window, s, in which tokens per second are those of a running service: from when a tenth of the
    requests has come, `starts_s` their starts, to the last arrival.

    Before it no request is half done; after it the machine has ever fewer requests to serve, for longer if it is
    slower.
    """
    ordered = np.sort(starts_s)
    return float(ordered[ordered.size // 10]), float(ordered[-1])


def _rates(turns: Turns, run_end_s: float) -> dict[str, Measured]:
    first_s, last_s = span(turns, run_end_s)
    span_s = last_s - first_s
    tokens, n, missing = statistic(turns["generated_entry"], "sum")
    good = float(_met(turns).sum())
    return {
        "goodput_rps": (good / span_s if span_s > 0 else None, turns["status"].size, 0),
        "output_tps": (tokens / span_s if tokens is not None and span_s > 0 else None, n, missing),
    }


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


def tbt_attainment(
    events: pd.DataFrame, requests: pd.DataFrame, request_class: str, tbt_s: float
) -> float | None:
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
    "over the class's started requests with such a deadline, failed and unfinished ones as missed, without requests "
    "that were aborted with their backlog"
)
_SPAN = (
    "per second from the class's first start of a request to its last completion or end of a user's turn; to the end "
    "of the run when one never ended"
)

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
        f"{_SPAN}; n is the class's started requests", "higher", heading="goodput"),
    "output_tps": Definition(
        "1/s", "text tokens generated for the class's requests",
        f"{_SPAN}; n is the requests with a known value", "higher", heading="output", shown="tokens/s", digits=1),
    "tps": Definition(
        "1/s", "tokens of prompts and replies processed, each once: a reply's as they come to the client, a prompt's "
        "with the first of them; nothing of failed requests, of what was computed again or of earlier turns",
        "per second in the steady state: from when a tenth of the requests of the most urgent class has come to the "
        "last arrival of one, the same for every class", "higher"),
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
