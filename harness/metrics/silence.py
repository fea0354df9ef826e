"""Silence: silent sessions over time, and the two ways in which a full pool silences them.

Specification part 4 and finding 2. A dashboard of latencies and deadline misses shows neither.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.metrics.frame_table import DELIVERED, Beat

SILENT_FRAMES = 3
"""Frames in a row without speech from which a session is silent."""

HARD_BEATS = 3
"""Beats that a hard stall lasts at least."""

RISING_BEATS = 3
"""[chosen] Beats that silence further sessions, while others go on speaking, from which silence is progressive."""


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


def hard_stall(found: Silence, steps: pd.DataFrame, beat: Beat) -> bool:
    """Return whether for three beats in a row no due session got speech and the engine ran no request at all."""
    mute = (found.due > 0) & (found.spoken == 0)
    worked = np.zeros(mute.size, bool)
    begins_s = np.asarray(steps["t_s"])
    ran = np.asarray(steps["requests"]) > 0
    for times_s in (begins_s, begins_s + np.asarray(steps["dt_s"])):
        worked[_periods(times_s[ran], beat, mute.size)] = True
    stalled = mute & ~worked
    return bool(_run_lengths(stalled, np.zeros(stalled.size, np.int64)).max(initial=0) >= HARD_BEATS)


def progressive(found: Silence) -> bool:
    """Return whether at three beats or more the number of silent sessions rose while others got speech."""
    rose = np.diff(found.silent, prepend=0) > 0
    return int((rose & (found.spoken > 0)).sum()) >= RISING_BEATS


def _last_full(frames: pd.DataFrame, beat: Beat, count: int) -> int:
    """Return the last beat whose Step had returned before the first of the sessions that stay to the end hung up."""
    session, due_s = np.asarray(frames["session"]), np.asarray(frames["due_s"])
    last_s = due_s[np.append(session[1:] != session[:-1], True)]
    leaves_s = last_s[last_s > last_s.max() - beat.budget_s].min() + beat.budget_s
    return max(0, min(count - 1, int((leaves_s - beat.cap_s) / beat.budget_s)))


def _periods(times_s: np.ndarray, beat: Beat, count: int) -> np.ndarray:
    periods = np.floor(times_s / beat.budget_s + 1e-9).astype(np.int64)
    return periods[periods < count]


def _run_lengths(flags: np.ndarray, session: np.ndarray) -> np.ndarray:
    """Return how many flags in a row there are up to each row, within its session."""
    index = np.arange(flags.size)
    starts = np.diff(session, prepend=session[0] - 1 if session.size else 0) != 0
    broken = np.maximum.accumulate(np.where(~flags, index, np.where(starts, index - 1, -1)))
    return np.where(flags, index - broken, 0)
