"""From the request table to the numbers of one run, each with its unit, its n and what is missing from it."""

import numpy as np
import pandas as pd

from harness.metrics.class_definitions import CLASS_DEFINITIONS, SEPARATOR
from harness.metrics.classes import by_class
from harness.metrics.definitions import DEFINITIONS, DISTRIBUTIONS, TTFP_TARGET_S, stage_use_definitions
from harness.metrics.metric import Measured, Metric, named, share, statistic
from harness.metrics.rates import completed_rps, effective_rps
from harness.metrics.requests import ABORTED, BARGED_IN, CLASS_COLUMNS, COLUMNS, COMPLETED, FAILED, UNFINISHED
from harness.metrics.sessions import of_sessions
from harness.metrics.stage_use import stage_use
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
