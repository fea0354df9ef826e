"""Agents that operate a phone by screenshots: workload `gui`, as Nova serves them.

A request is one screenshot with an instruction, and a short action as the reply. By default requests are
independent and come as a Poisson process, as in Nova's evaluation; with `chain` they are the steps of tasks, each
after the phone has carried out the action before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from workloads import arrivals, speech
from workloads.androidlab import read_androidlab
from workloads.dialogues import number_turns
from workloads.lengths import LengthModel
from workloads.params import WorkloadParams
from workloads.seeds import Streams
from workloads.trace import Trace

# AndroidLab, 138 instructions of 10.2 words on average and 29 at most, in characters by 4 to the token.
INSTRUCTION = LengthModel(12, 0.55, 2, 43, "AndroidLab, 138 instructions, MIT")
# How many of 138 tasks take a person 1, 2, 3, ... 16 steps (AndroidLab's ground_truth_length.json).
STEPS = (6, 19, 12, 14, 27, 9, 20, 8, 6, 9, 1, 3, 3, 0, 0, 1)
# CogAgent-9B cuts a screenshot of 1120 x 1120 pixels into patches of 14, of which 2 x 2 make a token: 1,600.
SCREENSHOT_PX, PATCH_PX = 1120, 28
# Nova: actions of 30 to 80 tokens, 40 to 60 on average.
ACTION_MEAN, ACTION_SD, ACTION_CLIP = 50.0, 10.0, (30, 80)
ACTED_S, ACTED_SIGMA = 1.5, 0.5  # choice: a phone takes 0.5 to 4 s from a tap to a quiet screen


class GuiParams(WorkloadParams):
    """Screenshots and instructions; what an agent does is not spoken."""

    p: Literal[0] = Field(0, description="nothing is spoken, so nobody interrupts")
    requests: int = Field(500, ge=1, le=1_000_000, description="number of requests; with chain, of tasks")
    rate: float = Field(
        0.5,
        ge=1e-6,
        le=1e6,
        description="arriving requests per second, Poisson; with chain, tasks (Nova: 0.3 to 0.8)",
    )
    chain: bool = Field(False, description="play tasks step by step, each step after the one before")
    path: Path | None = Field(
        None, description="folder of AndroidLab's .yaml files; default: statistics of its tasks"
    )
    skip_bad: bool = Field(False, description="go on past bad tasks, and note how many there were")
    screenshot_px: int = Field(
        SCREENSHOT_PX, ge=PATCH_PX, le=10_000, description="side of the square screenshot, pixels"
    )
    template_tokens: int = Field(
        0,
        ge=0,
        le=100_000,
        exclude_if=lambda tokens: not tokens,
        description="tokens around screenshot and instruction: what the agent is told to answer, and in which form",
    )
    acted_s: float = Field(
        ACTED_S, ge=0, le=600, description="with chain: median time from an action to the next screenshot, s"
    )


def gui(params: GuiParams, seed: int) -> Trace:
    """Requests of phone agents. A step of a chain shows a new screenshot, so nothing of the last one is reused."""
    streams, n, notes = Streams(seed), params.requests, list[str]()
    if params.path is None:
        instructions = INSTRUCTION.sample(streams("prompts"), n)
        steps = 1 + streams("steps").choice(len(STEPS), n, p=np.array(STEPS) / sum(STEPS))
        notes.append(f"instructions: {INSTRUCTION}")
    else:
        tasks = read_androidlab(params.path, notes, params.skip_bad)
        rows = streams("tasks").choice(len(tasks.steps), n)
        instructions, steps = tasks.instruction_tokens[rows], tasks.steps[rows]
    session, turn = number_turns(steps if params.chain else np.ones(n, np.int64))
    drawn = ACTION_MEAN + ACTION_SD * streams("replies").standard_normal(len(session))
    actions = np.rint(np.clip(drawn, *ACTION_CLIP)).astype(np.int64)
    visual = (params.screenshot_px // PATCH_PX) ** 2
    starts = arrivals.poisson(streams("arrivals"), params.rate, n)
    waits = params.acted_s * np.exp(ACTED_SIGMA * streams("think").standard_normal(len(session)))
    notes.append(
        f"screenshots of {visual} tokens; actions of {ACTION_CLIP[0]} to {ACTION_CLIP[1]} tokens (Nova)"
    )
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(turn == 0, starts[session], np.nan),
        "modality": "text",
        "input_tokens": instructions[session] + visual + params.template_tokens,
        "visual_tokens": visual,
        "output_tokens": actions,
        "think_s": np.where(turn > 0, waits, np.nan),
        "history_tokens": 0,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n)[session],
    }
    return Trace.from_columns(
        columns,
        generator="gui",
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=streams.names,
        notes=notes,
    )
