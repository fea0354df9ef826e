"""A controlled trace for reload figures: all users bring a long context, then all speak again.

Each round has a target and `fillers`, connected at the same time. The target types a context of `history_tokens` and
gets a short reply; then each filler does, with `filler_tokens`; then they speak again in the order of their arrival,
so the least recently used context is always needed next. A pool that holds less than all of it (`pressure` above 1)
has evicted the target's by then, and its second turn shows what bringing it back costs. All users arrive at fixed
times, so run it in an open loop (no `c`), with `gap_s` long enough for a context to be read and answered.
"""

from typing import Any, Literal

import numpy as np
from pydantic import Field

from workloads.distributions import speech
from workloads.seeds import Streams
from workloads.trace import Trace, check_turns
from workloads.workload_params import ReplyParams


class RevisitParams(ReplyParams):
    """Sessions of two turns: a typed context, and later something spoken."""

    p: Literal[0] = Field(0, description="nobody interrupts: reloads are what is looked at")
    history_tokens: int = Field(
        36_000,
        ge=1,
        le=10_000_000,
        description="the target's context, text tokens; 36k of Qwen3-Omni are 3.5 GB: LiveServe's 71 ms at 50 GB/s",
    )
    fillers: int = Field(4, ge=0, le=10_000, description="sessions that come between the target's two turns")
    filler_tokens: int = Field(36_000, ge=1, le=10_000_000, description="a filler's context, text tokens")
    speech_s: float = Field(4.0, gt=0, le=600, description="length of the second turn's speech, s")
    reply_tokens: int = Field(20, ge=1, le=100_000, description="length of every reply, text tokens")
    gap_s: float = Field(12.0, gt=0, le=3600, description="from one session's turn to the next session's, s")
    rounds: int = Field(1, ge=1, le=10_000, description="targets, one after the other, each with its fillers")
    replicas: int = Field(
        1,
        ge=1,
        le=1000,
        description="thinker replicas of the deployment; sessions then have ids that all lead to the first one",
    )


def pressure(params: RevisitParams, kv_pool_blocks: int, block_size: int = 16) -> float:
    """Return the live context over the pool when the target speaks again.

    Tokens of a round's contexts and of the replies to them, over those of `kv_pool_blocks` (the server's parameter;
    one block of them is vLLM's null block).
    """
    contexts = params.history_tokens + params.fillers * params.filler_tokens
    replies = (1 + params.fillers) * params.reply_tokens
    return (contexts + replies) / ((kv_pool_blocks - 1) * block_size)


def revisit(params: RevisitParams, seed: int) -> Trace:
    """Two turns a session. Sessions stick to thinker replica id % replicas, so ids count in steps of `replicas`."""
    streams, each = Streams(seed), 1 + params.fillers
    check_turns(2 * params.rounds * each, "set fewer rounds or fillers")
    session = np.repeat(np.arange(params.rounds * each), 2)
    turn = np.tile([0, 1], params.rounds * each)
    round_, place = np.divmod(session, each)
    delays = speech.network_delays(streams("jitter"), params.network_ms, params.rounds * each)
    spoken = turn == 1
    context = np.where(place == 0, params.history_tokens, params.filler_tokens)
    columns: dict[str, Any] = {
        "session": session * params.replicas,
        "turn": turn,
        "arrival_s": ((2 * round_ + turn) * each + place) * params.gap_s,
        "modality": np.where(spoken, "audio", "text"),
        "audio_s": np.where(spoken, params.speech_s, np.nan),
        "input_tokens": np.where(spoken, speech.audio_tokens(np.full(len(turn), params.speech_s)), context),
        "output_tokens": params.reply_tokens,
        "network_s": delays[session],
    }
    if params.reply == "speech":
        columns["reply_audio_s"] = params.reply_tokens * speech.SPEECH_S_PER_TOKEN
    return Trace.made(
        "revisit",
        params,
        streams,
        columns,
        [f"targets: sessions {', '.join(str(k * each * params.replicas) for k in range(params.rounds))}"],
    )
