"""Lengths of prompts and replies in text tokens: laws fitted to published statistics, or tables.

A law is anything with `sample`, `adjusted` and a text with its parameters and source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

import numpy as np

from workloads.deferred import Deferred
from workloads.errors import UserError
from workloads.files.csv_file import CsvFile

ndtri = Deferred("scipy.special:ndtri")
"""The normal law's quantiles."""


class Lengths(Protocol):
    """A law of lengths in tokens."""

    @property
    def median(self) -> float: ...

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return n lengths in tokens, int64, shape (n,), all at least 1."""
        ...

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """The lengths (float) below which shares u in (0, 1) of all lie."""
        ...

    def adjusted(self, median: float | None, sigma: float | None, high: int | None) -> Lengths:
        """Return this law with the given values replaced; None keeps a value."""
        ...


@dataclass(frozen=True)
class LengthModel:
    """Lognormal with `median` and log-spread `sigma`, rounded and clipped to [low, high] tokens."""

    median: float
    sigma: float
    low: int
    high: int
    source: str

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        raw = self.median * np.exp(self.sigma * rng.standard_normal(n))
        return np.rint(np.clip(raw, self.low, self.high)).astype(np.int64)

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return np.clip(self.median * np.exp(self.sigma * ndtri(u)), self.low, self.high)

    @classmethod
    def through(cls, mean: float, p99: float, high: int, source: str) -> LengthModel:
        """Return the lognormal of this mean and 99th percentile, clipped to [1, high].

        p99 = exp(mu + z sigma) and mean = exp(mu + sigma^2 / 2) leave sigma^2 - 2 z sigma + 2 ln(p99 / mean) = 0; the
        smaller root is used. ValueError when p99 is more than 15 times the mean.
        """
        z = NormalDist().inv_cdf(0.99)
        square = z**2 - 2 * np.log(p99 / mean)
        if square < 0:
            raise ValueError(f"no lognormal has mean {mean} and P99 {p99}")
        sigma = z - float(np.sqrt(square))
        note = f"{source}: mean {mean:g}, P99 {p99:g}"
        return cls(round(mean * float(np.exp(-(sigma**2) / 2)), 1), round(sigma, 3), 1, high, note)

    def adjusted(self, median: float | None, sigma: float | None, high: int | None) -> LengthModel:
        """Return this model with the given values replaced; the lower clip gives way to a smaller upper one."""
        wanted = {"median": median, "sigma": sigma, "high": high}
        given = {k: v for k, v in wanted.items() if v not in (None, getattr(self, k))}
        if not given:
            return self
        low = min(self.low, given.get("high", self.high))
        return replace(self, **given, low=low, source=f"{self.source}; {', '.join(given)} set by the user")

    def __str__(self) -> str:
        clip = f"[{self.low}, {self.high}]"
        return f"lognormal median {self.median:g}, sigma {self.sigma:g}, clipped to {clip} ({self.source})"


@dataclass(frozen=True)
class QuantileTable:
    """A law given by its quantiles: between them the logarithm of the length is linear in the share."""

    shares: tuple[float, ...]
    values: tuple[float, ...]
    source: str

    @property
    def median(self) -> float:
        return float(self.quantile(np.array(0.5)))

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return np.exp(np.interp(u, self.shares, np.log(self.values)))

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.maximum(np.rint(self.quantile(rng.random(n))), 1).astype(np.int64)

    def adjusted(self, median: float | None, sigma: float | None, high: int | None) -> Lengths:
        """The table scaled to a median and cut at `high`; with a log-spread it is a table no more."""
        if sigma is not None:
            law = LengthModel(self.median, sigma, 1, round(self.values[-1]), self.source)
            return law.adjusted(median, None, high)
        factor = 1.0 if median is None else median / self.median
        top = np.inf if high is None else high
        values = tuple(float(min(max(v * factor, 1), top)) for v in self.values)
        if values == self.values:
            return self
        return replace(self, values=values, source=f"{self.source}; scaled or cut by the user")

    def __str__(self) -> str:
        span = f"{self.values[0]:g} to {self.values[-1]:g}, median {self.median:g}"
        return f"table of quantiles {span} ({self.source})"


@dataclass(frozen=True)
class Part:
    """The part of a law between two shares of it, such as its shorter half."""

    law: Lengths
    low: float
    high: float

    @property
    def median(self) -> float:
        return float(self.quantile(np.array(0.5)))

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """The lengths (float) below which shares u in (0, 1) of the part lie."""
        return self.law.quantile(self.low + (self.high - self.low) * u)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.maximum(np.rint(self.quantile(rng.random(n))), 1).astype(np.int64)

    def adjusted(self, median: float | None, sigma: float | None, high: int | None) -> Lengths:
        """The same part of the adjusted law: `median` is the whole law's."""
        return replace(self, law=self.law.adjusted(median, sigma, high))

    def __str__(self) -> str:
        return f"from {self.low:.0%} to {self.high:.0%} of: {self.law}"


