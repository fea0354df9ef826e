"""The vocabulary of runs of interaction sessions: what the Metronome paper counts, and what it shows to be blind.

Sources: Metronome sections 3 to 5; specification 2.2, 2.3, 2.6 and part 4.
"""

import re

from harness.metrics.class_definitions import CLASS_DEFINITIONS, split
from harness.metrics.definitions import DEFINITIONS, OWN_DEFINITIONS, Definition, stage_use_definitions
from harness.metrics.kv_pool import FIT_BELOW, FIT_S, FULL, SETTLED
from harness.metrics.live_definitions import LIVE_DEFINITIONS
from harness.metrics.silence import HARD_BEATS, RISING_BEATS, SILENT_FRAMES
from harness.metrics.wall import AT_WALL, BUCKET_S

_STEP = "from the dispatch of the Step to its return for the session, at the gateway"
_JUDGED = (
    "over due frames without each session's first two; frames of a failed session count to its scheduled end, a "
    "last frame before whose answer the user hung up does not; shed sessions have no frames"
)
_POOL = "of the thinker's KV blocks, in use means referenced; sampled each second to the last due frame"
_TICKS = "over Steps"
_START = "from the start of the run"


def _latencies(prefix: str, statistics: tuple[str, ...], what: str) -> dict[str, Definition]:
    names = {"max": "Largest"}
    return {
        f"{prefix}_{statistic}": Definition(
            "s",
            f"{names.get(statistic, statistic.upper())} {what}; the frames of a Step share it unless wait_scope is "
            "session; not the model's latency, as a Step returns what was said since the last one",
            _STEP,
            "lower",
        )
        for statistic in statistics
    }


_SEGMENT = "output in the segment of a question that states a keyword of it, sessions without output included"
_MID = f"{_SEGMENT}; mode free, segments after the first and before the fresh question (ages 30 to 240 s)"

QUALITY_DEFINITIONS: dict[str, Definition] = {
    "answered_mid_call": Definition("1", "share of sessions that answer the question playing", _MID, "higher"),
    "answered_mid_low": Definition("1", "the same share in the segment where it is lowest", _MID, "higher"),
    "answered_mid_high": Definition("1", "the same share in the segment where it is highest", _MID, "higher"),
    "answered_mid_end": Definition("1", "the same share in the last of these segments", _MID, "higher"),
    "answered_fresh": Definition("1", "share of sessions that answer the fresh question", _SEGMENT, "higher"),
    "answered_recall": Definition(
        "1", "share of sessions whose output to the recall states a keyword of their first question", _SEGMENT, None
    ),
    "answer_stated": Definition(
        "1", "share of sessions that state the answer in some frame", "over sessions; mode turns", "higher"
    ),
    "frames_right": Definition(
        "1", "share of answers to a frame that state a keyword of its question", "over frames answered; mode turns",
        "higher",
    ),
}  # fmt: skip
"""Every metric that `harness.metrics.quality.judge` returns, in its order; those of the other mode are missing."""


