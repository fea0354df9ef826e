"""Interaction sessions that come at so many per second: workload `metronome`, an open system.

A session is a call in which the user's audio never stops and the model answers in every frame. In a trace it is
one spoken turn as long as the call, whose output tokens are those of all frames.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from workloads import arrivals, speech
from workloads.params import WorkloadParams
from workloads.seeds import Streams
from workloads.trace import Trace

# Metronome, Fig. 7: 512 sessions offered at 8 per second; frames of 2 s, runs of 300 s. Its pool fills by 55
# tokens a frame, of which 28 are audio with its markers.
SESSIONS, RATE, DURATION_S, FRAME_S, TOKENS_PER_FRAME = 512, 8.0, 300.0, 2.0, 27.0
SESSION_CV, RUN_CV = 0.3, 0.25  # choice: users differ, and so do days


class CallParams(WorkloadParams):
    """Offered calls; how many are taken is the server's to say."""

    p: Literal[0] = Field(0, description="user and model speak at once, so nobody interrupts")
    sessions: int = Field(SESSIONS, ge=1, le=1_000_000, description="number of offered sessions")
    rate: float = Field(RATE, ge=1e-6, le=1e6, description="offered sessions per second")
    spacing: Literal["constant", "poisson"] = Field(
        "constant", description="law of the gaps between sessions"
    )
    duration_s: float = Field(DURATION_S, gt=0, le=86_400, description="length of a session, s")
    frame_s: float = Field(FRAME_S, gt=0, le=60, description="period of a frame, s")
    tokens_per_frame: float = Field(
        TOKENS_PER_FRAME, gt=0, le=10_000, description="mean output of a frame, text tokens"
    )


def calls(params: CallParams, seed: int) -> Trace:
    """Calls whose output differs from user to user and from seed to seed, as it does from day to day."""
    streams, n = Streams(seed), params.sessions
    if params.spacing == "constant":
        starts = arrivals.constant(params.rate, n)
    else:
        starts = arrivals.poisson(streams("arrivals"), params.rate, n)
    run = float(speech.lognormal(streams("run"), 1.0, RUN_CV, 1)[0])
    per_frame = params.tokens_per_frame * run * speech.lognormal(streams("replies"), 1.0, SESSION_CV, n)
    frames = np.ceil(params.duration_s / params.frame_s)
    audio_s = np.full(n, round(params.duration_s, 6))
    columns = {
        "session": np.arange(n),
        "turn": 0,
        "arrival_s": starts,
        "modality": "audio",
        "input_tokens": speech.audio_tokens(audio_s),
        "audio_s": audio_s,
        "output_tokens": np.maximum(np.rint(frames * per_frame), 1).astype(np.int64),
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n),
    }
    return Trace.from_columns(
        columns,
        generator="metronome",
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=streams.names,
        notes=[f"{frames:g} frames a session; this run's output is {run:.3f} of the mean"],
    )
