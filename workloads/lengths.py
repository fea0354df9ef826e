"""How long prompts and replies are, in text tokens: clipped lognormals fitted to published statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class LengthModel:
    """Lognormal with `median` and log-spread `sigma`, rounded and clipped to [low, high] tokens."""

    median: float
    sigma: float
    low: int
    high: int
    source: str

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n lengths in tokens, int64, shape (n,)."""
        raw = self.median * np.exp(self.sigma * rng.standard_normal(n))
        return np.rint(np.clip(raw, self.low, self.high)).astype(np.int64)

    def adjusted(self, median: float | None, sigma: float | None, high: int | None) -> LengthModel:
        """This model with what is not None replaced; the lower clip gives way to a smaller upper one."""
        wanted = {"median": median, "sigma": sigma, "high": high}
        given = {k: v for k, v in wanted.items() if v not in (None, getattr(self, k))}
        if not given:
            return self
        low = min(self.low, given.get("high", self.high))
        return replace(self, **given, low=low, source=f"{self.source}; {', '.join(given)} set by the user")

    def __str__(self) -> str:
        clip = f"[{self.low}, {self.high}]"
        return f"lognormal median {self.median:g}, sigma {self.sigma:g}, clipped to {clip} ({self.source})"


# Lognormal with mean m and median d has sigma = sqrt(2 ln(m/d)).
# Replies of ShareGPT-90k: mean 457, median about 300 give 0.92, whose P99 of 2550 meets the published 2600.
SHAREGPT_REPLY = LengthModel(
    300, 0.92, 8, 4096, "ShareGPT-90k responses: mean 457, P50 300 (YitaoYuan/sharegpt-statistics)"
)
# New prompts: mean 84 (same statistics); the median of 79 characters in a ShareGPT V3 sample is about 20
# tokens. They give 1.69, whose P90 of 175 tokens meets the sample's 614 characters.
SHAREGPT_PROMPT = LengthModel(
    20,
    1.69,
    2,
    4096,
    "ShareGPT-90k new prompts: mean 84 (YitaoYuan/sharegpt-statistics); P50 79 characters (V3)",
)
# A reply of 300 tokens would be 84 s of speech. Spoken assistants answer in some 17 s: 60 tokens at 0.28 s.
SPOKEN_REPLY = replace(
    SHAREGPT_REPLY, median=60, high=512, source="choice: 17 s of speech, spread as ShareGPT-90k responses"
)
# The same prompts read aloud; nobody holds a button for minutes, so the clip is 36 s of speech.
SPOKEN_PROMPT = replace(
    SHAREGPT_PROMPT, high=128, source=SHAREGPT_PROMPT.source + "; choice: at most 36 s of speech"
)
