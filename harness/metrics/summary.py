"""From the request table to the numbers of one run, each with its unit, its n and what is missing from it."""

from collections.abc import Mapping
from math import ceil, inf

import numpy as np
import pandas as pd

from harness.metrics.class_definitions import CLASS_DEFINITIONS, SEPARATOR
from harness.metrics.class_metrics import by_class
from harness.metrics.definitions import DEFINITIONS, DISTRIBUTIONS, TTFP_TARGET_S, stage_use_definitions
from harness.metrics.metric import Measured, Metric, named, share, statistic
from harness.metrics.playback import is_continuous
from harness.metrics.request_table import (
    ABORTED,
    BARGED_IN,
    CLASS_COLUMNS,
    COLUMNS,
    COMPLETED,
    FAILED,
    UNFINISHED,
)
from harness.metrics.stages import AR_STAGES, ENTRY, STAGES, by_role

# The columns of the request table as arrays; all but the status as floats, NaN where missing.
_Columns = dict[str, np.ndarray]


def summarise(
    requests: pd.DataFrame,
    steps: pd.DataFrame,
    run_end_s: float,
    *,
    planned_turns: int | None = None,
    planned_sessions: np.ndarray | None = None,
    warmup_turns: int = 0,
    entry: str = ENTRY,
) -> dict[str, Metric]:
    """All metrics of one run, by the names and in the order of `DEFINITIONS`, then those of stages by other names and
    of each class if it has any.

    `requests` is a request table, `steps` the engine steps (may be empty: then KV occupancy is missing),
    `run_end_s` the end of the run after its drain in s, `planned_turns` the number of turns in the trace,
    by which those never started are counted, `planned_sessions` the session of each of them. The first
    `warmup_turns` turns by start time are left out of the distributions of latencies, as their n shows, and of nothing
    else. `entry`: what the steps call the stage that requests come to first.
    """
    steps = by_role(steps, entry)
    turns: _Columns = {
        name: np.asarray(requests[name]) if dtype == "str" else _floats(requests, name)
        for name, (dtype, _) in (COLUMNS | CLASS_COLUMNS).items()
        if name in requests or name in COLUMNS
    }
    warm = _warm(turns, warmup_turns)
    measured = (
        _distributions(turns, warm)
        | _waste(turns)
        | _rates(turns)
        | _shares(turns, run_end_s)
        | _counts(turns, planned_turns)
        | _reloads(turns, steps)
        | _kv_occupancy(steps, run_end_s)
        | stage_use(steps, float(turns["turn_start_s"].min(initial=np.inf)), run_end_s)
        | of_sessions(turns, planned_sessions)
    )
    others = sorted({name.removeprefix("busy_") for name in measured if name.startswith("busy_")} - {*STAGES})
    classes = by_class(turns, warm, run_end_s) if "request_class" in turns else {}
    measured |= classes
    meanings = dict(DEFINITIONS)
    for stage in others:
        meanings |= stage_use_definitions(stage)
    meanings |= {name: CLASS_DEFINITIONS[name.partition(SEPARATOR)[2]] for name in classes}
    return named(measured, meanings)


def _floats(table: pd.DataFrame, column: str) -> np.ndarray:
    return pd.Series(table[column]).to_numpy(float, na_value=np.nan)


def _warm(turns: _Columns, warmup_turns: int) -> np.ndarray:
    """Which turns are not among the first `warmup_turns` to start."""
    by_start = np.lexsort((turns["turn"], turns["session"], turns["turn_start_s"]))
    warm = np.ones(by_start.size, bool)
    warm[by_start[:warmup_turns]] = False
    return warm


def _distributions(turns: _Columns, warm: np.ndarray) -> dict[str, Measured]:
    measured = {}
    for name, distribution in DISTRIBUTIONS.items():
        over = warm.copy() if distribution.after_warm_up else np.ones_like(warm)
        if distribution.spoken_only:
            over &= turns["spoken"] > 0
        if distribution.whole_only:
            over &= ~np.isin(turns["status"], [BARGED_IN, ABORTED])
        for each in distribution.statistics:
            measured[f"{name}_{each}"] = statistic(turns[distribution.column][over], each)
    return measured


def _waste(turns: _Columns) -> dict[str, Measured]:
    measured = {}
    for name, stages in [("", AR_STAGES), *((f"_{stage}", (stage,)) for stage in AR_STAGES)]:
        generated = np.array([turns[f"generated_{stage}"] for stage in stages])
        heard = np.array([turns[f"heard_{stage}"] for stage in stages])
        unknown = (~np.isnan(generated) & np.isnan(heard)).any(axis=0)
        used = (~np.isnan(generated)).any(axis=0) & ~unknown
        n, missing = int(used.sum()), int(unknown.sum())
        tokens, tokens_heard = float(np.nansum(generated[:, used])), float(np.nansum(heard[:, used]))
        measured[f"wasted_token_ratio{name}"] = (
            (tokens - tokens_heard) / tokens if tokens else None,
            n,
            missing,
        )
        measured[f"generated_tokens{name}"] = (tokens if n else None, n, missing)
        measured[f"heard_tokens{name}"] = (tokens_heard if n else None, n, missing)
    return measured


