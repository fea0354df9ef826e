"""One session's turns as its server finds them: a state machine over the edges of speech, without a clock.

Its owner reports the edges of speech, and asks for decisions at `next_s` and after each edge:

* started    speech begins: preloads start now
* interrupt  it takes the floor: the reply is to be cut
* ended      the turn is over, and is to be answered
* ignored    it is over and never took the floor: it gets no answer, and the reply goes on
"""

from typing import Literal

from engines.turn_taking.endpointing import Endpointing, InterruptionGate

Decision = Literal["started", "interrupt", "ended", "ignored"]
EARLY_S = 1e-6
"""Sums of frames' lengths miss a time by less than this, s."""


class TurnDetector:
    """One session's detector. `gate`: the speech that interrupts a reply; None: none does, and speech over a reply is a
    turn of its own.

    Times are those of the edge itself, s; a slow detector of speech reports it later. `replying`: a reply is being made
    or, for all that is known, heard; given at each step.
    """

    def __init__(self, endpointing: Endpointing, gate: InterruptionGate | None) -> None:
        self.endpointing, self.gate = endpointing, gate
        self.ends_turn = True
        """True if the coming silence ends the turn: a simulated detector cannot hear it. Set it when known."""
        self.reset()

    def reset(self) -> None:
        self.in_turn = False
        self._start_reported = self._has_floor = False
        self._spoken_s = 0.0  # in this turn, before the present speech
        self._speech_s: float | None = None
        self._silence_s: float | None = None
        self._over_s: float | None = None  # when the silence ends the turn, once the endpointing was asked

    def speech(self, begun_s: float, replying: bool) -> None:
        """Note that speech begins, or goes on after a silence that was too short."""
        if not self.in_turn:
            self.reset()
            self.in_turn = True
        self._silence_s = self._over_s = None
        self._speech_s = begun_s
        self._has_floor = self._has_floor or not replying or self.gate is None

    def silence(self, begun_s: float, replying: bool) -> None:
        """Note that speech has ended."""
        if self._speech_s is None:
            return
        self._has_floor = self._has_floor or not replying
        self._spoken_s += begun_s - self._speech_s
        self._speech_s, self._silence_s = None, begun_s

    def next_s(self) -> float | None:
        """The time of the next call of `due`, s, unless an edge comes before; None: at the next edge."""
        if not self.in_turn:
            return None
        if not self._start_reported:
            return self._speech_s if self._speech_s is not None else self._silence_s
        if self._silence_s is not None:
            return self._silence_s + self.endpointing.ask_s if self._over_s is None else self._over_s
        return None if self._has_floor or self._speech_s is None else self._speech_s + self._missing_s

    def due(self, at_s: float, replying: bool) -> Decision | None:
        """Return the next decision at `at_s` (s); None when there is none. Call it again until it returns None."""
        if not self.in_turn:
            return None
        if not self._start_reported:
            self._start_reported = True
            return "started"
        if self._speech_s is not None and not self._has_floor:
            passed = at_s + EARLY_S >= self._speech_s + self._missing_s
            self._has_floor = passed or not replying
            return "interrupt" if passed and replying else None
        if self._silence_s is None:
            return None
        if self._over_s is None and at_s + EARLY_S >= self._silence_s + self.endpointing.ask_s:
            self._over_s = self._silence_s + self.endpointing.over_s(self.ends_turn)
        if self._over_s is None or at_s + EARLY_S < self._over_s:
            return None
        has_floor = self._has_floor
        self.reset()
        return "ended" if has_floor else "ignored"

    @property
    def _missing_s(self) -> float:
        assert self.gate is not None
        return self.gate.after_s - self._spoken_s
