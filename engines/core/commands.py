"""Commands that arrive at a stage replica. They are applied between two steps, never during one, as in vLLM's engine
core."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.core.device import Row
from engines.core.policy import ReactingPolicy
from engines.core.request import StageRequest
from engines.core.requests import RequestTable
from engines.core.step import SchedulerStep
from engines.core.view import plain_view


class Command(Protocol):
    """A command to a replica."""

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        """Carry it out; returns True when it freed blocks.

        `sampled`: rows of the step that just ended with a token; the token of an aborted request counts as generated.
        """
        ...


Arrival = Callable[[Command, SchedulerStep], Collection[str]]
"""Called when a command comes during a step: returns the step's requests that the device drops at its next layer. They
are computed again, except an aborted one."""


def asking(policy: ReactingPolicy) -> Arrival:
    """Return an arrival that asks a policy which requests make room for a new one."""

    def on_arrival(command: Command, step: SchedulerStep) -> Collection[str]:
        if not isinstance(command, Add):
            return ()
        request, rows = command.request, step.rows
        shape, ids = [(row.tokens, row.context) for row in rows], [row.request_id for row in rows]
        elapsed_s = request.arrive_s - step.start_s
        view = plain_view(request)
        view.tokens = view.prompt_tokens
        return policy.arrived(view, shape, ids, elapsed_s)

    return on_arrival


def all_of(arrivals: Sequence[Arrival]) -> Arrival | None:
    """Combine arrivals into one: a request leaves the step when any of them names it. None if there are none."""
    if len(arrivals) < 2:
        return arrivals[0] if arrivals else None
    return lambda command, step: {id for arrival in arrivals for id in arrival(command, step)}


def abort_at_layer(command: Command, step: SchedulerStep) -> Collection[str]:
    """Let a cancelled request leave the running step at its next layer, not at its end (LiveServe section 3)."""
    return (command.request.id,) if isinstance(command, Abort) else ()


@dataclass(slots=True)
class Add:
    """A new request."""

    request: StageRequest

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        table.add(self.request)
        return False


@dataclass(slots=True)
class Abort:
    """Cancels a request."""

    request: StageRequest

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        return table.abort(self.request, sampled)


@dataclass(slots=True)
class Truncate:
    """Cuts a session's context to its first `tokens` tokens: nobody will ask for the others again."""

    session: int
    tokens: int

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        table.truncate(self.session, self.tokens)
        return False


@dataclass(slots=True)
class Forget:
    """The end of a session; all its earlier commands have been applied."""

    session: int

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        table.forget(self.session)
        return False
