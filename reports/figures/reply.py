"""One spoken reply as curves over time: what each stage has made of it, and what the listener has heard."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.figures.shared_turns import TurnLog

Curve = tuple[np.ndarray, np.ndarray]
"""Times in s, and seconds of speech by then, from zero; a step at each time."""


class ReplyLog:
    """A reply that was heard to its end. Its times count from where those of the log do.

    `row` is its row of the request table. Text counts as the speech it stands for: the reply's seconds, shared out
    evenly over its text tokens.
    """

    def __init__(self, log: TurnLog, row: Mapping[str, Any]) -> None:
        frame_s, token_s = (row["audio_s"] / row[f"generated_{stage}"] for stage in ("talker", "entry"))
        self.talker = _cumulative(log.times("token", "talker"), log.values("token", "talker") * frame_s)
        self.thinker = _cumulative(log.times("token", "thinker"), log.values("token", "thinker") * token_s)
        self.delivered = _cumulative(log.times("audio"), log.values("audio"))
        self.decoded_s = log.times("token", "vocoder")
        """When each packet of `delivered` left the vocoder."""
        self._heard = np.array(log.playback())
        self.generation_span_s = float(self.talker[0][-1]) - (log.first("start", "talker") or 0.0)
        self.playback_span_s = float(self._heard[-1, 1] - self._heard[0, 0])
        self.generated_by_s = float(self.talker[0][-1])
        """When the talker made its last frame."""
        self.heard_by_s = float(self._heard[-1, 1])
        """When playback ended."""
        self.clock = np.linspace(0, self.heard_by_s, 400)

    def generated(self, clock: np.ndarray) -> np.ndarray:
        times, speech = self.talker
        return speech[np.searchsorted(times, clock, side="right") - 1] * (clock >= times[0])

    def played(self, clock: np.ndarray) -> np.ndarray:
        """Speech heard by each time: each stretch of playback adds what of it has passed."""
        begins, ends = self._heard.T
        return np.clip(clock[:, None] - begins, 0, ends - begins).sum(axis=1)


def _cumulative(times: np.ndarray, speech_s: np.ndarray) -> Curve:
    return np.r_[times[:1], times], np.r_[0.0, speech_s.cumsum()]