@dataclass(frozen=True)
class LengthTable:
    """Measured pairs of prompt and reply lengths, drawn together to keep their correlation."""

    input_tokens: np.ndarray
    output_tokens: np.ndarray
    weights: np.ndarray | None

    @classmethod
    def read(cls, path: Path) -> LengthTable:
        """A CSV with columns input_tokens, output_tokens and, where rows count differently, weight."""
        file = CsvFile(path)
        inputs, outputs = (file.counts(file.require([name])) for name in ("input_tokens", "output_tokens"))
        for name, values in (("input_tokens", inputs), ("output_tokens", outputs)):
            file.refuse(values < 1, name, "is less than 1 token")
        column = file.find(["weight"])
        weights = file.numbers(column) if column else None
        if weights is not None:
            if not weights.any():
                raise UserError(f"{path}: every weight is 0; give at least one row a weight.")
            weights = weights / weights.sum()
        return cls(inputs, outputs, weights)

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """n pairs of prompt and reply lengths in tokens, two int64 arrays of shape (n,)."""
        rows = rng.choice(len(self.input_tokens), n, p=self.weights)
        return self.input_tokens[rows], self.output_tokens[rows]


# Lognormal with mean m and median d has sigma = sqrt(2 ln(m/d)).
# Replies of ShareGPT-90k: mean 457, median about 300 give 0.92, whose P99 of 2550 meets the published 2600.
SHAREGPT_REPLY = LengthModel(
    300, 0.92, 8, 4096, "ShareGPT-90k responses: mean 457, P50 300 (YitaoYuan/sharegpt-statistics)"
)
# New prompts: mean 84 (same statistics); the median of 79 characters in a ShareGPT V3 sample is about 20
# tokens. They give 1.69, whose P90 of 175 tokens meets the sample's 614 characters.
SHAREGPT_PROMPT = LengthModel(
    20, 1.69, 2, 4096, "ShareGPT-90k new prompts: mean 84 (YitaoYuan/sharegpt-statistics); P50 79 characters (V3)"
)
# A reply of 300 tokens would be 84 s of speech. Spoken assistants answer in some 17 s: 60 tokens at 0.28 s.
SPOKEN_REPLY = replace(
    SHAREGPT_REPLY, median=60, high=512, source="choice: 17 s of speech, spread as ShareGPT-90k responses"
)
# The same prompts read aloud; push-to-talk does not last minutes, so the clip is 36 s of speech.
SPOKEN_PROMPT = replace(SHAREGPT_PROMPT, high=128, source=SHAREGPT_PROMPT.source + "; choice: at most 36 s of speech")
# Measured on the answered rows of the first 400 of BurstGPT_1 (383), all of them of the quiet hours of a
# night and the morning after. A lognormal fits them badly (KS 0.11 and 0.15): short greetings and long
# papers, little between.
_BURSTGPT = "first 400 rows of BurstGPT_1, CC-BY-4.0"
_SHARES = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
BURSTGPT_REQUEST = QuantileTable(
    _SHARES, (9, 12, 18, 23, 43, 100, 202, 353, 512, 757, 1036, 1437, 1639, 1958, 2126), _BURSTGPT
)
BURSTGPT_RESPONSE = QuantileTable(
    _SHARES, (2, 5, 14, 19, 45, 85, 178, 238, 297, 351, 427, 584, 842, 1425, 2019), _BURSTGPT
)
# Chat requests whose prompts hold the conversation so far, as ConServe took them of BurstGPT.
_CONSERVE = "ConServe, Table 1, BurstGPT"
BURSTGPT_CHAT = {
    "input_tokens": LengthModel.through(2747, 3446, 32_768, _CONSERVE),
    "output_tokens": LengthModel.through(267, 481, 4096, _CONSERVE),
}
# Questions of StreamingBench (real_stream, 2,495), alone as they are asked and with their options as they are typed,
# in characters by 4 to the token.
_STREAMINGBENCH = "StreamingBench, questions_real_stream, MIT; 4 characters a token"
SPOKEN_QUESTION = QuantileTable(_SHARES, (6, 8, 9, 9, 11, 12, 14, 15, 16, 18, 20, 23, 24, 25, 34), _STREAMINGBENCH)
TYPED_QUESTION = QuantileTable(
    _SHARES, (15, 19, 22, 25, 29, 30, 34, 38, 43, 50, 59, 95, 110, 127, 150), _STREAMINGBENCH
)
# Questions and answers of RAGPulse, a university's question answering, mostly in Chinese: all 7,106 requests.
_RAGPULSE = "RAGPulse, one week, MIT"
_RAGPULSE_SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
RAGPULSE_QUERY = QuantileTable(_RAGPULSE_SHARES, (1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 12, 16, 28), _RAGPULSE)
RAGPULSE_REPLY = QuantileTable(
    _RAGPULSE_SHARES, (36, 66, 83, 113, 151, 191, 234, 284, 347, 436, 563, 670, 891), _RAGPULSE
)
