"""The server's own metrics during a live run: its Prometheus series over the same clock as the users.

Shown are series that are known to matter, ours and vLLM's, and then any other that moved. Counters are drawn as rates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from reports.figures.drawing import few_loads, load_colours, sheet
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import BROKEN, MUTED
from reports.live.live_record import all_of, busiest, one
from reports.runs.measured import Measured, Run
from reports.tables.labels import setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "server_metrics"

FIRST = (
    "rehearsal_sessions_open",
    "rehearsal_turns_total",
    "rehearsal_kv_used_ratio",
    "rehearsal_tokens_total",
    "rehearsal_wasted_tokens_total",
    "rehearsal_audio_sent_seconds_total",
    "rehearsal_process_cpu_seconds_total",
    "rehearsal_process_resident_memory_bytes",
    "rehearsal_loop_lag_most_seconds",
    "rehearsal_queue_bytes",
    "rehearsal_refused_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:num_preemptions_total",
    "process_resident_memory_bytes",
)
"""Metrics in this order, if the server has them. Names: `engines.endpoint.metrics`, vLLM's `v1/metrics/loggers.py`."""

_PARTS = ("_bucket", "_sum", "_count", "_info", "_created", "_quantile")
"""Ends of names that are parts of a distribution or no series."""
_OWN = ("up", "scrape_duration_seconds")
_UNITS = (("_ratio", "%", 100.0), ("_perc", "%", 100.0), ("_bytes", "MiB", 2.0**-20), ("_seconds", "s", 1.0))
"""Prometheus ends names with base units; vLLM's `_perc` is a ratio as well. End of a name, unit shown, factor to it."""
_WORDS = {"num": "", "kv": "KV", "cpu": "CPU", "gpu": "GPU", "rehearsal": ""}
_APART_S = 0.5
"""Polls that are closer, as the last one may be, would make a rate of a moment."""
_PANELS, _COLUMNS, _LINES = 9, 3, 5
_CURVE = 3
"""Fewest polls of a curve."""


def draw(run: Run) -> Picture | LeftOut:
    title = "The server's own metrics"
    scraped = [load for load in busiest(run) if any(map(_scraped, load.points))]
    if not scraped:
        return LeftOut(NAME, title, "no endpoint was scraped (--scrape URL)")
    load = scraped[0]
    point = one(list(filter(_scraped, load.points)))
    table = point.record.table("scrape")
    polls = table.loc[table["name"] == "up", "value"].to_numpy(float)
    if polls.size < _CURVE and polls.any():
        return LeftOut(NAME, title, "the endpoint was read at the begin and the end only (--scrape URL reads it often)")
    names = chosen(table)
    if not names:
        return LeftOut(NAME, title, "the endpoint never answered, or its values never changed")
    where = ", ".join(filter(None, [load.variant.label, setting(dict(load.cell)), f"seed {point.seed}"]))
    figure, axes = sheet(len(names), f"{title}, {where}", 1.75, _COLUMNS, sharex=True)
    for index, name in enumerate(names):
        _panel(axes[index], table, name)
        _silences(axes[index], table)
        if index + _COLUMNS >= len(names):
            axes[index].set_xlabel("elapsed time, s")
            axes[index].tick_params(labelbottom=True)
    caption = (
        "Each panel is one series of the server's Prometheus endpoint; counters (…_total) are drawn as their rate per "
        f"second. {int(polls.sum()):,} of {polls.size:,} polls were answered; silences are shaded. The server's "
        f"numbers are its own and were not checked. {all_of([point])}"
    )
    return Picture(NAME, title, figure, caption)


def _scraped(point: Measured) -> bool:
    return point.has("scrape") and len(point.record.table("scrape")) > 0


