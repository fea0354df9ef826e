"""Independent single-turn users who come at their own pace: one arrival process each, the rest in common.

Workloads `poisson`, `gamma`, `weibull`, `constant` and `ramp`; others build on `single_turns`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from workloads import arrivals, lengths, speech
from workloads.lengths import Lengths, LengthTable
from workloads.params import ReplyParams
from workloads.seeds import Streams
from workloads.trace import Trace


@dataclass(frozen=True)
class Content:
    """What is said in n exchanges, in text tokens, int64 of shape (n,); `redraw` draws other replies."""

    prompt_tokens: np.ndarray
    reply_tokens: np.ndarray
    redraw: Callable[[np.random.Generator, int], np.ndarray]
    notes: list[str]


class SingleTurnParams(ReplyParams):
    """ShareGPT-like lengths. A length of None takes the published model."""

    requests: int = Field(200, ge=1, le=10_000_000, description="number of requests")
    modality: Literal["audio", "text"] = Field(
        "audio", description="whether the user speaks or types the prompt"
    )
    lengths: Path | None = Field(
        None, description="CSV of input_tokens, output_tokens[, weight] to draw pairs of lengths from"
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

    @model_validator(mode="after")
    def _one_source_of_lengths(self) -> SingleTurnParams:
        law = ("prompt_tokens", "prompt_sigma", "max_prompt_tokens", "reply_tokens", "reply_sigma")
        given = [name for name in (*law, "max_reply_tokens") if getattr(self, name) is not None]
        if self.lengths is not None and given:
            raise ValueError(f"lengths={self.lengths} replaces {given[0]}; leave one of them out")
        return self

    def prompts(self) -> Lengths:
        """The law of prompts."""
        return self._prompt_law().adjusted(self.prompt_tokens, self.prompt_sigma, self.max_prompt_tokens)

    def replies(self) -> Lengths:
        """The law of replies."""
        return self._reply_law().adjusted(self.reply_tokens, self.reply_sigma, self.max_reply_tokens)

    def _prompt_law(self) -> Lengths:
        return lengths.SPOKEN_PROMPT if self.modality == "audio" else lengths.SHAREGPT_PROMPT

    def _reply_law(self) -> Lengths:
        return lengths.SPOKEN_REPLY if self.reply == "speech" else lengths.SHAREGPT_REPLY

    def content(self, streams: Streams) -> Content:
        """What is said, from the table of lengths or the laws."""
        n = self.requests
        if self.lengths is not None:
            table = LengthTable.read(self.lengths)
            prompt_tokens, reply_tokens = table.sample(streams("lengths"), n)
            told = [f"lengths: {len(table.input_tokens)} pairs of {self.lengths.name}"]
            return Content(prompt_tokens, reply_tokens, lambda rng, k: table.sample(rng, k)[1], told)
        prompts, replies = self.prompts(), self.replies()
        return Content(
            prompts.sample(streams("prompts"), n),
            replies.sample(streams("replies"), n),
            replies.sample,
            [f"prompts: {prompts}", f"replies: {replies}"],
        )


class PoissonParams(SingleTurnParams):
    """Single turns that arrive at a mean rate."""

    rate: float = Field(1.0, ge=1e-6, le=1e6, description="arrivals per second")


class GammaParams(PoissonParams):
    """As PoissonParams, with bursts."""

    cv: float = Field(2.5, ge=0.01, le=100, description="coefficient of variation of the gaps; 1 is Poisson")


class WeibullParams(PoissonParams):
    """As GammaParams, with Weibull gaps."""

    cv: float = Field(2.5, ge=0.05, le=50, description="coefficient of variation of the gaps; 1 is Poisson")


class RampParams(PoissonParams):
    """As PoissonParams, with a rate that rises or falls to a last value and stays there."""

    rate_end: float = Field(4.0, ge=1e-6, le=1e6, description="arrivals per second at the end of the ramp")
    ramp_s: float = Field(60.0, gt=0, le=1e7, description="length of the ramp, s")
    steps: int = Field(0, ge=0, le=10_000, description="climb in so many equal steps; 0 is a straight line")


def poisson(params: PoissonParams, seed: int) -> Trace:
    """Open-loop single turns with Poisson arrivals."""
    streams = Streams(seed)
    times = arrivals.poisson(streams("arrivals"), params.rate, params.requests)
    return single_turns("poisson", params, streams, times)


def gamma(params: GammaParams, seed: int) -> Trace:
    """Open-loop single turns with Gamma gaps."""
    streams = Streams(seed)
    times = arrivals.gamma(streams("arrivals"), params.rate, params.cv, params.requests)
    return single_turns("gamma", params, streams, times)


def weibull(params: WeibullParams, seed: int) -> Trace:
    """Open-loop single turns with Weibull gaps."""
    streams = Streams(seed)
    times = arrivals.weibull(streams("arrivals"), params.rate, params.cv, params.requests)
    return single_turns("weibull", params, streams, times)


def constant(params: PoissonParams, seed: int) -> Trace:
    """Open-loop single turns, each 1/rate after the one before."""
    return single_turns("constant", params, Streams(seed), arrivals.constant(params.rate, params.requests))


def ramp(params: RampParams, seed: int) -> Trace:
    """Open-loop single turns: a Poisson process whose rate goes from `rate` to `rate_end`."""
    streams = Streams(seed)
    unit = arrivals.poisson(streams("arrivals"), 1.0, params.requests)
    times = arrivals.ramp(unit, params.rate, params.rate_end, params.ramp_s, params.steps)
    return single_turns("ramp", params, streams, times)


def single_turns(
    generator: str, params: SingleTurnParams, streams: Streams, arrival_s: np.ndarray, *notes: str
) -> Trace:
    """The trace of one exchange per arrival, spoken or typed as `params` say."""
    n = len(arrival_s)
    content = params.content(streams)
    columns = {
        "session": np.arange(n),
        "turn": 0,
        "arrival_s": arrival_s,
        "modality": params.modality,
        "input_tokens": content.prompt_tokens,
        "output_tokens": content.reply_tokens,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n),
    }
    if params.modality == "audio":
        spoken_s = content.prompt_tokens * speech.speech_rate(streams("user_speech_rate"), n)
        columns["audio_s"] = np.round(spoken_s, 6)
        columns["input_tokens"] = speech.audio_tokens(columns["audio_s"])
    if params.reply == "speech":
        rates = speech.speech_rate(streams("reply_speech_rate"), n)
        columns["reply_audio_s"] = content.reply_tokens * rates
        columns["barge_in_after_s"] = speech.barge_ins(
            streams("barge_in"),
            params.p,
            n,
            lambda rng, k: content.redraw(rng, k) * speech.speech_rate(rng, k),
        )
    return Trace.from_columns(
        columns,
        generator=generator,
        params=params.model_dump(mode="json"),
        seed=streams.seed,
        streams=streams.names,
        notes=[*notes, *content.notes],
    )
