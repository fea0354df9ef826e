"""The vocabulary: every metric's unit, meaning and origin, in one place that reports and README quote.

Where a trace has classes of requests, each class has metrics of its own besides, named as `online.ttft_p90`; see
`harness.metrics.class_definitions`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from harness.metrics.stages import ENTRY, STAGES, WORDS

TTFP_TARGET_S = 2.0
"""Time to the first audio packet within which a turn counts for `ttfp_in_target`, in s; our choice."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of one number."""

    unit: str
    """s, 1 (share or count), 1/s, 1/min, token, W or J."""
    definition: str
    origin: str
    """The instant a latency counts from, or what a share or count is taken over."""
    better: Literal["lower", "higher"] | None
    """Direction of improvement; None where neither is better by itself."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A column of the request table, summarised by statistics over started turns."""

    column: str
    statistics: tuple[str, ...]
    """p<number> (percentile by linear interpolation) or mean."""
    meaning: Definition
    spoken_only: bool = False
    whole_only: bool = False
    """Without barged-in turns."""
    after_warm_up: bool = True


_TURN_END = "from the scheduled end of the user's turn (not the send), at the client"
_TAIL = ("p50", "p90", "p95", "p99", "mean")
_BODY = ("p50", "p90")


def from_turn_end(distribution: Distribution) -> bool:
    """Whether it is a time that counts from the scheduled end of the user's turn."""
    return distribution.meaning.unit == "s" and distribution.meaning.origin == _TURN_END


def _queueing(stage: str) -> Distribution:
    meaning = Definition(
        "s",
        f"wait in the queue of the {WORDS[stage]} until the first step that schedules the request",
        f"from the arrival at the {WORDS[stage]}",
        "lower",
    )
    return Distribution(f"queueing_{stage}_s", _BODY, meaning, spoken_only=stage != ENTRY)


DISTRIBUTIONS: dict[str, Distribution] = {
    "audio_ttfp": Distribution(
        "audio_ttfp_s",
        _TAIL,
        Definition(
            "s",
            "time to the first non-empty audio packet of a spoken reply, barged-in or not; "
            "a turn without audio is missing, not 0",
            _TURN_END,
            "lower",
        ),
        spoken_only=True,
    ),
    "ttft": Distribution(
        "ttft_s", _TAIL, Definition("s", "time to the first text token", _TURN_END, "lower")
    ),
    "tbt": Distribution(
        "tbt_mean_s",
        _BODY,
        Definition(
            "s",
            "a turn's mean time between text tokens, of which a live server may state the number; missing when all its "
            "text came in one message",
            "from text token to text token, at the client",
            "lower",
        ),
    ),
    "e2e": Distribution(
        "e2e_s",
        _BODY,
        Definition("s", "time to the last message of the reply; without barged-in turns", _TURN_END, "lower"),
        whole_only=True,
    ),
    "rtf": Distribution(
        "rtf",
        _BODY,
        Definition(
            "1",
            "real-time factor: time to the last audio packet over seconds of audio; without barged-in turns; "
            "tends to 1 when generation is paced to playback",
            _TURN_END,
            None,
        ),
        spoken_only=True,
        whole_only=True,
    ),
    "rtf_gen": Distribution(
        "rtf_gen",
        _BODY,
        Definition(
            "1",
            "real-time factor without the TTFP: first to last audio packet over seconds of audio; "
            "without barged-in turns; missing for a reply of one packet",
            "from the first audio packet, at the client",
            None,
        ),
        spoken_only=True,
        whole_only=True,
    ),
    "max_gap": Distribution(
        "max_gap_s",
        _BODY,
        Definition(
            "s",
            "a reply's longest pause in a player that waits for late packets; without barged-in turns",
            "from the end of the audio received so far to the next packet",
            "lower",
        ),
        spoken_only=True,
        whole_only=True,
        after_warm_up=False,
    ),
    **{f"queueing_{stage}": _queueing(stage) for stage in STAGES},
    "reload": Distribution(
        "reload_s",
        ("p50", "p90", "mean"),
        Definition(
            "s",
            "wait at the first stage for KV from host memory before its first step; 0 where the history was there",
            "from the arrival at the first stage, as far as it waited for transfers",
            "lower",
        ),
    ),
    "send_lag": Distribution(
        "send_lag_s",
        ("p99",),
        Definition(
            "s",
            "lateness of the load generator itself; a run with a material lag is invalid, not slow",
            "from the scheduled end of the user's turn to its actual send",
            "lower",
        ),
        after_warm_up=False,
    ),
}

