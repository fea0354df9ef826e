"""A server's own latencies and the client's for the same requests, as a table: TTFT, and the time between tokens, per
token and as a mean per reply.

A server counts from when it has read and tokenised a request; the client from its send, because its send delay is its
own. The difference is the HTTP server, the socket and the client. Spoken turns have no TTFT to compare: vLLM counts
one from each piece of audio, a user from the end of all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from harness.metrics.scraped_histogram import observed
from harness.request_tables.request_table import COMPLETED
from reports.live.live_record import loads, one_ms
from reports.runs.measured import Run
from reports.runs.part import Section
from reports.tables.plain_tables import table_of_units

HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds", "rehearsal_time_to_first_token_seconds"),
    "itl": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "rehearsal_inter_token_latency_seconds",
    ),
    "tpot": ("vllm:request_time_per_output_token_seconds",),
}
"""Names of each histogram on the servers that have it: vLLM 0.32, 0.10 (`v1/metrics/loggers.py`), and ours."""


@dataclass(frozen=True)
class Both:
    """One latency (s) of all requests of a run, at the client and at the server. `within`: the server's median is
    known no better than to this bucket of its histogram."""

    name: str
    client_n: int
    client_p50_s: float
    client_mean_s: float
    server_n: int
    server_p50_s: float
    server_mean_s: float | None
    within: tuple[float, float]


def both_sides(scrape: pd.DataFrame, requests: pd.DataFrame, events: pd.DataFrame) -> list[Both]:
    """Return TTFT and time between tokens, as far as the server reports them and there were completed text replies.

    `events`: columns t, kind, session, turn, stage, value of the log. The whole run counts at both ends, as a
    server's histogram does not know when the steady window is.
    """
    comparisons = []
    client = {"ttft": _first_tokens(requests), "itl": _gaps(events), "tpot": _per_reply(requests, events)}
    for name, values in client.items():
        server = next(filter(None, (observed(scrape, histogram) for histogram in HISTOGRAMS[name])), None)
        if server is None or not values.size:
            continue
        median, within = server.quantile(0.5), server.bucket(0.5)
        if median is not None and within is not None:
            measured = values.size, float(np.median(values)), float(values.mean())
            comparisons.append(Both(name, *measured, server.n, median, server.mean, within))
    return comparisons


def _first_tokens(requests: pd.DataFrame) -> np.ndarray:
    """Return the times from the send to the first token of typed turns, s."""
    typed = requests["turn_end_s"] == requests["turn_start_s"]
    done = requests.loc[typed & (requests["status"] == COMPLETED)]
    values = done["ttft_s"].to_numpy(float) - done["send_delay_s"].fillna(0.0).to_numpy(float)
    return values[~np.isnan(values)]


def _gaps(events: pd.DataFrame) -> np.ndarray:
    """Between the messages with text of each turn, s."""
    times = _text_events(events).sort_values(["session", "turn", "t"], kind="stable")
    return times.groupby(["session", "turn"])["t"].diff().dropna().to_numpy(float)


def _per_reply(requests: pd.DataFrame, events: pd.DataFrame) -> np.ndarray:
    """Return for each reply the time from its first text to its last over the tokens after the first, by the server's
    count, s."""
    spans = _text_events(events).groupby(["session", "turn"])["t"].agg(["min", "max"])
    done = requests.loc[requests["status"] == COMPLETED].join(spans, on=["session", "turn"])
    tokens = done["generated_entry"].to_numpy(float, na_value=np.nan)
    values = (done["max"] - done["min"]).to_numpy(float)[tokens > 1] / (tokens[tokens > 1] - 1)
    return values[~np.isnan(values)]


def _text_events(events: pd.DataFrame) -> pd.DataFrame:
    kinds = events["kind"].astype(str)
    return events.loc[kinds.isin(["first_text", "text"]), ["session", "turn", "t"]]


NAMES = {"ttft": "TTFT", "itl": "time between tokens", "tpot": "the same, mean of a reply"}
HEADINGS = (
    ("latency", ""),
    ("client P50", "ms"),
    ("server P50", "ms"),
    ("in its bucket", "ms"),
    ("difference", "of the P50"),
    ("client mean", "ms"),
    ("server mean", "ms"),
    ("n", "client / server"),
)


def section(run: Run) -> dict[str, Any] | None:
    """Headings, each with its unit, and a row for each latency of each point that was scraped; None if none was."""
    rows = []
    for load in loads(run):
        for point in (point for point in load.points if point.has("scrape") and point.has("requests")):
            text, record = point.kinds("first_text", "text"), point.record
            for both in both_sides(record.table("scrape"), record.table("requests"), text):
                label = load.label(run) or load.variant.label
                more = f", seed {point.seed}" if len(load.points) > 1 else ""
                rows.append([f"{label}{more}", *texts(both)])
    return {"headings": [("load", ""), *HEADINGS], "rows": rows} if rows else None


SECTION = Section("live/server_side.html.j2", section, "pictures")


def sides_table(run: Run) -> Table | None:
    """The same for a terminal."""
    title, comparison = "the server's own metrics, compared with the clients'", section(run)
    return None if comparison is None else table_of_units(title, **comparison, left=2)


def texts(both: Both) -> list[str]:
    (low, high), difference = both.within, both.client_p50_s / both.server_p50_s - 1
    # Where the server counted others, other clients called it too, or messages had several tokens.
    others = f" / {both.server_n:,}" if both.server_n != both.client_n else ""
    return [
        NAMES[both.name],
        one_ms(both.client_p50_s),
        one_ms(both.server_p50_s),
        f"{1e3 * low:.4g} to {1e3 * high:.4g}",
        "within its bucket" if low <= both.client_p50_s <= high else f"{100 * difference:+,.1f} %",
        one_ms(both.client_mean_s),
        one_ms(both.server_mean_s),
        f"{both.client_n:,}{others}",
    ]
