"""The eight phases of a request between a proxy and prefill and decode replicas, each with its time. The names are
OmniInfer's (section 5.1), for live and modelled servers alike."""

from enum import IntEnum


class Phase(IntEnum):
    """The phases in their order."""

    TOKENIZING = 0
    APC_MATCHING = 1
    PREFILL_WAITING = 2
    PREFILL_SCHEDULED = 3
    PREFILLING = 4
    DECODE_WAITING = 5
    DECODE_SCHEDULED = 6
    DECODING = 7


BACK = {Phase.PREFILL_SCHEDULED, Phase.PREFILLING}
"""Phases from which a request whose server has died returns to `PREFILL_WAITING`: none of its output has been seen."""


class Lifecycle:
    """One request's phases. `begun_s`: the beginning of each; for a repeated phase the latest."""

    def __init__(self, now: float) -> None:
        self.phase = Phase.TOKENIZING
        self.begun_s = {Phase.TOKENIZING: now}

    def enter(self, phase: Phase, now: float) -> None:
        """Begin the next phase at `now` (s). ValueError when it is another one, or time runs backwards."""
        following = self.phase + 1
        if phase != following and not (phase is Phase.PREFILL_WAITING and self.phase in BACK):
            raise ValueError(f"a request in {self.phase.name} cannot enter {phase.name}")
        if now < self.begun_s[self.phase]:
            raise ValueError(f"{phase.name} at {now} s is before {self.phase.name}")
        self.phase = phase
        self.begun_s[phase] = now

    def seconds(self, phase: Phase) -> float | None:
        """Return the duration of the phase; None before its end, and for the last one."""
        if phase >= self.phase:
            return None
        return self.begun_s[Phase(phase + 1)] - self.begun_s[phase]
