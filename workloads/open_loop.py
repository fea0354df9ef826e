"""Independent single-turn users who come at their own pace: workloads `poisson` and `gamma`."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from workloads import arrivals, lengths, speech
from workloads.lengths import LengthModel
from workloads.params import ReplyParams
from workloads.seeds import Streams
from workloads.trace import Trace


class PoissonParams(ReplyParams):
    """Poisson arrivals with ShareGPT-like lengths. A length of None takes the published model."""

    rate: float = Field(1.0, ge=1e-6, le=1e6, description="arrivals per second")
    requests: int = Field(200, ge=1, le=10_000_000, description="number of requests")
    modality: Literal["audio", "text"] = Field(
        "audio", description="whether the user speaks or types the prompt"
    )
    prompt_tokens: float | None = Field(
        None, gt=0, le=1_000_000, description="median prompt, text tokens (default 20)"
    )
    prompt_sigma: float | None = Field(None, ge=0, le=5, description="log-spread of prompts (default 1.69)")
    max_prompt_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="longest prompt (default 128 spoken, 4096 typed)"
    )
    reply_tokens: float | None = Field(
        None, gt=0, le=1_000_000, description="median reply, text tokens (default 60 spoken, 300 as text)"
    )
    reply_sigma: float | None = Field(None, ge=0, le=5, description="log-spread of replies (default 0.92)")
    max_reply_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="longest reply (default 512 spoken, 4096 as text)"
    )

    def prompts(self) -> LengthModel:
        model = lengths.SPOKEN_PROMPT if self.modality == "audio" else lengths.SHAREGPT_PROMPT
        return model.adjusted(self.prompt_tokens, self.prompt_sigma, self.max_prompt_tokens)

    def replies(self) -> LengthModel:
        model = lengths.SPOKEN_REPLY if self.reply == "speech" else lengths.SHAREGPT_REPLY
        return model.adjusted(self.reply_tokens, self.reply_sigma, self.max_reply_tokens)


class GammaParams(PoissonParams):
    """As PoissonParams, with bursts."""

    cv: float = Field(2.5, ge=0.01, le=100, description="coefficient of variation of the gaps; 1 is Poisson")


def poisson(params: PoissonParams, seed: int) -> Trace:
    """Open-loop single turns with Poisson arrivals."""
    streams = Streams(seed)
    return _trace(
        "poisson", params, streams, arrivals.poisson(streams("arrivals"), params.rate, params.requests)
    )


def gamma(params: GammaParams, seed: int) -> Trace:
    """Open-loop single turns with Gamma gaps."""
    streams = Streams(seed)
    times = arrivals.gamma(streams("arrivals"), params.rate, params.cv, params.requests)
    return _trace("gamma", params, streams, times)


def _trace(generator: str, params: PoissonParams, streams: Streams, arrival_s: np.ndarray) -> Trace:
    n = len(arrival_s)
    prompts, replies = params.prompts(), params.replies()
    prompt_tokens = prompts.sample(streams("prompts"), n)
    reply_tokens = replies.sample(streams("replies"), n)
    columns = {
        "session": np.arange(n),
        "turn": 0,
        "arrival_s": arrival_s,
        "modality": params.modality,
        "input_tokens": prompt_tokens,
        "output_tokens": reply_tokens,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n),
    }
    if params.modality == "audio":
        columns["audio_s"] = np.round(prompt_tokens * speech.speech_rate(streams("user_speech_rate"), n), 6)
        columns["input_tokens"] = speech.audio_tokens(columns["audio_s"])
    if params.reply == "speech":
        columns["reply_audio_s"] = reply_tokens * speech.speech_rate(streams("reply_speech_rate"), n)
        columns["barge_in_after_s"] = speech.barge_ins(
            streams("barge_in"),
            params.p,
            n,
            lambda rng, k: replies.sample(rng, k) * speech.speech_rate(rng, k),
        )
    return Trace.from_columns(
        columns,
        generator=generator,
        params=params.model_dump(mode="json"),
        seed=streams.seed,
        streams=streams.names,
        notes=[f"prompts: {prompts}", f"replies: {replies}"],
    )
