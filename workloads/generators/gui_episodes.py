"""GUI agents on a phone: workload `gui`, as Nova serves them, and `gui_episodes`, which finishes tasks.

A request is one screenshot with an instruction, and a short action as the reply. In `gui` requests are independent and
come as a Poisson process, as in Nova's evaluation; in `gui_episodes` they are the steps of tasks.

An episode is a closed loop: a screenshot and the instruction go in, the reply is a thought and an action, the phone
carries it out, and only then the next screenshot exists. So a slow reply delays everything after it. With `c`, that
many agents work at a time, each on the next task when it has finished one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, speech
from workloads.distributions.lengths import LengthModel
from workloads.files.androidlab import Tasks, read_tasks
from workloads.generators import burstgpt_fit
from workloads.generators.dialogues import number_turns, sum_before
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload_params import WorkloadParams

# AndroidLab, 138 instructions of 10.2 words on average and 29 at most, in characters by 4 to the token.
INSTRUCTION = LengthModel(12, 0.55, 2, 43, "AndroidLab, 138 instructions, MIT")
# CogAgent-9B cuts a screenshot of 1120 x 1120 pixels into patches of 14; 2 x 2 patches make a token: 1,600.
SCREENSHOT_PX, PATCH_PX = 1120, 28
# Nova: actions of 30 to 80 tokens, 40 to 60 on average.
ACTION_MEAN, ACTION_SD, ACTION_CLIP = 50.0, 10.0, (30, 80)


TASKS: Any = Field(
    None,
    description="tasks: folder of AndroidLab's .yaml files, or JSON lines of episodes with goal and actions as "
    "AndroidControl's; default: statistics of AndroidLab's tasks",
)
"""The parameter `path` of both workloads."""


class AgentParams(WorkloadParams):
    """Screenshots and instructions; what an agent does is not spoken."""

    p: Literal[0] = Field(0, description="nothing is spoken, so nobody interrupts")
    skip_bad: bool = Field(False, description="go on past bad tasks, and note how many there were")
    screenshot_px: int = Field(
        SCREENSHOT_PX, ge=PATCH_PX, le=10_000, description="side of the square screenshot, pixels"
    )
    scaffold_tokens: int = Field(
        0,
        ge=0,
        le=100_000,
        exclude_if=lambda tokens: not tokens,
        description="tokens around screenshot and instruction: the question and the form of the answer",
    )


class GuiParams(AgentParams):
    """Single steps of many agents."""

    requests: int = Field(500, ge=1, le=1_000_000, description="number of requests")
    rate: float = Field(0.5, ge=1e-6, le=1e6, description="arriving requests per second, Poisson (Nova: 0.3 to 0.8)")
    path: Path | None = TASKS


def gui(params: GuiParams, seed: int) -> Trace:
    """Independent requests of phone agents."""
    streams, n, notes = Streams(seed), params.requests, list[str]()
    if params.path is None:
        instructions = INSTRUCTION.sample(streams("prompts"), n)
        notes.append(f"instructions: {INSTRUCTION}")
    else:
        tasks = read_tasks(params.path, notes, params.skip_bad)
        instructions = tasks.instruction_tokens[streams("tasks").choice(len(tasks.steps), n)]
    visual = visual_tokens(params.screenshot_px)
    notes.append(f"screenshots of {visual} tokens; actions of {ACTION_CLIP[0]} to {ACTION_CLIP[1]} tokens (Nova)")
    columns = {
        "session": np.arange(n),
        "turn": 0,
        "arrival_s": arrivals.poisson(streams("arrivals"), params.rate, n),
        "modality": "text",
        "input_tokens": instructions + visual + params.scaffold_tokens,
        "visual_tokens": visual,
        "output_tokens": actions(streams("replies"), n),
        "history_tokens": 0,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n),
    }
    return Trace.made("gui", params, streams, columns, notes)


def actions(rng: np.random.Generator, n: int) -> np.ndarray:
    """Tokens of n thoughts with their actions, int64 of shape (n,)."""
    drawn = ACTION_MEAN + ACTION_SD * rng.standard_normal(n)
    return np.rint(np.clip(drawn, *ACTION_CLIP)).astype(np.int64)


def visual_tokens(screenshot_px: int) -> int:
    """Return the tokens of a square screenshot with this number of pixels per side."""
    return (screenshot_px // PATCH_PX) ** 2


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
    path: Path | None = TASKS
    steps: float | None = Field(
        None, ge=1, le=MAX_STEPS, description="mean steps of a task (default: as the tasks have them, AndroidLab 5.6)"
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
    action_tokens = sum_before(acted, turn) if params.history == "actions" else 0
    settled = params.settle_s * np.exp(SETTLE_SIGMA * streams("settle").standard_normal(len(session)))
    instructions = tasks.instruction_tokens[session]
    if params.history == "all":
        instructions = np.where(turn == 0, instructions, 0)
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(turn == 0, _starts(params, streams)[session], np.nan),
        "modality": "text",
        "input_tokens": instructions + action_tokens + shown + params.scaffold_tokens,
        "visual_tokens": shown,
        "output_tokens": acted,
        "think_s": np.where(turn > 0, params.wait_s + np.minimum(settled, SETTLE_MAX_S), np.nan),
        "history_tokens": np.nan if params.history == "all" else 0,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, params.episodes)[session],
    }
    notes.append(f"{len(session)} steps with screenshots of {shown} tokens; arrivals of tasks: {params.arrivals}")
    return Trace.made("gui_episodes", params, streams, columns, notes)


def _tasks(params: EpisodeParams, streams: Streams, notes: list[str]) -> Tasks:
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
