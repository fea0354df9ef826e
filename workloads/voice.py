"""Spoken dialogues of one or more turns, in which users may interrupt: workload `voice`."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from workloads import arrivals, lengths, speech
from workloads.dialogues import number_turns
from workloads.params import WorkloadParams
from workloads.seeds import Streams
from workloads.trace import Trace


class VoiceParams(WorkloadParams):
    """Sessions arrive as a Poisson process; the client bounds how many are on line at once."""

    sessions: int = Field(64, ge=1, le=1_000_000, description="number of calls")
    turns: float = Field(
        3.0, ge=1, le=1000, description="mean turns per call, geometric; 1 is exactly one turn each"
    )
    rate: float = Field(2.0, ge=1e-6, le=1e6, description="arriving calls per second, Poisson")
    utterance_s: float = Field(3.0, gt=0, le=30, description="median length of the user's speech, s")
    # Choice. Between people the median gap is 0.1 to 0.3 s, as listeners plan while they listen (CANDOR:
    # 0.08 s); planning takes over 0.6 s (Levinson and Torreira 2015), and here the machine ends first.
    think_s: float = Field(
        1.0, ge=0, le=30, description="median pause between a reply and the user's next turn, s"
    )
    reply_tokens: float = Field(
        lengths.SPOKEN_REPLY.median, gt=0, le=1_000_000, description="median reply, text tokens"
    )
    reply_sigma: float = Field(lengths.SPOKEN_REPLY.sigma, ge=0, le=5, description="log-spread of replies")
    max_reply_tokens: int = Field(
        lengths.SPOKEN_REPLY.high, ge=1, le=1_000_000, description="longest reply, text tokens"
    )


def voice(params: VoiceParams, seed: int) -> Trace:
    """Multi-turn speech sessions; each talks at its own rate on all its turns."""
    streams = Streams(seed)
    counts = streams("turns").geometric(1 / params.turns, params.sessions)
    session, turn = number_turns(counts)
    n = len(session)
    replies = lengths.SPOKEN_REPLY.adjusted(params.reply_tokens, params.reply_sigma, params.max_reply_tokens)
    starts = arrivals.poisson(streams("arrivals"), params.rate, params.sessions)
    rates = speech.speech_rate(streams("reply_speech_rate"), params.sessions)
    delays = speech.network_delays(streams("jitter"), params.network_ms, params.sessions)
    audio_s = speech.utterances(streams("utterances"), params.utterance_s, n)
    reply_tokens = replies.sample(streams("replies"), n)
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(turn == 0, starts[session], np.nan),
        "modality": "audio",
        "input_tokens": speech.audio_tokens(audio_s),
        "audio_s": audio_s,
        "output_tokens": reply_tokens,
        "reply_audio_s": reply_tokens * rates[session],
        "think_s": np.where(turn > 0, speech.think_times(streams("think"), params.think_s, n), np.nan),
        "barge_in_after_s": speech.barge_ins(
            streams("barge_in"),
            params.p,
            n,
            lambda rng, k: replies.sample(rng, k) * speech.speech_rate(rng, k),
        ),
        "network_s": delays[session],
    }
    return Trace.from_columns(
        columns,
        generator="voice",
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=streams.names,
        notes=[f"replies: {replies}"],
    )
