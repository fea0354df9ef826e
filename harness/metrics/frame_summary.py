"""From the frame table to the numbers of one run of interaction sessions."""

import numpy as np
import pandas as pd

from harness.metrics import kv_pool
from harness.metrics.frame_definitions import FRAME_DEFINITIONS
from harness.metrics.frame_table import DELIVERED, EMPTY, Beat, Kinds
from harness.metrics.metric import Measured, Metric, known, named, share, statistic
from harness.metrics.silence import hard_stall, progressive, silence
from harness.metrics.wall import time_of_wall

TOUCH_AFTER_S = 2.0
"""[chosen] The very first sessions' first frames are no touch of admission's target."""


def summarise_frames(
    frames: pd.DataFrame, steps: pd.DataFrame, events: pd.DataFrame, run_end_s: float, beat: Beat
) -> dict[str, Metric]:
    """All metrics of one run, by the names and in the order of `FRAME_DEFINITIONS`.

    `frames` is a frame table, `steps` and `events` the logs of the run (the former may be empty: then the pool's
    metrics are missing), `run_end_s` its end in s. ValueError when more or fewer sessions were answered than asked.
    """
    log = Kinds(events)
    measured = (
        _speech(frames, beat)
        | _latencies(frames, run_end_s, beat)
        | _stalls(frames, steps, beat)
        | _pool(frames, steps, log)
        | _ticks(log, beat)
        | _sessions(log)
        | _engine(log, steps, run_end_s)
    )
    return named(measured, FRAME_DEFINITIONS)


def _speech(frames: pd.DataFrame, beat: Beat) -> dict[str, Measured]:
    arrive_s, beat_s, session, status, judged = (
        np.asarray(frames[name]) for name in ("arrive_s", "beat_s", "session", "status", "judged")
    )
    spoke = status[judged] == DELIVERED
    timely = (arrive_s <= beat_s + beat.budget_s)[judged]
    follows = session[1:] == session[:-1]
    between_s = np.diff(arrive_s)[follows]
    between_s = between_s[between_s > 0]  # frames of one Step arrive together; a missing one has no time
    return {
        "frames_with_speech": share(spoke),
        "cadence_nonempty": share(spoke & timely),
        "on_time": share(timely),
        "jitter_p99": statistic(np.abs(between_s - beat.budget_s), "p99"),
        "frames": (float(len(frames)), len(frames), 0),
        "empty_frames": (float((status[judged] == EMPTY).sum()), int(judged.sum()), 0),
    }


def _latencies(frames: pd.DataFrame, run_end_s: float, beat: Beat) -> dict[str, Measured]:
    latency_s, first = np.asarray(frames["latency_s"]), np.asarray(frames["first"])
    late_half = np.asarray(frames["dispatch_s"]) >= run_end_s / 2
    groups = {
        "frame_latency": (~first, ("p50", "p90", "p99", "max")),
        "first_frame_latency": (first, ("p50", "p90", "max")),
        "steady_latency": (~first & late_half, ("p50", "p90", "p99")),
    }
    measured: dict[str, Measured] = {
        f"{name}_{each}": statistic(latency_s[among], each)
        for name, (among, statistics) in groups.items()
        for each in statistics
    }
    missed = float((latency_s > beat.budget_s).sum())
    return measured | {"deadline_misses": (missed, *statistic(latency_s, "max")[1:])}


def _stalls(frames: pd.DataFrame, steps: pd.DataFrame, beat: Beat) -> dict[str, Measured]:
    found, wall_s = silence(frames, beat), time_of_wall(frames, beat)
    n = known(np.asarray(frames["latency_s"])).size
    beats = found.t_s.size
    return {
        "wall": (float(wall_s is not None) if n else None, n, 0),
        "wall_s": (wall_s, n, 0),
        "hard_stall": (float(hard_stall(found, steps, beat)) if beats else None, beats, 0),
        "progressive_silence": (float(progressive(found)) if beats else None, beats, 0),
        "silent_sessions_peak": (float(found.silent.max()) if beats else None, beats, 0),
        "silent_sessions_end": (float(found.at_end) if beats else None, beats, 0),
    }


