"""Sessions of several turns as columns: numbering, times of turns, and a context that grows and is cut."""

import numpy as np
from pydantic import Field

from workloads.distributions import lengths
from workloads.trace import check_turns
from workloads.workload_params import WorkloadParams


class DialogueParams(WorkloadParams):
    """Calls of several turns, with spoken replies."""

    sessions: int = Field(64, ge=1, le=1_000_000, description="number of calls")
    turns: float = Field(3.0, ge=1, le=1000, description="mean turns per call, geometric; 1 is exactly one turn each")
    rate: float = Field(2.0, ge=1e-6, le=1e6, description="arriving calls per second, Poisson")
    reply_tokens: float = Field(
        lengths.SPOKEN_REPLY.median, gt=0, le=1_000_000, description="median reply, text tokens"
    )
    reply_sigma: float = Field(lengths.SPOKEN_REPLY.sigma, ge=0, le=5, description="log-spread of replies")
    max_reply_tokens: int = Field(
        lengths.SPOKEN_REPLY.high, ge=1, le=1_000_000, description="longest reply, text tokens"
    )

    @property
    def replies(self) -> lengths.LengthModel:
        return lengths.SPOKEN_REPLY.adjusted(self.reply_tokens, self.reply_sigma, self.max_reply_tokens)


def number_turns(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (session, turn) of every row for sessions of these lengths, in order. UserError for too many."""
    check_turns(counts.sum(), "set fewer sessions, or fewer turns in each")
    session = np.repeat(np.arange(len(counts)), counts)
    return session, np.arange(len(session)) - np.repeat(np.cumsum(counts) - counts, counts)


def sum_before(values: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """For every turn the sum of `values` over the earlier turns of its session; rows as of `number_turns`."""
    total = np.cumsum(values)
    starts = np.flatnonzero(turn == 0)
    before = np.concatenate([[0], total[:-1]]) if len(values) else total
    return before - np.repeat(before[starts], np.diff(starts, append=len(turn)))


def cut_history(new: np.ndarray, replies: np.ndarray, turn: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (input, history) tokens of turns when a client sends at most `most` tokens of earlier conversation.

    While the whole conversation fits, it is the history. Then the client drops the older half: the prompt has another
    beginning, so the kept half is sent as new and the history is 0.
    """
    inputs, history = new.copy(), np.zeros_like(new)
    for index in range(1, int(turn.max()) + 1):
        rows = np.flatnonzero(turn == index)
        context = history[rows - 1] + inputs[rows - 1] + replies[rows - 1]
        fits = context <= most
        history[rows] = np.where(fits, context, 0)
        inputs[rows] += np.where(fits, 0, most // 2)
    return inputs, history
