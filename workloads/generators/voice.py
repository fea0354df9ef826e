"""Spoken dialogues of one or more turns, in which users may interrupt: workload `voice`."""

import numpy as np
from pydantic import Field

from workloads.distributions import arrivals, speech
from workloads.generators.dialogues import DialogueParams, number_turns
from workloads.seeds import Streams
from workloads.trace import Trace


class VoiceParams(DialogueParams):
    """Sessions arrive as a Poisson process; the client bounds the concurrent ones."""

    utterance_s: float = Field(3.0, gt=0, le=30, description="median length of the user's speech, s")
    # Choice. Between people the median gap is 0.1 to 0.3 s, as listeners plan while they listen (CANDOR:
    # 0.08 s); planning takes over 0.6 s (Levinson and Torreira 2015), and here the machine ends first.
    think_s: float = Field(1.0, ge=0, le=30, description="median pause between a reply and the user's next turn, s")


def voice(params: VoiceParams, seed: int) -> Trace:
    """Multi-turn speech sessions; each talks at its own rate on all its turns."""
    streams = Streams(seed)
    counts = streams("turns").geometric(1 / params.turns, params.sessions)
    session, turn = number_turns(counts)
    n = len(session)
    replies = params.replies
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
            streams("barge_in"), params.p, n, lambda rng, k: replies.sample(rng, k) * speech.speech_rate(rng, k)
        ),
        "network_s": delays[session],
    }
    return Trace.made("voice", params, streams, columns, [f"replies: {replies}"])