_STEADY = "completions after the first 10 % of completions and up to the last end of a user's turn"
_OF_STARTED = "over started turns"
_OF_SPOKEN = "over started turns with a spoken reply"


def _waste(suffix: str, tokens: str) -> dict[str, Definition]:
    origin = (
        "over started turns of which generated and heard are known; a reply that ends by itself was heard in "
        "full; prefill, preload and recomputation do not count as generated"
    )
    return {
        f"wasted_token_ratio{suffix}": Definition(
            "1", f"generated and not heard over generated: {tokens}", origin, "lower"
        ),
        f"generated_tokens{suffix}": Definition("token", f"generated: {tokens}", origin, None),
        f"heard_tokens{suffix}": Definition("token", f"heard by users: {tokens}", origin, None),
    }


def stage_use_definitions(stage: str) -> dict[str, Definition]:
    """Return the definitions of the metrics that `harness.metrics.summary` has for a stage of any name."""
    named = WORDS.get(stage, stage)
    return {
        f"busy_{stage}": Definition(
            "1",
            f"share of the time in which a replica of the {named} ran a step, over those that ran any; n is the steps",
            "over the makespan",
            None,
        ),
        **{
            f"decode_batch_{stage}_{statistic}": Definition(
                "1",
                f"{text} requests that a step of the {named} decodes together, a token each",
                "over its steps that decode, however long each takes",
                None,
            )
            for statistic, text in (("mean", "mean number of"), ("peak", "most"))
        },
    }


def _of_sessions() -> dict[str, Definition]:
    origin = (
        "over started sessions of a trace in which any has several turns; missing are those of which not every turn "
        "ended by itself or by a barge-in"
    )
    time = "time from the begin of a session's first turn to the completion of its last: of an agent, its episode"
    pace = "turns of a session per minute of that time: of an agent, its actions; all agents' are in completed_rps"
    words = {"p50": "P50", "p90": "P90", "mean": "Mean"}
    return {
        **{f"session_time_{s}": Definition("s", f"{words[s]}: {time}", origin, "lower") for s in words},
        **{f"session_pace_{s}": Definition("1/min", f"{words[s]}: {pace}", origin, "higher") for s in words},
    }


