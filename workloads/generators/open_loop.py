"""Independent single-turn users: one arrival process each, the rest in common.

Workloads `poisson`, `gamma`, `weibull`, `constant`, `ramp` and `sharegpt`; others build on `single_turns`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, lengths
from workloads.distributions.lengths import Lengths, LengthTable, Part
from workloads.errors import UserError
from workloads.files.reading import say
from workloads.files.sharegpt_file import read_sharegpt
from workloads.generators.exchanges import PROMPT_LENGTHS, REPLY_LENGTHS, Content, ExchangeParams, exchange_columns
from workloads.seeds import Streams
from workloads.trace import Trace


class SingleTurnParams(ExchangeParams):
    """Parameters of users who ask once."""

    requests: int = Field(200, ge=1, le=10_000_000, description="number of requests")
    lengths: Path | None = Field(
        None, description="CSV of input_tokens, output_tokens[, weight] to draw pairs of lengths from"
    )
    reference_s: float | None = Field(
        None,
        gt=0,
        le=60,
        exclude_if=lambda seconds: seconds is None,
        description="spoken replies clone the voice of a recording of this length, s (replays; live runs send none); "
        "default: none is cloned",
    )
    voices: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        exclude_if=lambda voices: voices is None,
        description="such recordings in all, drawn for each request; default: each request has its own",
    )

    @model_validator(mode="after")
    def _one_source_of_lengths(self) -> SingleTurnParams:
        self.replaces("lengths", *PROMPT_LENGTHS, *REPLY_LENGTHS)
        if self.voices is not None and self.reference_s is None:
            raise ValueError("voices are those of recordings; set reference_s")
        return self

    def content(self, streams: Streams) -> Content:
        """Return the content of the requests, from the table of lengths or the laws."""
        if self.lengths is None:
            return self.drawn(streams, self.requests)
        table = LengthTable.read(self.lengths)
        prompt_tokens, reply_tokens = table.sample(streams("lengths"), self.requests)
        notes = [f"lengths: {len(table.input_tokens)} pairs of {self.lengths.name}"]
        return Content(prompt_tokens, reply_tokens, lambda rng, k: table.sample(rng, k)[1], notes)


class PoissonParams(SingleTurnParams):
    """Single turns that arrive at a mean rate."""

    rate: float = Field(1.0, ge=1e-6, le=1e6, description="arrivals per second")


class GammaParams(PoissonParams):
    """Extends PoissonParams by bursts."""

    cv: float = Field(2.5, ge=0.01, le=100, description="coefficient of variation of the gaps; 1 is Poisson")


class WeibullParams(PoissonParams):
    """Takes GammaParams for Weibull gaps."""

    cv: float = Field(2.5, ge=0.05, le=50, description="coefficient of variation of the gaps; 1 is Poisson")


class RampParams(PoissonParams):
    """Extends PoissonParams by a rate that rises or falls to a last value and stays there."""

    rate_end: float = Field(4.0, ge=1e-6, le=1e6, description="arrivals per second at the end of the ramp")
    ramp_s: float = Field(60.0, gt=0, le=1e7, description="length of the ramp, s")
    steps: int = Field(0, ge=0, le=10_000, description="climb in this number of equal steps; 0 is a straight line")


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
    """Return open-loop single turns: a Poisson process whose rate goes from `rate` to `rate_end`."""
    streams = Streams(seed)
    unit = arrivals.poisson(streams("arrivals"), 1.0, params.requests)
    times = arrivals.ramp(unit, params.rate, params.rate_end, params.ramp_s, params.steps)
    return single_turns("ramp", params, streams, times)


def single_turns(
    generator: str, params: SingleTurnParams, streams: Streams, arrival_s: np.ndarray, *notes: str
) -> Trace:
    """Return the trace of one exchange per arrival, spoken or typed according to `params`."""
    content = params.content(streams)
    columns = exchange_columns(params, streams, np.arange(len(arrival_s)), content)
    columns["reference_s"] = params.reference_s
    if params.voices is not None:
        columns["voice"] = streams("voices").integers(params.voices, size=len(arrival_s))
    return Trace.made(
        generator, params, streams, columns | {"turn": 0, "arrival_s": arrival_s}, [*notes, *content.notes]
    )


class ShareGptParams(PoissonParams):
    """Extends PoissonParams by exchanges taken from ShareGPT: from a file of conversations, or from the published
    statistics. The median reply of the source separates short and long, 300 tokens in ShareGPT-90k."""

    kind: Literal["all", "short", "long"] = Field("all", description="replies below or above the median, or all")
    path: Path | None = Field(
        None,
        description="conversations or vLLM's custom set (.json, .jsonl), or lengths (.csv, .csv.gz); default: "
        "published statistics",
    )
    skip_bad: bool = Field(False, description="go on past bad rows of the file, and note how many there were")

    @model_validator(mode="after")
    def _file_or_law(self) -> ShareGptParams:
        self.replaces("path", "lengths", "prompt_tokens", "prompt_sigma", "reply_tokens", "reply_sigma")
        if self.lengths is not None and self.kind != "all":
            raise ValueError(f"kind={self.kind} does not apply to lengths={self.lengths}; leave one of them out")
        return self

    def _reply_law(self) -> Lengths:
        law = super()._reply_law()
        return {"all": law, "short": Part(law, 0.0, 0.5), "long": Part(law, 0.5, 1.0)}[self.kind]

    def content(self, streams: Streams) -> Content:
        """Exchanges drawn from the file with replacement, or from the laws."""
        if self.path is None:
            return super().content(streams)
        notes: list[str] = []
        exchanges = read_sharegpt(self.path, notes, self.skip_bad)
        middle = lengths.SHAREGPT_REPLY.median
        replies = exchanges.reply_tokens
        chosen = {"all": replies > 0, "short": replies <= middle, "long": replies > middle}[self.kind]
        if not chosen.any():
            raise UserError(f"{self.path} has no {self.kind} reply (of {middle:g} tokens); set kind=all.")
        prompts, replies = exchanges.prompt_tokens[chosen], replies[chosen]
        notes.append(
            f"{self.kind} of {len(exchanges.turn)} exchanges drawn from: {len(prompts)}, ~4 characters a token"
        )
        prompts = _cut(prompts, self.max_prompt_tokens, lengths.SPOKEN_PROMPT.high, self.modality, "prompts", notes)
        replies = _cut(replies, self.max_reply_tokens, lengths.SPOKEN_REPLY.high, self.reply, "replies", notes)
        say(self.path, notes)
        rows = streams("lengths").choice(len(prompts), self.requests)
        return Content(prompts[rows], replies[rows], lambda rng, k: rng.choice(replies, k), notes)


def _cut(tokens: np.ndarray, limit: int | None, spoken: int, mode: str, what: str, notes: list[str]) -> np.ndarray:
    """Return lengths cut to the limits, or to what can be spoken in one go."""
    high = limit or (spoken if mode in ("audio", "speech") else None)
    if high is None:
        return tokens
    notes.append(f"{np.mean(tokens > high):.1%} of the {what} cut to {high} tokens")
    return np.minimum(tokens, high)


def sharegpt(params: ShareGptParams, seed: int) -> Trace:
    """Open-loop single turns with Poisson arrivals; UserError names file, entry and field of bad input."""
    streams = Streams(seed)
    times = arrivals.poisson(streams("arrivals"), params.rate, params.requests)
    return single_turns("sharegpt", params, streams, times)
