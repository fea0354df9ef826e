"""Single exchanges of ShareGPT, the short or the long ones: workload `sharegpt`.

Drawn from a file of conversations when one is given, else from the published statistics. The median reply of the
source separates short and long, 300 tokens in ShareGPT-90k.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, lengths
from workloads.distributions.lengths import Lengths, Part
from workloads.errors import UserError
from workloads.files.sharegpt_file import read_sharegpt
from workloads.generators.exchanges import Content
from workloads.generators.open_loop import PoissonParams, single_turns
from workloads.seeds import Streams
from workloads.trace import Trace


class ShareGptParams(PoissonParams):
    """Extends PoissonParams by exchanges taken from ShareGPT."""

    kind: Literal["all", "short", "long"] = Field(
        "all", description="replies below or above the median, or all"
    )
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
            raise ValueError(
                f"kind={self.kind} does not apply to lengths={self.lengths}; leave one of them out"
            )
        return self

    def _reply_law(self) -> Lengths:
        law = super()._reply_law()
        return {"all": law, "short": Part(law, 0.0, 0.5), "long": Part(law, 0.5, 1.0)}[self.kind]

    def content(self, streams: Streams) -> Content:
        """Exchanges drawn from the file with replacement, or from the laws."""
        if self.path is None:
            return super().content(streams)
        notes: list[str] = []
        found = read_sharegpt(self.path, notes, self.skip_bad)
        middle = lengths.SHAREGPT_REPLY.median
        replies = found.reply_tokens
        chosen = {"all": replies > 0, "short": replies <= middle, "long": replies > middle}[self.kind]
        if not chosen.any():
            raise UserError(f"{self.path} has no {self.kind} reply (of {middle:g} tokens); set kind=all.")
        prompts, replies = found.prompt_tokens[chosen], replies[chosen]
        notes.append(
            f"{self.kind} of {len(found.turn)} exchanges drawn from: {len(prompts)}, ~4 characters a token"
        )
        prompts = _cut(
            prompts, self.max_prompt_tokens, lengths.SPOKEN_PROMPT.high, self.modality, "prompts", notes
        )
        replies = _cut(
            replies, self.max_reply_tokens, lengths.SPOKEN_REPLY.high, self.reply, "replies", notes
        )
        rows = streams("lengths").choice(len(prompts), self.requests)
        return Content(prompts[rows], replies[rows], lambda rng, k: rng.choice(replies, k), notes)


def _cut(
    tokens: np.ndarray, asked: int | None, spoken: int, mode: str, what: str, notes: list[str]
) -> np.ndarray:
    """Return lengths cut to the limits, or to what can be spoken in one go."""
    high = asked or (spoken if mode in ("audio", "speech") else None)
    if high is None:
        return tokens
    notes.append(f"{np.mean(tokens > high):.1%} of the {what} cut to {high} tokens")
    return np.minimum(tokens, high)


def sharegpt(params: ShareGptParams, seed: int) -> Trace:
    """Open-loop single turns with Poisson arrivals; UserError names file, entry and field of bad input."""
    streams = Streams(seed)
    times = arrivals.poisson(streams("arrivals"), params.rate, params.requests)
    return single_turns("sharegpt", params, streams, times)
