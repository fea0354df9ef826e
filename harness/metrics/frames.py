"""Metrics of runs of interaction sessions: what the Metronome paper counts, and what it shows to be blind.

Sources: Metronome sections 3 to 5; specification 2.2, 2.3, 2.6 and part 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.metrics import kv_pool
from harness.metrics.definitions import MAKESPAN, PREEMPTIONS, Definition, share_of, statistics
from harness.metrics.kv_pool import FIT_BELOW, FIT_S, FULL, SETTLED
from harness.metrics.metric import Measured, Metric, Result, metrics_of, share, without_nan
from harness.request_tables.frame_table import AT_WALL, BUCKET_S, DELIVERED, EMPTY, Beat, Kinds, time_of_wall

SILENT_FRAMES = 3
"""Frames in a row without speech from which a session is silent."""

HARD_BEATS = 3
"""Beats that a hard stall lasts at least."""

RISING_BEATS = 3
"""[chosen] Beats that silence further sessions, while others go on speaking, from which silence is progressive."""

TOUCH_AFTER_S = 2.0
"""[chosen] The very first sessions' first frames are no touch of admission's target."""


@dataclass(frozen=True)
class _Run:
    frames: pd.DataFrame
    steps: pd.DataFrame
    log: Kinds
    end_s: float
    beat: Beat


def summarise_frames(
    frames: pd.DataFrame, steps: pd.DataFrame, events: pd.DataFrame, run_end_s: float, beat: Beat
) -> dict[str, Metric]:
    """Return all metrics of one run, by the names and in the order of `FRAME_DEFINITIONS`.

    `frames` is a frame table, `steps` and `events` the logs of the run (the former may be empty: then the KV pool's
    metrics are missing), `run_end_s` its end in s. ValueError when more or fewer sessions were answered than asked.
    """
    return metrics_of(_Run(frames, steps, Kinds(events), run_end_s, beat), FRAME_DEFINITIONS, _MEASURES)


def _speech(run: _Run) -> dict[str, Result]:
    frames, beat = run.frames, run.beat
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
        "jitter": np.abs(between_s - beat.budget_s),
        "frames": (float(len(frames)), len(frames), 0),
        "empty_frames": (float((status[judged] == EMPTY).sum()), int(judged.sum()), 0),
    }


def _latencies(run: _Run) -> dict[str, Result]:
    frames = run.frames
    latency_s, first = np.asarray(frames["latency_s"]), np.asarray(frames["first"])
    late_half = np.asarray(frames["dispatch_s"]) >= run.end_s / 2
    n = without_nan(latency_s).size
    return {
        "frame_latency": latency_s[~first],
        "first_frame_latency": latency_s[first],
        "steady_latency": latency_s[~first & late_half],
        "deadline_misses": (float((latency_s > run.beat.budget_s).sum()), n, latency_s.size - n),
    }


def _stalls(run: _Run) -> dict[str, Measured]:
    frames, beat = run.frames, run.beat
    counts, wall_s = silence(frames, beat), time_of_wall(frames, beat)
    n = without_nan(np.asarray(frames["latency_s"])).size
    beats = counts.t_s.size
    return {
        "wall": (float(wall_s is not None) if n else None, n, 0),
        "wall_s": (wall_s, n, 0),
        "hard_stall": (float(hard_stall(counts, run.steps, beat)) if beats else None, beats, 0),
        "progressive_silence": (float(progressive(counts)) if beats else None, beats, 0),
        "silent_sessions_peak": (float(counts.silent.max()) if beats else None, beats, 0),
        "silent_sessions_end": (float(counts.at_end) if beats else None, beats, 0),
    }


@dataclass(frozen=True, slots=True)
class Silence:
    """Silent sessions by beat. `t_s`: begins of the run's beats of B, and of each: `silent` sessions, judged frames
    that were `due`, and the `spoken` ones among them. `at_end`: `silent` at the last beat that was over before the
    sessions that stay to the end of the run began to leave, as leaving sessions give their blocks to others."""

    t_s: np.ndarray
    silent: np.ndarray
    due: np.ndarray
    spoken: np.ndarray
    at_end: int


def silence(frames: pd.DataFrame, beat: Beat) -> Silence:
    """Return silent sessions, by the beat at which their frames were due; `frames` is a frame table in its order."""
    judged = np.asarray(frames["judged"])
    session, beat_s, status = (np.asarray(frames[name])[judged] for name in ("session", "beat_s", "status"))
    spoke = status == DELIVERED
    run = _run_lengths(~spoke, session)
    quiet = run >= SILENT_FRAMES
    period = np.floor(beat_s / beat.budget_s + 1e-9).astype(np.int64)
    periods = int(period.max()) + 1 if period.size else 0
    silent = np.bincount(period[quiet], minlength=periods)
    return Silence(
        np.arange(periods) * beat.budget_s,
        silent=silent,
        due=np.bincount(period, minlength=periods),
        spoken=np.bincount(period[spoke], minlength=periods),
        at_end=int(silent[_last_full(frames, beat, periods)]) if periods else 0,
    )


def hard_stall(counts: Silence, steps: pd.DataFrame, beat: Beat) -> bool:
    """Return whether for three beats in a row no due session got speech and the engine ran no request at all."""
    mute = (counts.due > 0) & (counts.spoken == 0)
    worked = np.zeros(mute.size, bool)
    begins_s = np.asarray(steps["t_s"])
    ran = np.asarray(steps["requests"]) > 0
    for times_s in (begins_s, begins_s + np.asarray(steps["dt_s"])):
        beats = np.floor(times_s[ran] / beat.budget_s + 1e-9).astype(np.int64)
        worked[beats[beats < mute.size]] = True
    stalled = mute & ~worked
    return bool(_run_lengths(stalled, np.zeros(stalled.size, np.int64)).max(initial=0) >= HARD_BEATS)


def progressive(counts: Silence) -> bool:
    """Return whether at three beats or more the number of silent sessions rose while others got speech."""
    rose = np.diff(counts.silent, prepend=0) > 0
    return int((rose & (counts.spoken > 0)).sum()) >= RISING_BEATS


def _last_full(frames: pd.DataFrame, beat: Beat, count: int) -> int:
    """Return the last beat whose Step had returned before the first of the sessions that stay to the end hung up."""
    session, due_s = np.asarray(frames["session"]), np.asarray(frames["due_s"])
    last_s = due_s[np.append(session[1:] != session[:-1], True)]
    leaves_s = last_s[last_s > last_s.max() - beat.budget_s].min() + beat.budget_s
    return max(0, min(count - 1, int((leaves_s - beat.cap_s) / beat.budget_s)))


def _run_lengths(flags: np.ndarray, session: np.ndarray) -> np.ndarray:
    """Return how many flags in a row there are up to each row, within its session."""
    index = np.arange(flags.size)
    starts = np.diff(session, prepend=session[0] - 1 if session.size else 0) != 0
    broken = np.maximum.accumulate(np.where(~flags, index, np.where(starts, index - 1, -1)))
    return np.where(flags, index - broken, 0)


def _pool(run: _Run) -> dict[str, Measured]:
    frames, steps, log = run.frames, run.steps, run.log
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
    came = log.of("admitted")
    ended = log.of("session_end")
    left_s = np.sort(ended["t"][np.isin(ended["session"], came["session"])])
    return np.searchsorted(np.sort(came["t"]), times_s, side="right") - np.searchsorted(left_s, times_s, side="right")


def _ticks(run: _Run) -> dict[str, Measured]:
    log = run.log
    ticks, ends, skipped, caps = (log.of(kind) for kind in ("tick", "tick_end", "tick_skipped", "cap"))
    returned_s = dict(zip(ends["turn"].tolist(), ends["t"].tolist(), strict=True))
    touch_s, touch_admitted = None, None
    for number, begun_s in zip(ticks["turn"].tolist(), ticks["t"].tolist(), strict=True):
        end_s = returned_s.get(number)
        if end_s is not None and begun_s >= TOUCH_AFTER_S and end_s - begun_s >= run.beat.target_s:
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


def _sessions(run: _Run) -> dict[str, Measured]:
    offered, admitted, shed, failed = (
        run.log.of(kind)["t"].size for kind in ("session_start", "admitted", "shed", "session_failed")
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


def _engine(run: _Run) -> dict[str, Measured]:
    log, steps, run_end_s = run.log, run.steps, run.end_s
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


_STEP = "from the dispatch of the Step to its return for the session, at the gateway"
_JUDGED = (
    "over due frames without each session's first two; frames of a failed session count to its scheduled end, a "
    "last frame before whose answer the user hung up does not; shed sessions have no frames"
)
_POOL = "of the thinker's KV blocks, in use means referenced; sampled each second to the last due frame"
_TICKS = "over Steps"
_START = "from the start of the run"


def _of_latency(quantity: str, which: tuple[str, ...], what: str, heading: str = "") -> dict[str, Definition]:
    meaning = (
        f"{what}; the frames of a Step share it unless wait_scope is session; not the model's latency, as a Step "
        "returns what was said since the last one"
    )
    return statistics(which, {quantity: Definition("s", meaning, _STEP, "lower", heading)})


FRAME_DEFINITIONS: dict[str, Definition] = {
    "frames_with_speech": share_of(
        "share of frames whose Step returned text", _JUDGED, "higher", heading="speech", shown="% frames"),
    "cadence_nonempty": share_of(
        "share of frames whose Step's return was at the client within B of the tick at which they were due, with "
        "text", _JUDGED, "higher"),
    "on_time": share_of(
        "share of frames whose Step's return was at the client within B of the tick at which they were due, with "
        "text or without: what a dashboard of cadence shows", _JUDGED, "higher"),
    **statistics(("p99",), {"jitter": Definition(
        "s", "of how far the time between two returns that follow each other differs from B",
        "at the client, of one session", "lower")}),
    "frames": Definition(
        "1", "frames sent, and frames that failed sessions still owed", "over admitted sessions", None),
    "empty_frames": Definition("1", "frames whose Step returned no text", _JUDGED, "lower"),
    "silent_sessions_peak": Definition(
        "1", f"most sessions at a tick without text in {SILENT_FRAMES} due frames in a row or more", _JUDGED, "lower"),
    "silent_sessions_end": Definition(
        "1", "the same at the last tick before sessions that stay to the end begin to leave", _JUDGED, "lower",
        heading="silent", shown="at end", digits=0),
    **_of_latency(
        "frame_latency", ("p50", "p90", "p99", "max"), "frame latency, without sessions' first Steps", "latency"
    ),
    **_of_latency(
        "first_frame_latency", ("p50", "p90", "max"), "latency of sessions' first Steps, which wait for work"
    ),
    **_of_latency(
        "steady_latency",
        ("p50", "p90", "p99"),
        "frame latency in the second half of the run, without sessions' first Steps",
    ),
    "deadline_misses": Definition(
        "1", "frames whose latency exceeded B; the cap on the wait prevents that, so it stays 0 in a collapse",
        _STEP, "lower", heading="misses", shown="frames", digits=0),
    "wall": Definition(
        "1", f"1 when the median frame latency of some bucket of {BUCKET_S:g} s and of all later ones is at least "
        f"{AT_WALL:g} of the longest wait of a Step, else 0",
        "first Steps included", "lower", shown="runs", digits=0),
    "wall_s": Definition(
        "s", "first Step of that length in the first such bucket; missing without a wall", _START, "higher",
        heading="wall at", shown="s", digits=0),
    "hard_stall": Definition(
        "1", f"1 when at {HARD_BEATS} beats in a row or more nobody who was due got text and the engine ran no request",
        "over beats of B", "lower", shown="runs", digits=0),
    "progressive_silence": Definition(
        "1", f"1 when at {RISING_BEATS} beats or more further sessions fell silent while others got text",
        "over beats of B", "lower", shown="runs", digits=0),
    "pool_peak": share_of("largest share in use", _POOL, None),
    "pool_end": share_of("share in use at the last due frame", _POOL, None),
    "pool_plateau": share_of("mean share in use over the last third of the run", _POOL, None),
    "pool_slope": Definition("1/s", "least-squares slope of the occupancy over the last third of the run", _POOL, None),
    "pool_per_session": Definition(
        "1", "pool_plateau over the mean number of concurrent sessions in that third", _POOL, "lower"),
    "saturation_predicted_s": Definition(
        "s", f"when the least-squares line through the occupancies below {FIT_BELOW:g} from {FIT_S[0]:g} to "
        f"{FIT_S[1]:g} s reaches 1 (eq. 1); missing when it does not rise, sessions still came then, or the pool "
        f"settled: no slope above {SETTLED:g}/s and never full", _START, None,
        heading="full at", shown="predicted, s", digits=0),
    "saturation_measured_s": Definition(
        "s", f"first refusal of blocks to a waiting request, or first sample of an occupancy of {FULL:g} or more; "
        "missing without either", _START, "higher", heading="full at", shown="measured, s", digits=0),
    "saturation_error": share_of(
        "difference of the two over the measured one, without sign", "missing without both", "lower"),
    "ticks": Definition("1", "Steps dispatched", _TICKS, None),
    "tick_overruns": Definition("1", "ticks skipped because the Step before had not returned", "over ticks", "lower"),
    "capped_ticks": Definition("1", "Steps whose wait was cut off by its cap", _TICKS, "lower"),
    "offered": Definition("1", "sessions that asked to be served", "at the client", None),
    "admitted": Definition("1", "sessions that were let in", "at the client", None, shown="sessions", digits=0),
    "shed": Definition(
        "1", "sessions that were rejected; with the admitted they are the offered", "at the client", None,
        heading="rejected", shown="sessions", digits=0),
    "failed_sessions": Definition("1", "sessions that the engine ended", "at the client", "lower"),
    "cap_end": Definition("1", "most sessions that admission let in at the end; missing without it", _TICKS, None),
    "touch_s": Definition(
        "s", "first Step after 2 s that took as long as admission's target latency; missing without one",
        _START, "higher", shown="s"),
    "touch_admitted": Definition("1", "sessions let in by the return of that Step", "at the client", "higher"),
    "preemptions": PREEMPTIONS,
    "recycles": Definition("1", "times a session's request was replaced by a new one", "over the run", None),
    "reencoded_tokens": Definition("token", "audio tokens fed again when that was done", "over the run", "lower"),
    "max_len_hits": Definition("1", "sessions that reached max_model_len", "over the run", "lower"),
    "engine_busy": share_of("share of the time in which the thinker ran a step", "to the end of the run", None),
    "generated_tokens": Definition("token", "text tokens that Steps returned", "over the run", None),
    "makespan": MAKESPAN,
}  # fmt: skip
"""Every metric that `summarise_frames` returns, in its order."""
_MEASURES = (_speech, _latencies, _stalls, _pool, _ticks, _sessions, _engine)
