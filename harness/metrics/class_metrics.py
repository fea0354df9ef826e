"""The numbers of each class of requests: latencies, deadlines met, and what was done for it per second."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from harness.metrics.class_definitions import CLASS_DEFINITIONS, in_class
from harness.metrics.metric import Measured, Metric, statistic
from harness.metrics.request_table import ABORTED, BARGED_IN, COMPLETED, FAILED, UNFINISHED
from workloads.columns.classes import class_of

Turns = Mapping[str, np.ndarray]
"""Columns of a request table with classes as arrays, one value per turn; floats but for status and class."""


def by_class(turns: Turns, warm: np.ndarray, run_end_s: float) -> dict[str, Measured]:
    """The metrics of every class, by name; the most urgent class first.

    `warm`: the turns that count for latencies; `run_end_s`: end of the run after its drain.
    """
    names = turns["request_class"]
    urgency = {name: turns["priority"][names == name].min() for name in np.unique(names)}
    measured = {}
    for name in sorted(urgency, key=lambda name: (urgency[name], name)):
        rows = names == name
        own = {column: values[rows] for column, values in turns.items()}
        found = _latencies(own, warm[rows]) | _deadlines(own) | _rates(own, run_end_s)
        n = int(rows.sum())
        for status in (COMPLETED, ABORTED):
            found[status] = (float((own["status"] == status).sum()), n, 0)
        found["preemptions"] = statistic(own["preemptions"], "sum")
        found["priority"] = (float(urgency[name]), n, 0)
        measured |= {in_class(str(name), metric): value for metric, value in found.items()}
    return measured


def _latencies(turns: Turns, warm: np.ndarray) -> dict[str, Measured]:
    columns = {"ttft": ("ttft_s", ("p50", "p90", "p99", "max")), "tbt": ("tbt_mean_s", ("p50", "p99"))}
    return {
        f"{name}_{each}": statistic(turns[column][warm], each)
        for name, (column, statistics) in columns.items()
        for each in statistics
    }


def _deadlines(turns: Turns) -> dict[str, Measured]:
    ended = _ended(turns)
    wanted = turns["status"] != ABORTED
    ttft_due, tbt_due = (wanted & ~np.isnan(turns[name]) for name in ("ttft_deadline_s", "tbt_deadline_s"))
    return {
        "ttft_in_deadline": _share(_in_time(turns), ttft_due, np.isnan(turns["ttft_s"])),
        "tbt_in_deadline": _share(ended & ~_late(turns, "tbt_max_s"), tbt_due, ~ended),
        "tbt_p99_in_deadline": _share(ended & ~_late(turns, "tbt_p99_s"), tbt_due, ~ended),
        "deadlines_met": _share(_met(turns), ttft_due | tbt_due, ~ended),
    }


def span(turns: Turns, run_end_s: float) -> tuple[float, float]:
    """First start of one of the turns and last completion, s; the end of the run where one never ended."""
    last_s = run_end_s
    if not np.isin(turns["status"], [UNFINISHED, ABORTED]).any():
        # Failed requests have no completion, but waited at least to the end of their user's turn.
        last_s = float(
            np.nanmax(np.concatenate([turns["completion_s"], turns["turn_end_s"], turns["turn_start_s"]]))
        )
    return float(turns["turn_start_s"].min()), last_s


def steady(starts_s: np.ndarray) -> tuple[float, float]:
    """Between which times what is processed per second is that of a service under way, s: from when a tenth of the
    requests has come, `starts_s` their starts, to the last arrival. Before it nothing is half done yet; after it the
    machine has ever fewer of them to serve, the longer the slower it is."""
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
    """By `Slo.first_due_s` of a turn's scheduled end, from which ttft_s counts. To the microsecond, as times of a trace
    are: a difference of two times has an error in its last bits."""
    return np.round(turns["ttft_s"], 6) <= turns["ttft_deadline_s"]


def _late(turns: Turns, column: str) -> np.ndarray:
    return np.round(turns[column], 6) > turns["tbt_deadline_s"]


def _met(turns: Turns) -> np.ndarray:
    """Which requests ended and met what deadlines they have."""
    return _ended(turns) & (np.isnan(turns["ttft_deadline_s"]) | _in_time(turns)) & ~_late(turns, "tbt_max_s")


def ttft_attainment(requests: pd.DataFrame, request_class: str, ttft_s: float) -> float | None:
    """The share of a class's requests whose TTFT keeps a limit that is known only afterwards, such as a multiple of
    another run's P99; None where there are none.

    `requests`: the request table of a record. Failed and unfinished requests missed it; those aborted with their pool
    do not count.
    """
    own = requests.loc[requests["request_class"].eq(request_class) & requests["status"].ne(ABORTED)]
    if own.empty:
        return None
    turns = {"ttft_s": own["ttft_s"].to_numpy(float), "ttft_deadline_s": np.full(len(own), ttft_s)}
    return float((_ended({"status": own["status"].to_numpy()}) & _in_time(turns)).mean())


def tbt_attainment(
    events: pd.DataFrame, requests: pd.DataFrame, request_class: str, tbt_s: float
) -> float | None:
    """The share of all times between tokens of a class's requests that keep such a limit; None where there are none.
    `events`: those of the record, of the kinds `first_text` and `text` at least."""
    text = _texts(events, requests)
    gaps_s = text.loc[text["request_class"].eq(request_class), "gap_s"].dropna().to_numpy(float)
    return float((np.round(gaps_s, 6) <= tbt_s).mean()) if gaps_s.size else None


def _share(met: np.ndarray, due: np.ndarray, unknown: np.ndarray) -> Measured:
    n = int(due.sum())
    return (float(met[due].mean()) if n else None, n, int(unknown[due].sum()))


KEY = ["session", "turn"]


READ = ("first_text", "text", "pool_dry")
"""The kinds of events that metrics of classes are made of."""


def passing(
    events: pd.DataFrame | Iterable[pd.DataFrame], trace: pd.DataFrame, read: list[pd.DataFrame]
) -> Iterator[pd.DataFrame]:
    """The events, whole or in pieces, for somebody else; of each piece what `of_log` reads is left in `read`: of a
    trace without classes nothing."""
    kinds = READ if class_of({str(name): trace[name] for name in trace}) is not None else ()
    for piece in [events] if isinstance(events, pd.DataFrame) else events:
        read.append(piece.loc[piece["kind"].isin(kinds).to_numpy(), [*KEY, "t", "kind", "value"]])
        yield piece


def of_log(events: pd.DataFrame, trace: pd.DataFrame, requests: pd.DataFrame) -> dict[str, Metric]:
    """The metrics of every class, by name; empty for a trace without classes.

    `events` and `trace` as `harness.metrics.request_table` takes them, `requests` the part of its table that counts.
    """
    if "request_class" not in requests or requests.empty:
        return {}
    urgent = requests.loc[requests["priority"] == requests["priority"].min()]
    first_s, last_s = steady(urgent["turn_start_s"].to_numpy(float))
    text = _texts(events, requests)
    # The session that it names may be none that counts.
    planned = trace[KEY].assign(request_class=class_of({str(name): trace[name] for name in trace}), status="")
    pooled = set(planned.loc[trace["pool"].notna().to_numpy(), "request_class"])
    dry = _of(events, planned, ("pool_dry",))
    told = (
        requests[[*KEY, "request_class", "status"]]
        .merge(trace[[*KEY, "input_tokens"]], on=KEY, how="left")
        .merge(text.loc[text["kind"] == "first_text", [*KEY, "t"]], on=KEY, how="left")
        .rename(columns={"t": "read_s"})
    )
    measured: dict[str, Metric] = {}
    for name in told["request_class"].unique():
        own, said = (table.loc[table["request_class"] == name] for table in (told, text))
        useful = said.loc[said["t"].between(first_s, last_s) & (said["status"] != FAILED), "value"].sum()
        read = own["read_s"].between(first_s, last_s) & (own["status"] != FAILED)
        tokens = float(useful + own.loc[read, "input_tokens"].sum())
        known = {
            **{f"itl_{p}": statistic(said["gap_s"].dropna().to_numpy(), p) for p in ("p50", "p99")},
            "tps": (tokens / (last_s - first_s) if last_s > first_s else None, len(own), 0),
            "pool_dry_s": (None, 0, 0),
        }
        if name in pooled:
            empty_s = dry.loc[dry["request_class"] == name, "t"].clip(first_s, last_s).to_numpy(float)
            known["pool_dry_s"] = (last_s - float(empty_s.min(initial=last_s)), len(own), 0)
        for metric, (value, n, missing) in known.items():
            measured[in_class(name, metric)] = Metric(value, CLASS_DEFINITIONS[metric].unit, n, missing)
    return measured


def _texts(events: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """The tokens of the requests in their order; `gap_s`: the time since the one before, NaN of a first one."""
    text = _of(events, requests, ("first_text", "text")).sort_values([*KEY, "t"], kind="stable")
    # What follows in the table is of the same request.
    text["gap_s"] = text["t"].diff().where(text["kind"] != "first_text")
    return text


def _of(events: pd.DataFrame, requests: pd.DataFrame, kinds: tuple[str, ...]) -> pd.DataFrame:
    """The events of these kinds that are of the requests, with class and status."""
    found = events.loc[events["kind"].isin(kinds).to_numpy(), [*KEY, "t", "kind", "value"]]
    return found.merge(requests[[*KEY, "request_class", "status"]], on=KEY)