def _rates(turns: _Columns) -> dict[str, Measured]:
    rate, inside, outside, missing = completed_rps(turns)
    effective, spoken = effective_rps(turns)
    return {
        "completed_rps": (rate, inside, missing),
        "completed_outside_window": (float(outside), inside + outside, missing),
        "effective_rps": (effective, spoken, 0),
    }


def _shares(turns: _Columns, run_end_s: float) -> dict[str, Measured]:
    spoken = turns["spoken"] > 0
    in_target = turns["audio_ttfp_s"] <= TTFP_TARGET_S
    makespan_s = float(run_end_s - turns["turn_start_s"].min()) if spoken.size else None
    return {
        "continuity": share(turns["continuous"]),
        "continuity_fixed_timeline": share(turns["continuous_fixed"]),
        "ttfp_in_target": share(in_target[spoken]),
        "makespan": (makespan_s, spoken.size, 0),
        "barge_in_rate": share(turns["status"][spoken] == BARGED_IN),
        "barge_in_missed_rate": share(turns["barge_in_missed"][spoken]),
    }


def _counts(turns: _Columns, planned_turns: int | None) -> dict[str, Measured]:
    status = turns["status"]
    n = status.size
    never_started = 0 if planned_turns is None else planned_turns - n
    return {
        "started": (float(n), n, never_started),
        **{
            name: (float((status == name).sum()), n, 0) for name in (COMPLETED, BARGED_IN, FAILED, UNFINISHED)
        },
        "preemptions": statistic(turns["preemptions"], "sum"),
    }


def _reloads(turns: _Columns, steps: pd.DataFrame) -> dict[str, Measured]:
    waited_s = turns["reload_s"]
    own = np.asarray(steps["stage"]) == ENTRY
    prefill = float(_floats(steps, "prefill_tokens")[own].sum()) if own.any() else None
    return {
        "reloaded_turns": share(np.where(np.isnan(waited_s), np.nan, waited_s > 0)),
        "reloaded_blocks": statistic(turns["reload_blocks"], "sum"),
        "preloaded_blocks": statistic(turns["preloaded_blocks"], "sum"),
        "prefill_tokens_entry": (prefill, int(own.sum()), 0),
    }


def _kv_occupancy(steps: pd.DataFrame, run_end_s: float) -> dict[str, Measured]:
    stages = np.asarray(steps["stage"])
    used, blocks, t_s, dt_s = (_floats(steps, name) for name in ("kv_used", "kv_blocks", "t_s", "dt_s"))
    replicas, ends_s = np.asarray(steps["replica"]), t_s + dt_s
    measured = {}
    for stage in STAGES:
        # A stage without a KV cache has no blocks to occupy.
        own = (stages == stage) & (blocks > 0)
        held = capacity = 0.0
        for replica in np.unique(replicas[own]):
            of_replica = own & (replicas == replica)
            # Steps report what is in use when they end, and that stays so until the next one has ended.
            lasts_s = np.diff(ends_s[of_replica], append=max(run_end_s, ends_s[of_replica][-1]))
            held += float((used[of_replica] * lasts_s).sum())
            capacity += float((blocks[of_replica] * lasts_s).sum())
        n = int(own.sum())
        measured[f"kv_block_seconds_{stage}"] = (held if n else None, n, 0)
        measured[f"kv_occupancy_{stage}_mean"] = (held / capacity if capacity else None, n, 0)
        measured[f"kv_occupancy_{stage}_peak"] = (float((used[own] / blocks[own]).max()) if n else None, n, 0)
    return measured


STEADY_AFTER = 0.1
"""Share of the completions before the window begins."""

Turns = Mapping[str, np.ndarray]
"""Columns of a request table as arrays of shape (turns,); all but the status as floats, NaN where missing."""


def completed_rps(turns: Turns) -> tuple[float | None, int, int, int]:
    """Completions per second of the window, those inside it, those outside, and those without a time.

    The rate is None where the last user's turn ended before the window begins.
    """
    completion_s = _completion_s(turns)
    found, ended = _window(completion_s, turns), ~np.isnan(completion_s)
    inside = int(_within(completion_s, found).sum())
    missing = int(np.isin(turns["status"], [COMPLETED, BARGED_IN]).sum() - ended.sum())
    return inside / (found[1] - found[0]) if found else None, inside, int(ended.sum()) - inside, missing


