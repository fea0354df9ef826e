"""GUI agents on a phone: workload `gui`, as Nova serves them.

A request is one screenshot with an instruction, and a short action as the reply. Requests are independent and come as
a Poisson process, as in Nova's evaluation; `gui_episodes` has the tasks that they are steps of.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from workloads.distributions import arrivals, speech
from workloads.distributions.lengths import LengthModel
from workloads.files.androidlab import read_tasks
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload_params import WorkloadParams

# AndroidLab, 138 instructions of 10.2 words on average and 29 at most, in characters by 4 to the token.
INSTRUCTION = LengthModel(12, 0.55, 2, 43, "AndroidLab, 138 instructions, MIT")
# CogAgent-9B cuts a screenshot of 1120 x 1120 pixels into patches of 14; 2 x 2 patches make a token: 1,600.
SCREENSHOT_PX, PATCH_PX = 1120, 28
# Nova: actions of 30 to 80 tokens, 40 to 60 on average.
ACTION_MEAN, ACTION_SD, ACTION_CLIP = 50.0, 10.0, (30, 80)


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
    rate: float = Field(
        0.5, ge=1e-6, le=1e6, description="arriving requests per second, Poisson (Nova: 0.3 to 0.8)"
    )
    path: Path | None = Field(
        None,
        description="tasks: folder of AndroidLab's .yaml files, or JSON lines of episodes with goal and actions as "
        "AndroidControl's; default: statistics of AndroidLab's tasks",
    )


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
    notes.append(
        f"screenshots of {visual} tokens; actions of {ACTION_CLIP[0]} to {ACTION_CLIP[1]} tokens (Nova)"
    )
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
