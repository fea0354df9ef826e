"""The statistics of a trace as tables of text, for the terminal and the page."""

from typing import Any

from reports.tables.plain_tables import Table
from workloads.statistics.describe import statistics
from workloads.trace import Trace

MISSING = "–"
COLUMNS = ("n", "mean", "p50", "p90", "p99", "max", "total")
CLASS_COLUMNS = {
    "turns": "turns",
    "rate, 1/s": "rate_per_s",
    "tokens in": "input_tokens_mean",
    "out": "output_tokens_mean",
    "priority": "priority",
    "TTFT due, s": "ttft_deadline_s",
    "TBT due, s": "tbt_deadline_s",
}
WORDS = {
    "span_s": "time from first to last, s",
    "rate_per_s": "rate, 1/s",
    "gap_cv": "CV of gaps (Poisson: 1)",
    "gap_lag_1": "lag-1 correlation of gaps (Poisson: 0)",
    "dispersion_1s": "index of dispersion, windows of 1 s (Poisson: 1)",
    "dispersion_10s": "index of dispersion, windows of 10 s (Poisson: 1)",
    "dispersion_60s": "index of dispersion, windows of 60 s (Poisson: 1)",
    "p_drawn": "replies with a drawn interruption",
    "p_in_time": "replies interrupted in time if answered at once",
    "overlap_share": "user's speech in turns begun over a reply",
    "synthetic": "voices",
}


def tables(trace: Trace) -> list[Table]:
    """Arrivals, quantities, speech where anybody speaks, and events and classes where turns have some."""
    stats = statistics(trace)
    arrivals = {"sessions": stats["sessions"], "turns": stats["turns"]}
    arrivals |= {"scheduled arrivals": stats["arrivals"].pop("n"), **stats["arrivals"]}
    quantities = [
        [name, *(short(values[column]) for column in COLUMNS)] for name, values in stats["quantities"].items()
    ]
    result = [
        Table("Arrivals", (), [[WORDS.get(name, name), short(value)] for name, value in arrivals.items()]),
        Table("Quantities", ("", *COLUMNS), quantities),
    ]
    speech = {name: value for name, value in stats["speech"].items() if value is not None}
    if speech:
        result.append(Table("Speech", (), [[WORDS[name], _share(value)] for name, value in speech.items()]))
    if events := stats.get("events"):
        rows = [[name.replace("_", " "), _share(value)] for name, value in events.items()]
        result.append(Table("Turns with an event", (), rows))
    if classes := stats.get("classes"):
        rows = [[name, *(_ends(each[key]) for key in CLASS_COLUMNS.values())] for name, each in classes.items()]
        result.append(Table("Classes of requests, the most urgent first; mean lengths", ("", *CLASS_COLUMNS), rows))
    return result


def _ends(value: Any) -> str:
    """A number, or the lowest and the highest of several."""
    if not isinstance(value, list):
        return short(value)
    return " to ".join(dict.fromkeys(f"{end:g}" for end in value))


def short(value: Any) -> str:
    """Three digits; thousands apart; – for None."""
    if value is None:
        return MISSING
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def _share(value: Any) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)