FRAME_DEFINITIONS: dict[str, Definition] = {
    "frames_with_speech": Definition("1", "share of frames whose Step returned text", _JUDGED, "higher"),
    "cadence_nonempty": Definition(
        "1",
        "share of frames whose Step's return was at the client within B of the tick at which they were due, with text",
        _JUDGED,
        "higher",
    ),
    "on_time": Definition(
        "1",
        "share of frames whose Step's return was at the client within B of the tick at which they were due, with text "
        "or without: what a dashboard of cadence shows",
        _JUDGED,
        "higher",
    ),
    "jitter_p99": Definition(
        "s",
        "P99 of how far the time between two returns that follow each other differs from B",
        "at the client, of one session",
        "lower",
    ),
    "frames": Definition(
        "1", "frames sent, and those that failed sessions still owed", "over admitted sessions", None
    ),
    "empty_frames": Definition("1", "frames whose Step returned no text", _JUDGED, "lower"),
    "silent_sessions_peak": Definition(
        "1",
        f"most sessions at a tick without text in {SILENT_FRAMES} due frames in a row or more",
        _JUDGED,
        "lower",
    ),
    "silent_sessions_end": Definition(
        "1", "the same at the last tick before sessions that stay to the end begin to leave", _JUDGED, "lower"
    ),
    **_latencies(
        "frame_latency", ("p50", "p90", "p99", "max"), "frame latency, without sessions' first Steps"
    ),
    **_latencies(
        "first_frame_latency", ("p50", "p90", "max"), "latency of sessions' first Steps, which wait for work"
    ),
    **_latencies(
        "steady_latency",
        ("p50", "p90", "p99"),
        "frame latency in the second half of the run, without sessions' first Steps",
    ),
    "deadline_misses": Definition(
        "1",
        "frames whose latency exceeded B; the cap on the wait prevents that, so it stays 0 in a collapse",
        _STEP,
        "lower",
    ),
    "wall": Definition(
        "1",
        f"1 when the median frame latency of some bucket of {BUCKET_S:g} s and of all later ones is at least "
        f"{AT_WALL:g} of the longest wait of a Step, else 0",
        "first Steps included",
        "lower",
    ),
    "wall_s": Definition(
        "s", "first Step of that length in the first such bucket; missing without a wall", _START, "higher"
    ),
    "hard_stall": Definition(
        "1",
        f"1 when at {HARD_BEATS} beats in a row or more nobody who was due got text and the engine ran no request",
        "over beats of B",
        "lower",
    ),
    "progressive_silence": Definition(
        "1",
        f"1 when at {RISING_BEATS} beats or more further sessions fell silent while others got text",
        "over beats of B",
        "lower",
    ),
    "pool_peak": Definition("1", "largest share in use", _POOL, None),
    "pool_end": Definition("1", "share in use at the last due frame", _POOL, None),
    "pool_plateau": Definition("1", "mean share in use over the last third of the run", _POOL, None),
    "pool_slope": Definition(
        "1/s", "least-squares slope of the occupancy over the last third of the run", _POOL, None
    ),
    "pool_per_session": Definition(
        "1", "pool_plateau over the mean number of sessions on line in that third", _POOL, "lower"
    ),
    "saturation_predicted_s": Definition(
        "s",
        "when the least-squares line through the occupancies below "
        f"{FIT_BELOW:g} from {FIT_S[0]:g} to {FIT_S[1]:g} s reaches 1 (eq. 1); missing when it does not rise, "
        f"sessions still came then, or the pool settled: no slope above {SETTLED:g}/s and never full",
        _START,
        None,
    ),
    "saturation_measured_s": Definition(
        "s",
        f"first refusal of blocks to a waiting request, or first sample of an occupancy of {FULL:g} or more; missing "
        "without either",
        _START,
        "higher",
    ),
    "saturation_error": Definition(
        "1", "difference of the two over the measured one, without sign", "missing without both", "lower"
    ),
    "ticks": Definition("1", "Steps dispatched", _TICKS, None),
    "tick_overruns": Definition(
        "1", "ticks skipped because the Step before had not returned", "over ticks", "lower"
    ),
    "capped_ticks": Definition("1", "Steps whose wait was cut off by its cap", _TICKS, "lower"),
    "offered": Definition("1", "sessions that asked to be served", "at the client", None),
    "admitted": Definition("1", "sessions that were let in", "at the client", None),
    "shed": Definition(
        "1", "sessions that were rejected; with the admitted they are the offered", "at the client", None
    ),
    "failed_sessions": Definition("1", "sessions that the engine ended", "at the client", "lower"),
    "cap_end": Definition(
        "1", "most sessions that admission let in at the end; missing without it", _TICKS, None
    ),
    "touch_s": Definition(
        "s",
        "first Step after 2 s that took as long as admission's target latency; missing without one",
        _START,
        "higher",
    ),
    "touch_admitted": Definition(
        "1", "sessions let in by the return of that Step", "at the client", "higher"
    ),
    "preemptions": DEFINITIONS["preemptions"],
    "recycles": Definition("1", "times a session's request was replaced by a new one", "over the run", None),
    "reencoded_tokens": Definition(
        "token", "audio tokens fed again when that was done", "over the run", "lower"
    ),
    "max_len_hits": Definition("1", "sessions that reached max_model_len", "over the run", "lower"),
    "engine_busy": Definition(
        "1", "share of the time in which the thinker ran a step", "to the end of the run", None
    ),
    "generated_tokens": Definition("token", "text tokens that Steps returned", "over the run", None),
    "makespan": DEFINITIONS["makespan"],
}
"""Every metric that `harness.metrics.frame_summary.summarise_frames` returns, in its order."""


def definition(name: str) -> Definition:
    """The meaning of a metric of any vocabulary, a class's included; KeyError for an unknown name."""
    if of_class := split(name):
        return CLASS_DEFINITIONS[of_class[1]]
    known = LIVE_DEFINITIONS | DEFINITIONS | FRAME_DEFINITIONS | QUALITY_DEFINITIONS | OWN_DEFINITIONS
    return known[name] if name in known else _of_other_stage(name)


def _of_other_stage(name: str) -> Definition:
    """Return the definition of a metric of a stage that no spoken reply has, such as `busy_vision`; KeyError."""
    found = re.fullmatch(r"busy_(\w+)|decode_batch_(\w+)_(?:mean|peak)", name)
    if found is None:
        raise KeyError(name)
    return stage_use_definitions(found[1] or found[2])[name]