def _pool(frames: pd.DataFrame, steps: pd.DataFrame, log: Kinds) -> dict[str, Measured]:
    names = ("peak", "end", "plateau", "slope", "per_session")
    if not len(frames) or not len(steps):
        unknown = [f"pool_{name}" for name in names]
        unknown += [f"saturation_{name}" for name in ("predicted_s", "measured_s", "error")]
        return {name: (None, 0, 0) for name in unknown}
    rho = kv_pool.occupancy(steps, np.asarray(frames["due_s"]).max())
    samples, n, late = np.asarray(rho), len(rho), kv_pool.last_third(rho)
    plateau, on_line = float(np.asarray(late).mean()), _on_line(log, np.asarray(late.index)).mean()
    line = kv_pool.filling(rho)
    slope = kv_pool.slope(late)
    measured_s = kv_pool.saturated_s(rho, pd.DataFrame(log.of("alloc_fail")))
    together = log.of("admitted")["t"].max(initial=0.0) <= kv_pool.FIT_S[0]
    settled = measured_s is None and slope is not None and abs(slope) <= kv_pool.SETTLED
    predicted_s = kv_pool.saturation(line) if line is not None and together and not settled else None
    error = None
    if predicted_s is not None and measured_s:
        error = abs(predicted_s - measured_s) / measured_s
    values = (float(samples.max()), float(samples[-1]), plateau, slope)
    return {
        **{f"pool_{name}": (value, n, 0) for name, value in zip(names, values, strict=False)},
        "pool_per_session": (float(plateau / on_line) if on_line else None, len(late), 0),
        "saturation_predicted_s": (predicted_s, n, 0),
        "saturation_measured_s": (measured_s, n, 0),
        "saturation_error": (error, n, 0),
    }


def _on_line(log: Kinds, times_s: np.ndarray) -> np.ndarray:
    """How many sessions were let in and had not ended, at each time."""
    came = log.of("admitted")
    ended = log.of("session_end")
    left_s = np.sort(ended["t"][np.isin(ended["session"], came["session"])])
    return np.searchsorted(np.sort(came["t"]), times_s, side="right") - np.searchsorted(
        left_s, times_s, side="right"
    )


def _ticks(log: Kinds, beat: Beat) -> dict[str, Measured]:
    ticks, ends, skipped, caps = (log.of(kind) for kind in ("tick", "tick_end", "tick_skipped", "cap"))
    returned_s = dict(zip(ends["turn"].tolist(), ends["t"].tolist(), strict=True))
    touch_s, touch_admitted = None, None
    for number, begun_s in zip(ticks["turn"].tolist(), ticks["t"].tolist(), strict=True):
        end_s = returned_s.get(number)
        if end_s is not None and begun_s >= TOUCH_AFTER_S and end_s - begun_s >= beat.target_s:
            touch_s, touch_admitted = begun_s, float((log.of("admitted")["t"] <= end_s).sum())
            break
    n = ticks["t"].size
    return {
        "ticks": (float(n), n, 0),
        "tick_overruns": (float(skipped["t"].size), n + skipped["t"].size, 0),
        "capped_ticks": (float(ends["value"].sum()), ends["t"].size, n - ends["t"].size),
        "cap_end": (float(caps["value"][-1]) if caps["t"].size else None, caps["t"].size, 0),
        "touch_s": (touch_s, n, 0),
        "touch_admitted": (touch_admitted, n, 0),
    }


def _sessions(log: Kinds) -> dict[str, Measured]:
    offered, admitted, shed, failed = (
        log.of(kind)["t"].size for kind in ("session_start", "admitted", "shed", "session_failed")
    )
    if admitted + shed > offered:
        raise ValueError(f"{offered} sessions asked to be served, and {admitted} were let in and {shed} shed")
    unanswered = offered - admitted - shed
    return {
        "offered": (float(offered), offered, 0),
        "admitted": (float(admitted), offered, unanswered),
        "shed": (float(shed), offered, unanswered),
        "failed_sessions": (float(failed), admitted, 0),
    }


def _engine(log: Kinds, steps: pd.DataFrame, run_end_s: float) -> dict[str, Measured]:
    replicas = np.unique(np.asarray(steps["replica"])).size
    busy = float(np.asarray(steps["dt_s"]).sum() / (run_end_s * replicas)) if replicas and run_end_s else None
    recycles = log.of("recycle")
    returned = log.of("frame_out")["value"]
    start_s = log.of("session_start")["t"].min(initial=np.inf)
    makespan_s = float(run_end_s - start_s) if np.isfinite(start_s) else None
    n = len(steps)
    return {
        "preemptions": (float(log.of("preempt")["t"].size), n, 0),
        "recycles": (float(recycles["t"].size), n, 0),
        "reencoded_tokens": (float(recycles["value"].sum()), recycles["t"].size, 0),
        "max_len_hits": (float(log.of("max_len")["t"].size), n, 0),
        "engine_busy": (busy, n, 0),
        "generated_tokens": (float(returned.sum()), returned.size, 0),
        "makespan": (makespan_s, log.of("session_start")["t"].size, 0),
    }
