"""What arrives at a stage replica, to be applied between two steps: as in vLLM's engine core, never during one."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.core.device import Row
from engines.core.request import StageRequest
from engines.core.requests import RequestTable


class Command(Protocol):
    """One thing that was asked for."""

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        """Do it. True when blocks were freed that a request held.

        `sampled`: rows of the step that just ended with a token; that of an aborted request counts as generated.
        """
        ...


@dataclass(slots=True)
class Step:
    """The step under way: when it began (s), and what it computes."""

    start_s: float
    rows: Sequence[Row]


Arrival = Callable[[Command, Step], Collection[str]]
"""Asked when a command comes during a step: which of the step's requests the device is to drop at its next layer. What
it has computed for them is computed again; an aborted one is gone."""


def abort_at_layer(command: Command, step: Step) -> Collection[str]:
    """A request that is cancelled leaves the running step at its next layer, not at its end (LiveServe section 3)."""
    return (command.request.id,) if isinstance(command, Abort) else ()


@dataclass(slots=True)
class Add:
    """A request has come."""

    request: StageRequest

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        table.add(self.request)
        return False


@dataclass(slots=True)
class Abort:
    """A request is cancelled."""

    request: StageRequest

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        return table.abort(self.request, sampled)


@dataclass(slots=True)
class Truncate:
    """Of a session's context only the first `tokens` tokens will be asked for again."""

    session: int
    tokens: int

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        table.truncate(self.session, self.tokens)
        return False


@dataclass(slots=True)
class Forget:
    """A session has closed; what it had sent before is in by now."""

    session: int

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        table.forget(self.session)
        return False
