"""Long text or voice dialogues in which longer answers take longer to come back to: workload `interactive`.

Rounds per user are negative binomial with the mean that Bidaw (FAST '26) measured; no trace of its was
released. How they spread, and how the pause grows with the answer, is fitted on RAGPulse and BurstGPT_3.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, lengths, speech
from workloads.distributions.lengths import Lengths, QuantileTable, ndtri
from workloads.generators.dialogues import cut_history, number_turns, sum_before
from workloads.generators.exchanges import ExchangeParams, exchange_columns
from workloads.seeds import Streams
from workloads.trace import Trace

TURNS = 22.4  # Bidaw, mean rounds per user
# Turns after the first have mean m and variance m + m^2/r: r is 0.44 in RAGPulse and 0.38 in BurstGPT_3.
TURNS_SHAPE = 0.4
MAX_TURNS = 1000  # choice: the longest of BurstGPT_3's 135 sessions has 24
# RAGPulse, 2,996 gaps up to 1,800 s, which begin with the answering: least absolute deviation of their
# logarithms from that of 12.5 s and 0.113 s for each token of the answer before, and quantiles of what is
# left as a factor. Some users leave and come back, so the factor is no lognormal (KS 0.09 against 0.04).
READ_BASE_S, READ_S_PER_TOKEN = 12.5, 0.113
READ_FACTOR = QuantileTable(
    (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
    (0.02, 0.23, 0.35, 0.43, 0.57, 0.7, 0.84, 1, 1.21, 1.5, 2.04, 4.15, 8.78, 24.6, 77),
    "RAGPulse, one week, MIT",
)
READ_MAX_S = 1800.0  # the range of the fit: a user who returns later begins a new session
# A spoken answer is heard before the pause begins; see `workloads.generators.voice` for the pause.
HEARD_BASE_S = 1.0


class InteractiveParams(ExchangeParams):
    """Parameters of users of a chat or voice assistant who stay for many turns."""

    modality: Literal["audio", "text"] = Field("text", description="whether the user speaks or types the prompt")
    reply: Literal["speech", "text"] = Field("text", description="whether replies are spoken or text only")
    sessions: int = Field(64, ge=1, le=1_000_000, description="number of users")
    rate: float = Field(0.5, ge=1e-6, le=1e6, description="arriving users per second, Poisson")
    turns: float = Field(TURNS, ge=1, le=MAX_TURNS, description="mean turns per user, negative binomial")
    turns_shape: float = Field(
        TURNS_SHAPE, ge=0.01, le=1000, description="1 is geometric; smaller: a few users stay for most of the turns"
    )
    think_s: float | None = Field(
        None, ge=0, le=3600, description="median pause after an empty answer, s (default 12.5 read, 1 heard)"
    )
    think_s_per_token: float | None = Field(
        None, ge=0, le=10, description="more pause per token of the answer, s (default 0.113 read, 0 heard)"
    )
    think_sigma: float | None = Field(
        None, ge=0, le=3, description="log-spread of pauses, lognormal (default as in RAGPulse read, 0.8 heard)"
    )
    loop: Literal["closed", "open"] = Field(
        "closed", description="closed: users wait for the answer; open: every turn has its time whatever happens"
    )
    opening_tokens: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="context that every user brings with the first turn: seen (spoken turns) or read (typed ones)",
    )
    opening_turn: bool = Field(
        False,
        exclude_if=lambda opening_turn: not opening_turn,
        description="that context is a turn of its own before the others, answered with one token of text: sessions "
        "then begin with a context that was served once",
    )
    max_history_tokens: int | None = Field(
        None, ge=1, le=10_000_000, description="the client drops the older half of a longer conversation"
    )

    @model_validator(mode="after")
    def _who_keeps_the_context(self) -> InteractiveParams:
        if self.max_history_tokens is not None and self.modality == "audio":
            raise ValueError("max_history_tokens cuts what a client types anew; set modality=text or leave it out")
        return self

    @model_validator(mode="after")
    def _has_an_opening(self) -> InteractiveParams:
        if not self.opening_turn:
            return self
        if not self.opening_tokens:
            raise ValueError("opening_turn=true has no tokens; set opening_tokens too")
        if self.loop == "open" or self.max_history_tokens is not None:
            raise ValueError(
                "opening_turn=true needs users who wait for the answer and a whole conversation; set loop=closed and "
                "leave max_history_tokens out"
            )
        return self

    def _prompt_law(self) -> Lengths:
        return super()._prompt_law() if self.modality == "audio" else lengths.RAGPULSE_QUERY

    def _reply_law(self) -> Lengths:
        return super()._reply_law() if self.reply == "speech" else lengths.RAGPULSE_REPLY

    def pauses(self, rng: np.random.Generator, reply_tokens: np.ndarray) -> np.ndarray:
        """Pauses in s after answers of these lengths, shape as they."""
        spoken = self.reply == "speech"
        base = self.think_s if self.think_s is not None else HEARD_BASE_S if spoken else READ_BASE_S
        slope = self.think_s_per_token
        slope = slope if slope is not None else 0.0 if spoken else READ_S_PER_TOKEN
        share = rng.random(len(reply_tokens))
        if self.think_sigma is None and not spoken:
            factor = READ_FACTOR.quantile(share)
        else:
            sigma = speech.THINK_SIGMA if self.think_sigma is None else self.think_sigma
            factor = np.exp(sigma * ndtri(share))
        return np.minimum((base + slope * reply_tokens) * factor, speech.THINK_MAX_S if spoken else READ_MAX_S)


def numbers_of_turns(rng: np.random.Generator, mean: float, shape: float, n: int) -> np.ndarray:
    """Turns of n users, int64: 1 + negative binomial of this shape, `mean` in all, at most 1,000."""
    more = mean - 1
    return np.minimum(1 + rng.negative_binomial(shape, shape / (shape + more), n), MAX_TURNS)


def interactive(params: InteractiveParams, seed: int) -> Trace:
    """Dialogues of many turns. In an open loop a turn comes when the user is done with a reply given at
    once.
    """
    streams = Streams(seed)
    counts = numbers_of_turns(streams("turns"), params.turns, params.turns_shape, params.sessions)
    session, turn = number_turns(counts)
    content = params.drawn(streams, len(session))
    columns: dict[str, Any] = exchange_columns(params, streams, session, content) | {"turn": turn}
    if params.opening_tokens and not params.opening_turn:
        opening = np.where(turn == 0, params.opening_tokens, 0)
        columns["input_tokens"] = columns["input_tokens"] + opening
        if params.modality == "audio":
            columns["visual_tokens"] = opening
    starts = arrivals.poisson(streams("arrivals"), params.rate, params.sessions)
    before = np.where(turn > 0, np.roll(content.reply_tokens, 1), 0)
    pauses = params.pauses(streams("think"), before)
    if params.opening_turn:
        columns |= {"think_s": pauses, "arrival_s": np.full(len(turn), np.nan)}
        columns = _opened(columns, params.opening_tokens, params.modality == "audio", starts)
    elif params.loop == "closed":
        columns["think_s"] = np.where(turn > 0, pauses, np.nan)
        columns["arrival_s"] = np.where(turn == 0, starts[session], np.nan)
    else:
        taken = columns.get("audio_s", 0.0) + columns.get("reply_audio_s", np.zeros(len(session)))
        pause_after = np.append(np.where(turn > 0, pauses, 0.0)[1:], 0.0)
        columns["arrival_s"] = starts[session] + sum_before(taken + pause_after, turn)
    notes = list(content.notes)
    if params.max_history_tokens is not None:
        most = params.max_history_tokens
        inputs, history = cut_history(columns["input_tokens"], content.reply_tokens, turn, most)
        notes.append(f"{np.sum((turn > 0) & (history == 0))} turns after the older half was dropped, of {most}")
        columns |= {"input_tokens": inputs, "history_tokens": history}
    return Trace.made("interactive", params, streams, columns, notes)


def _opened(columns: dict[str, Any], tokens: int, seen: bool, starts: np.ndarray) -> dict[str, Any]:
    """Return the columns with one more turn at the begin of each session: `tokens` tokens, seen or read."""
    turn = columns["turn"]
    first = np.flatnonzero(turn == 0)
    opening = {"turn": -1, "arrival_s": starts, "modality": "text", "input_tokens": tokens, "output_tokens": 1}
    if seen:
        columns, opening = columns | {"visual_tokens": 0}, opening | {"visual_tokens": tokens}
    of_session = ("session", "network_s")

    def lengthened(name: str, values: Any) -> np.ndarray:
        each = np.broadcast_to(values, turn.shape)
        return np.insert(each, first, each[first] if name in of_session else opening.get(name, np.nan))

    longer = {name: lengthened(name, values) for name, values in columns.items()}
    return longer | {"turn": longer["turn"] + 1}
