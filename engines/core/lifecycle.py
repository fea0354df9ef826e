"""The eight phases of a request between a proxy and prefill and decode replicas, each with its time. The names are
OmniInfer's (section 5.1)."""

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


class Lifecycle:
    """One request's phases. `begun_s`: the beginning of each."""

    def __init__(self, now: float) -> None:
        self.phase = Phase.TOKENIZING
        self.begun_s = {Phase.TOKENIZING: now}

    def enter(self, phase: Phase, now: float) -> None:
        """Begin the next phase at `now` (s). ValueError when it is another one, or time runs backwards."""
        if phase != self.phase + 1:
            raise ValueError(f"a request in {self.phase.name} cannot enter {phase.name}")
        if now < self.begun_s[self.phase]:
            raise ValueError(f"{phase.name} at {now} s is before {self.phase.name}")
        self.phase = phase
        self.begun_s[phase] = now
