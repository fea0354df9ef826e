"""GUI agents that finish tasks on a phone: workload `gui_episodes`.

An episode is a closed loop: a screenshot and the instruction go in, the reply is a thought and an action, the phone
carries it out, and only then the next screenshot exists. So a slow reply delays everything after it. With `c`, that
many agents work at a time, each on the next task when it has finished one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, speech
from workloads.files.androidlab import Tasks, read_tasks
from workloads.generators import burstgpt_fit
from workloads.generators.dialogues import number_turns, sum_before
from workloads.generators.gui import INSTRUCTION, AgentParams, actions, visual_tokens
from workloads.seeds import Streams
from workloads.trace import Trace

# How many of 138 tasks take a person 1, 2, 3, ... 16 steps (AndroidLab's ground_truth_length.json), 5.6 on average.
# Other collections by the mean of their steps: AndroidControl 4.8, AITW 6.5, AMEX 12.8, GUI-Odyssey 15.3 (AndroidLens,
# arXiv 2512.21302, Table 1). The best agents take 1.4 to 2.7 times the steps of a person on a desktop (OSWorld-Human,
# arXiv 2506.16042).
STEPS = (6, 19, 12, 14, 27, 9, 20, 8, 6, 9, 1, 3, 3, 0, 0, 1)
MAX_STEPS = 100  # choice: benchmarks stop an agent after 15 to 50
# From an action to the next screenshot, as AndroidWorld has it, which no collection measures: its agents wait 2 s after
# each action, and then until three looks at the screen, 0.5 s apart, find no change, for 6 s at most.
WAIT_S = 2.0
SETTLE_S, SETTLE_MAX_S = 1.0, 6.0
SETTLE_SIGMA = 0.5  # choice: a screen at rest passes after three looks, a page that loads after twelve
CV = 2.5  # the median of ServeGen's clients that send pictures is 1.4, their P90 5.0


class EpisodeParams(AgentParams):
    """Tasks for agents on phones, played step by step."""

    episodes: int = Field(100, ge=1, le=1_000_000, description="number of tasks")
    rate: float = Field(0.1, ge=1e-6, le=1e6, description="arriving tasks per second")
    arrivals: Literal["poisson", "gamma", "burstgpt"] = Field(
        "poisson", description="how tasks come: Poisson, gaps with a cv, or in BurstGPT's bursts"
    )
    cv: float | None = Field(
        None, ge=0.01, le=100, description=f"with arrivals=gamma: coefficient of variation (default {CV:g})"
    )
    path: Path | None = Field(
        None,
        description="tasks: folder of AndroidLab's .yaml files, or JSON lines of episodes with goal and actions as "
        "AndroidControl's; default: statistics of AndroidLab's tasks",
    )
    steps: float | None = Field(
        None,
        ge=1,
        le=MAX_STEPS,
        description="mean steps of a task (default: as the tasks have them, AndroidLab 5.6)",
    )
    history: Literal["none", "actions", "all"] = Field(
        "actions",
        description="what a step shows of those before: nothing, their thoughts and actions (CogAgent), or the "
        "screenshots as well, as one long dialogue",
    )
    wait_s: float = Field(WAIT_S, ge=0, le=600, description="time for an action and after it, s")
    settle_s: float = Field(
        SETTLE_S, ge=0, le=SETTLE_MAX_S, description="median time until the screen is quiet then, s"
    )

    @model_validator(mode="after")
    def _bursts_have_a_cv(self) -> EpisodeParams:
        if self.cv is not None and self.arrivals != "gamma":
            raise ValueError(f"cv={self.cv:g} is for arrivals=gamma, not {self.arrivals}; leave it out")
        return self


def gui_episodes(params: EpisodeParams, seed: int) -> Trace:
    """A session per task and a turn per step; `think_s` is the time from an action to the next screenshot."""
    streams, notes = Streams(seed), list[str]()
    tasks = _tasks(params, streams, notes)
    session, turn = number_turns(_scaled(tasks.steps, params.steps, streams))
    acted = actions(streams("replies"), len(session))
    shown = visual_tokens(params.screenshot_px)
    told = sum_before(acted, turn) if params.history == "actions" else 0
    settled = params.settle_s * np.exp(SETTLE_SIGMA * streams("settle").standard_normal(len(session)))
    instructions = tasks.instruction_tokens[session]
    if params.history == "all":
        instructions = np.where(turn == 0, instructions, 0)
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(turn == 0, _starts(params, streams)[session], np.nan),
        "modality": "text",
        "input_tokens": instructions + told + shown + params.scaffold_tokens,
        "visual_tokens": shown,
        "output_tokens": acted,
        "think_s": np.where(turn > 0, params.wait_s + np.minimum(settled, SETTLE_MAX_S), np.nan),
        "history_tokens": np.nan if params.history == "all" else 0,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, params.episodes)[session],
    }
    notes.append(
        f"{len(session)} steps with screenshots of {shown} tokens; arrivals of tasks: {params.arrivals}"
    )
    return Trace.made("gui_episodes", params, streams, columns, notes)


def _tasks(params: EpisodeParams, streams: Streams, notes: list[str]) -> Tasks:
    """One task per episode, drawn from a file or from AndroidLab's statistics."""
    n = params.episodes
    if params.path is None:
        notes.append(f"instructions: {INSTRUCTION}")
        steps = 1 + streams("steps").choice(len(STEPS), n, p=np.array(STEPS) / sum(STEPS))
        return Tasks(INSTRUCTION.sample(streams("prompts"), n), steps)
    tasks = read_tasks(params.path, notes, params.skip_bad)
    rows = streams("tasks").choice(len(tasks.steps), n)
    return Tasks(tasks.instruction_tokens[rows], tasks.steps[rows])


def _scaled(steps: np.ndarray, mean: float | None, streams: Streams) -> np.ndarray:
    """Return the steps of each episode, at most `MAX_STEPS`. With `mean` they are scaled so that `mean` is expected,
    and a fraction of a step is rounded at random."""
    if mean is None:
        return np.minimum(steps, MAX_STEPS)
    wanted = 1 + (steps - 1) * (mean - 1) / max(float(np.mean(steps - 1)), 1e-9)
    return np.clip(np.floor(wanted + streams("more steps").random(len(steps))), 1, MAX_STEPS).astype(np.int64)


def _starts(params: EpisodeParams, streams: Streams) -> np.ndarray:
    rng, n = streams("arrivals"), params.episodes
    match params.arrivals:
        case "poisson":
            return arrivals.poisson(rng, params.rate, n)
        case "gamma":
            return arrivals.gamma(rng, params.rate, CV if params.cv is None else params.cv, n)
        case "burstgpt":
            fit = burstgpt_fit
            return arrivals.modulated(rng, params.rate, fit.CV, fit.SWING, fit.REGIME, n)