_SINGLE: dict[str, Definition] = {
    "continuity": Definition(
        "1",
        "share of spoken replies in which no pause of a player that waits for late packets exceeds 100 ms; "
        "failed and unfinished turns and replies without audio count as not continuous",
        f"{_OF_SPOKEN}, without barged-in ones",
        "higher",
    ),
    "continuity_fixed_timeline": Definition(
        "1",
        "the same share with vLLM-Omni's player, which never waits: lateness against the first packet accumulates "
        "and must stay within 100 ms",
        f"{_OF_SPOKEN}, without barged-in ones",
        "higher",
    ),
    **_waste("", "text tokens of the first stage and codec frames of the talker together"),
    **_waste(f"_{ENTRY}", "text tokens of the first stage"),
    **_waste("_talker", "codec frames of the talker"),
    "completed_rps": Definition(
        "1/s",
        f"{_STEADY}, per second of that window; a barged-in turn completes at the barge-in",
        "n is the completions inside the window",
        "higher",
    ),
    "completed_outside_window": Definition(
        "1", "completions that completed_rps leaves out", "over completed and barged-in turns", None
    ),
    "effective_rps": Definition(
        "1/s",
        "of the turns of completed_rps the spoken ones that were continuous, or were barged in before a pause above "
        "100 ms, whatever their TTFP; per second of the same window",
        "n is the spoken turns that ended inside the window",
        "higher",
    ),
    "ttfp_in_target": Definition(
        "1", f"share of spoken turns with a TTFP of at most {TTFP_TARGET_S:g} s", _OF_SPOKEN, "higher"
    ),
    "makespan": Definition(
        "s",
        "length of the run including its drain; at a live endpoint up to the end of the steady window",
        "from the first start of a turn that counts",
        None,
    ),
    "started": Definition(
        "1",
        "turns that users started; missing counts turns of the trace that never started: those after a failed one, and "
        "those that would begin after stop_after_s",
        _OF_STARTED,
        None,
    ),
    "completed": Definition("1", "turns whose reply ended by itself", _OF_STARTED, "higher"),
    "barged_in": Definition("1", "turns whose reply the user cut short", _OF_STARTED, None),
    "failed": Definition("1", "turns that ended in an error or a timeout", _OF_STARTED, "lower"),
    "unfinished": Definition("1", "turns still going at the end of the run", _OF_STARTED, "lower"),
    "barge_in_rate": Definition("1", "share of replies that the user cut short", _OF_SPOKEN, None),
    "barge_in_missed_rate": Definition(
        "1",
        "share of replies that had ended before the time that the workload drew for the user's interruption; of users "
        "who never interrupt it is 0",
        _OF_SPOKEN,
        None,
    ),
    **{
        f"kv_occupancy_{stage}_{statistic}": Definition(
            "1",
            f"{text} share of the KV blocks of the {WORDS[stage]} in use",
            "from the end of the first step to the end of the run; in use means referenced, not merely cached",
            None,
        )
        for stage in STAGES
        for statistic, text in (("mean", "mean over time"), ("peak", "largest"))
    },
    **{
        f"kv_block_seconds_{stage}": Definition(
            "block*s",
            f"KV blocks of the {WORDS[stage]} in use, integrated over time",
            "from the end of the first step to the end of the run; in use means referenced, not merely cached",
            "lower",
        )
        for stage in STAGES
    },
    **{name: each for stage in STAGES for name, each in stage_use_definitions(stage).items()},
    **_of_sessions(),
    "reloaded_turns": Definition(
        "1",
        "share of turns that waited for KV from host memory",
        "over turns that the first stage started",
        "lower",
    ),
    "reloaded_blocks": Definition(
        "block", "KV blocks loaded from host memory while their turn waited", _OF_STARTED, "lower"
    ),
    "preloaded_blocks": Definition(
        "block", "KV blocks that turns found because they were loaded before they came", _OF_STARTED, None
    ),
    "prefill_tokens_entry": Definition(
        "token",
        "prompt tokens that the first stage computed: new ones, and history whose KV was gone",
        "over its steps",
        "lower",
    ),
    "preemptions": Definition("1", "times a stage preempted a request", _OF_STARTED, "lower"),
}


def _expanded() -> dict[str, Definition]:
    return {
        f"{name}_{statistic}": replace(
            distribution.meaning,
            definition=f"{statistic.capitalize()} over turns: {distribution.meaning.definition}",
        )
        for name, distribution in DISTRIBUTIONS.items()
        for statistic in distribution.statistics
    }


DEFINITIONS: dict[str, Definition] = _expanded() | _SINGLE
"""Every metric that `harness.metrics.summary.summarise` returns, in its order."""

OWN_DEFINITIONS: dict[str, Definition] = {}
"""Definitions of metrics that only workload kinds of other packages have. It is filled as kinds are discovered
(`harness.kinds`)."""
HEADLINES: dict[str, tuple[str, ...]] = {}
"""Kind of workload of another package -> metrics that its tables show; filled as `OWN_DEFINITIONS` is."""


STATISTICS = {"p50": "P50", "p90": "P90", "mean": "Mean"}
_ORIGIN = "over jobs of which every step was answered; missing are the others that began"
MEANINGS: dict[str, tuple[str, str]] = {
    "job_time": (
        "s",
        "time of a job: from the begin of its first step, as scheduled, to the end of its last",
    ),
    "job_recorded": (
        "s",
        "time that the same jobs took when they were recorded, with gaps as they are replayed",
    ),
    "job_slowdown": ("1", "time of a job over that when it was recorded"),
    "job_tool_time": (
        "s",
        "of a job's time, gaps in which tools run or people think, where nothing else went on",
    ),
    "job_model_time": (
        "s",
        "of a job's time, all else: requests that nothing else covers, in the queue or served",
    ),
    "job_steps": ("1", "steps of a job, each a request, those of agents that it called included"),
}
_NEUTRAL = ("job_recorded", "job_tool_time", "job_steps")

JOB_DEFINITIONS: dict[str, Definition] = {
    "jobs": Definition("1", "jobs of which every step was answered", _ORIGIN, "higher"),
    **{
        f"{name}_{statistic}": Definition(
            unit, f"{word}: {meaning}", _ORIGIN, None if name in _NEUTRAL else "lower"
        )
        for name, (unit, meaning) in MEANINGS.items()
        for statistic, word in STATISTICS.items()
    },
}