def chosen(table: pd.DataFrame) -> list[str]:
    """The series to show: known ones that are there, then others that moved, most samples first."""
    samples = table.loc[~table["name"].isin(_OWN)]
    names = samples["name"].astype(str)
    plain = samples.loc[~names.str.endswith(_PARTS) & samples["value"].notna()]
    plain = plain.assign(name=plain["name"].astype(str), labels=plain["labels"].astype(str))
    spread = plain.groupby(["name", "labels"])["value"].agg(np.ptp)
    moved = sorted(set(spread.index[spread > 0].get_level_values("name")))
    something = set(plain.loc[plain["value"] != 0, "name"])
    preferred = [name for name in FIRST if name in moved or (name in something and not name.endswith("_total"))]
    return [*preferred, *(name for name in moved if name not in FIRST)][:_PANELS]


def _panel(axes: Axes, table: pd.DataFrame, name: str) -> None:
    series = list(series_of(table, name))
    shown = few_loads(sorted(series, key=lambda pair: -np.nanmax(np.abs(pair[1])))[:_LINES])
    title, factor = readable(name)
    for (label, values), colour in zip(shown, load_colours(len(shown)), strict=True):
        axes.plot(values.index, factor * values, color=colour, lw=1.4, label=label)
    axes.set_title(title, fontsize=9, pad=13)
    axes.text(0.5, 1.02, name, transform=axes.transAxes, fontsize=6.5, color=MUTED, ha="center", va="bottom")
    low, high = axes.get_ylim()
    axes.set_ylim(min(0.0, low), high + 0.05 * (high - min(0.0, low)))
    axes.tick_params(labelsize=8)
    if any(label for label, _ in shown):
        axes.legend(fontsize=7, loc="best", handlelength=1.2)


def readable(name: str) -> tuple[str, float]:
    """Return the readable name of a series with its unit, and the factor from the series to that unit."""
    rate = name.endswith("_total")
    base = name.removesuffix("_total")
    end, unit, factor = next((each for each in _UNITS if base.endswith(each[0])), ("", "", 1.0))
    words = base.removesuffix(end).rpartition(":")[2].split("_")
    text = " ".join(filter(None, (_WORDS.get(word, word) for word in words)))
    if rate:
        unit = {"": "1/s", "s": "s per s"}.get(unit, f"{unit}/s")
    return f"{text[:1].upper()}{text[1:]}{f', {unit}' if unit else ''}", factor


def series_of(table: pd.DataFrame, name: str) -> Iterator[tuple[str, pd.Series]]:
    """Return a name's series by their distinguishing labels; for a counter the rate between polls."""
    rows = table.loc[(table["name"] == name) & table["value"].notna()]
    labelled = {text: json.loads(text) for text in dict.fromkeys(rows["labels"].astype(str))}
    same = {
        key for labels in labelled.values() for key in labels if len({each.get(key) for each in labelled.values()}) == 1
    }
    for text, labels in labelled.items():
        samples = rows.loc[rows["labels"] == text]
        values = pd.Series(samples["value"].to_numpy(float), samples["t_s"].to_numpy(float))
        if name.endswith("_total"):
            values = _rate(values)
        if values.notna().any():
            yield ", ".join(str(value) for key, value in labels.items() if key not in same), values


def _rate(counts: pd.Series) -> pd.Series:
    """The rate of a counter up to each poll but the first, per second; missing where the server began again."""
    kept: list[float] = []
    for t in reversed([float(t) for t in counts.index]):
        if not kept or kept[-1] - t >= _APART_S:
            kept.append(t)
    kept.reverse()
    rate = np.diff(counts.loc[kept].to_numpy(float)) / np.diff(kept)
    rate[rate < 0] = np.nan
    return pd.Series(rate, kept[1:], dtype=float)


def _silences(axes: Axes, table: pd.DataFrame) -> None:
    """Shade each poll without an answer up to the next one."""
    up = table.loc[table["name"] == "up"]
    times, values = up["t_s"].to_numpy(float), up["value"].to_numpy(float)
    ends = np.r_[times[1:], times[-1:] + 1]
    for begin, end in zip(times[values == 0], ends[values == 0], strict=True):
        axes.axvspan(begin, end, color=BROKEN, alpha=0.1, lw=0)
