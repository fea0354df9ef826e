"""The vocabulary of jobs: what `harness.metrics.jobs` measures."""

from __future__ import annotations

from harness.metrics.definitions import Definition

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
