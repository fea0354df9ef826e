"""The result of a search in virtual time and its cost, as sentences and as a table."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.slo.search import Search, Searches
from reports.replays.usage import hardware, usage
from reports.runs.measured import Run
from reports.runs.part import Opening, Section
from reports.runs.repeats import record_of
from reports.tables.columns import MISSING, Column
from reports.tables.labels import short


def label(one: Search) -> str:
    """`vllm_omni gpu=h100`."""
    return " ".join([one.engine, *(f"{name}={short(value)}" for name, value in one.settings.items())])


def sentences(one: Search) -> list[str]:
    """Return sentences on the largest passing value, the reason against larger ones, and seeds that were not
    monotone."""
    over = one.question.over
    return [
        f"{label(one)} {one.answer}",
        *(
            f"{label(one)}: seed {seed} missed a target at {over}={missed:g} and met all at {held:g}. "
            "This is not monotone, so the result is the value below the first miss."
            for seed, (missed, held) in one.surprises.items()
        ),
    ]


def asked(searches: Searches) -> str:
    """The targets in words."""
    return ", ".join(map(str, searches.question.targets))


def answer(searches: Searches) -> str:
    """Return the result of every search, in one sentence."""
    question = searches.question
    results = (
        f"{label(one)} {'nothing' if one.holds is None else f'{question.over}={one.holds:g}'}"
        + (" or more" if one.holds is not None and one.stops is None else "")
        for one in searches.searched
    )
    seeds = len(question.seeds)
    basis = "one seed" if seeds == 1 else f"every one of {seeds} seeds"
    return f"With {asked(searches)}, these hold: {', '.join(results)} ({basis})."


def row(searches: Searches, one: Search, folder: Path) -> dict[str, Any]:
    """For tables and programs: GPU-seconds for a turn, a minute of conversation, a million tokens."""
    question = searches.question
    at = [tried for tried in one.tried if tried.value == one.holds]
    gpu, gpus = hardware(record_of(folder, one.tried[0].repeat.point))
    used = usage([record_of(folder, tried.repeat.point) for tried in at], question.targets)
    return {
        "engine": one.engine,
        "settings": dict(one.settings),
        "hardware": gpu,
        "gpus": gpus,
        question.over: one.holds,
        "at_least": one.holds is not None and one.stops is None,
        "over_seeds": asdict(one.interval),
        **asdict(used),
        "points": len(one.tried),
        "sentences": sentences(one),
    }


COLUMNS = (
    Column("goodput_rps", "goodput", "turns/s", 1, 3),
    Column("gpus", "GPUs", "", 1, 3),
    Column("gpu_s_per_minute", "GPU·s", "/min", 1, 3),
    Column("gpu_s_per_million_tokens", "GPU·s", "/Mtok", 1, 3),
)
NOTE = (
    "over seeds: the largest passing value of each, median (lowest to highest); min: a minute of one "
    "connected session; Mtok: a million text tokens at the clients"
)


def held(row: Mapping[str, Any], over: str) -> str:
    """`14`, `≥ 24` or `–`."""
    value = row[over]
    return MISSING if value is None else f"{'≥ ' if row['at_least'] else ''}{value:g}"


def spread(row: Mapping[str, Any]) -> str:
    """`15 (14 to 17)`."""
    low, middle, high = (MISSING if v is None else f"{v:g}" for v in row["over_seeds"].values())
    return f"{middle} ({low} to {high})"


def figure(row: Mapping[str, Any], column: Column) -> str:
    """The number as a table has it: three digits, or whole."""
    value = row[column.metric]
    return MISSING if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def opening(run: Run) -> Opening | None:
    """Return the result of every search; None without one."""
    searches = _searches(run)
    return searches and Opening(answer(searches))


def _searches(run: Run) -> Searches | None:
    return None if run.searches is None or run.searches.question.counts else run.searches


def section(run: Run) -> dict[str, Any] | None:
    """Return the result of every search and its cost, as a table and sentences; None without one."""
    searches = _searches(run)
    if searches is None:
        return None
    over = searches.question.over
    rows = [row(searches, one, run.folder) for one in searches.searched]
    return {
        "over": over,
        "targets": asked(searches),
        "axes": [name for name in run.experiment.grid if name not in (over, "gpu")],
        "columns": COLUMNS,
        "rows": [(each, held(each, over), spread(each), [figure(each, one) for one in COLUMNS]) for each in rows],
        "seeds": len(searches.question.seeds),
    }


SECTION = Section("replays/find.html.j2", section, "results", ("largest", "Search"))
