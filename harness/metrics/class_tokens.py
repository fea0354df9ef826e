"""What the log says of each class of requests beyond the request table: every token, and whether its pool was full."""

from collections.abc import Iterable, Iterator

import pandas as pd

from harness.metrics.class_definitions import CLASS_DEFINITIONS, in_class
from harness.metrics.classes import steady
from harness.metrics.metric import Metric, statistic
from harness.metrics.requests import FAILED
from workloads.columns.classes import class_of

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

    `events` and `trace` as `harness.metrics.requests.request_table` takes them, `requests` the part of its table that
    counts.
    """
    if "request_class" not in requests or requests.empty:
        return {}
    urgent = requests.loc[requests["priority"] == requests["priority"].min()]
    first_s, last_s = steady(urgent["turn_start_s"].to_numpy(float))
    text = _of(events, requests, ("first_text", "text")).sort_values([*KEY, "t"], kind="stable")
    # What follows in the table is of the same request: its time since the one before is a gap.
    text["gap_s"] = text["t"].diff().where(text["kind"] != "first_text")
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


def _of(events: pd.DataFrame, requests: pd.DataFrame, kinds: tuple[str, ...]) -> pd.DataFrame:
    """The events of these kinds that are of the requests, with class and status."""
    found = events.loc[events["kind"].isin(kinds).to_numpy(), [*KEY, "t", "kind", "value"]]
    return found.merge(requests[[*KEY, "request_class", "status"]], on=KEY)
