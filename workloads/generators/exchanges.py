"""The content of exchanges between user and model, spoken or typed: the columns that all such workloads share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from workloads.distributions import lengths, speech
from workloads.distributions.lengths import Lengths
from workloads.seeds import Streams
from workloads.workload_params import ReplyParams


@dataclass(frozen=True)
class Content:
    """The content of n exchanges, in text tokens, int64 of shape (n,); `redraw` draws other replies."""

    prompt_tokens: np.ndarray
    reply_tokens: np.ndarray
    redraw: Callable[[np.random.Generator, int], np.ndarray]
    notes: list[str]


PROMPT_LENGTHS = ("prompt_tokens", "prompt_sigma", "max_prompt_tokens")
REPLY_LENGTHS = ("reply_tokens", "reply_sigma", "max_reply_tokens")


class ExchangeParams(ReplyParams):
    """ShareGPT-like lengths. A length of None takes the published model."""

    modality: Literal["audio", "text"] = Field("audio", description="whether the user speaks or types the prompt")
    prompt_tokens: float | None = Field(None, gt=0, le=1_000_000, description="median prompt, text tokens (default 20)")
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

    speech_s_per_token: float | None = Field(
        None,
        gt=0,
        le=60,
        exclude_if=lambda seconds: seconds is None,
        description="seconds of speech of a text token of the reply, median of the sessions (default 0.28)",
    )
    speech_sigma: float | None = Field(
        None,
        ge=0,
        le=2,
        exclude_if=lambda sigma: sigma is None,
        description="log-spread of that over sessions (default 0.15)",
    )

    def prompts(self) -> Lengths:
        return self._prompt_law().adjusted(self.prompt_tokens, self.prompt_sigma, self.max_prompt_tokens)

    def replies(self) -> Lengths:
        return self._reply_law().adjusted(self.reply_tokens, self.reply_sigma, self.max_reply_tokens)

    def _prompt_law(self) -> Lengths:
        return lengths.SPOKEN_PROMPT if self.modality == "audio" else lengths.SHAREGPT_PROMPT

    def _reply_law(self) -> Lengths:
        return lengths.SPOKEN_REPLY if self.reply == "speech" else lengths.SHAREGPT_REPLY

    def replaces(self, source: str, *names: str) -> None:
        """ValueError if a length is given although parameter `source` already sets the content."""
        given = [name for name in names if getattr(self, name) is not None]
        if getattr(self, source) is not None and given:
            raise ValueError(f"{source}={getattr(self, source)} replaces {given[0]}; leave one of them out")

    def drawn(self, streams: Streams, n: int) -> Content:
        prompts, replies = self.prompts(), self.replies()
        return Content(
            prompts.sample(streams("prompts"), n),
            replies.sample(streams("replies"), n),
            replies.sample,
            [f"prompts: {prompts}", f"replies: {replies}"],
        )


def exchange_columns(params: ExchangeParams, streams: Streams, session: np.ndarray, content: Content) -> dict[str, Any]:
    """Return the columns of a trace from its exchanges, one value per turn; only the times are missing.

    session: index 0.. of the session of each turn. User and model of a session speak at their own rates.
    """
    n, n_sessions = len(session), int(session.max()) + 1
    columns: dict[str, Any] = {
        "session": session,
        "modality": params.modality,
        "input_tokens": content.prompt_tokens,
        "output_tokens": content.reply_tokens,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n_sessions)[session],
    }
    if params.modality == "audio":
        rates = speech.speech_rate(streams("user_speech_rate"), n_sessions)[session]
        columns["audio_s"] = np.round(content.prompt_tokens * rates, 6)
        columns["input_tokens"] = speech.audio_tokens(columns["audio_s"])
    if params.reply == "speech":
        rates = speech.speech_rate(
            streams("reply_speech_rate"), n_sessions, params.speech_s_per_token, params.speech_sigma
        )[session]
        columns["reply_audio_s"] = content.reply_tokens * rates
        columns["barge_in_after_s"] = speech.barge_ins(
            streams("barge_in"), params.p, n, lambda rng, k: content.redraw(rng, k) * speech.speech_rate(rng, k)
        )
    return columns