def effective_rps(turns: Turns, ttfp_s: float = inf) -> tuple[float | None, int]:
    """Spoken turns that completed, or were cut short, without a pause in playback and began within `ttfp_s` seconds;
    per second of the window. And how many spoken turns ended inside it.

    The rate is None without a window, and where nothing is spoken.
    """
    completion_s = _completion_s(turns)
    found, spoken = _window(completion_s, turns), turns["spoken"] > 0
    inside = _within(completion_s, found) & spoken
    # Only completed and barged-in turns have a largest gap.
    unbroken = np.fromiter(map(is_continuous, turns["max_gap_s"]), bool)
    effective = float((inside & unbroken & (turns["audio_ttfp_s"] <= ttfp_s)).sum())
    return effective / (found[1] - found[0]) if found and spoken.any() else None, int(inside.sum())


def _completion_s(turns: Turns) -> np.ndarray:
    ended = np.isin(turns["status"], [COMPLETED, BARGED_IN])
    return np.where(ended, turns["completion_s"], np.nan)


def _window(completion_s: np.ndarray, turns: Turns) -> tuple[float, float] | None:
    """From the completion that makes up the first tenth to the last end of a user's turn, after which load falls."""
    known = np.sort(completion_s[~np.isnan(completion_s)])
    if not known.size:
        return None
    start_s, end_s = known[ceil(STEADY_AFTER * known.size) - 1], np.nanmax(turns["turn_end_s"])
    return (float(start_s), float(end_s)) if end_s > start_s else None


def _within(completion_s: np.ndarray, found: tuple[float, float] | None) -> np.ndarray:
    if found is None:
        return np.zeros(completion_s.size, bool)
    # The window opens with a completion, which therefore is not counted in it.
    return (completion_s > found[0]) & (completion_s <= found[1])


def stage_use(steps: pd.DataFrame, begin_s: float, end_s: float) -> dict[str, Measured]:
    """The metrics of `stage_use_definitions` for the stages of a spoken reply, and for each other one that ran a step.

    Steps of a replica follow one another, so that their lengths within the span add up to the time it was busy.
    """
    stages = np.asarray(steps["stage"], str)
    t_s, dt_s = (steps[name].to_numpy(float) for name in ("t_s", "dt_s"))
    within_s = np.clip(np.minimum(t_s + dt_s, end_s) - np.maximum(t_s, begin_s), 0.0, None)
    decoded = (steps["tokens"] - steps["prefill_tokens"]).to_numpy(float)
    measured: dict[str, Measured] = {}
    for stage in [*STAGES, *sorted(set(stages) - set(STAGES))]:
        own = stages == stage
        replicas = np.unique(np.asarray(steps["replica"])[own]).size
        span_s = (end_s - begin_s) * replicas
        batch = decoded[own & (decoded > 0)]
        n = int(own.sum())
        measured[f"busy_{stage}"] = (float(within_s[own].sum() / span_s) if n and span_s > 0 else None, n, 0)
        for which, reduce in (("mean", np.mean), ("peak", np.max)):
            value = float(reduce(batch)) if batch.size else None
            measured[f"decode_batch_{stage}_{which}"] = (value, batch.size, 0)
    return measured


STATISTICS = ("p50", "p90", "mean")


def of_sessions(turns: Mapping[str, np.ndarray], planned: np.ndarray | None) -> dict[str, Measured]:
    """Value, n and missing of the metrics of sessions, by name.

    `turns`: columns of a request table as arrays; `planned`: the session of each turn of the trace, None: they are
    those that were started. Sessions of one turn are requests, so a trace that has no others has no such metric.
    """
    time_s, pace = _whole(turns, turns["session"] if planned is None else planned)
    return {
        f"{name}_{each}": statistic(values, each)
        for name, values in (("session_time", time_s), ("session_pace", pace))
        for each in STATISTICS
    }


def _whole(turns: Mapping[str, np.ndarray], planned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each started session and its turns per minute; NaN where not every turn of its has ended."""
    ids, counts = np.unique(planned, return_counts=True)
    if not counts.size or counts.max() == 1:
        return np.empty(0), np.empty(0)
    started, of_session = np.unique(turns["session"], return_inverse=True)
    wanted = counts[np.searchsorted(ids, started)]
    ended = np.isin(turns["status"], [COMPLETED, BARGED_IN])
    whole = np.bincount(of_session, ended, started.size) == wanted
    first_s, last_s = np.full(started.size, np.inf), np.full(started.size, -np.inf)
    np.minimum.at(first_s, of_session, turns["turn_start_s"])
    with np.errstate(invalid="ignore", divide="ignore"):
        np.maximum.at(last_s, of_session, turns["completion_s"])
        time_s = np.where(whole, last_s - first_s, np.nan)
        return time_s, np.where(time_s > 0, 60 * wanted / time_s, np.nan)
