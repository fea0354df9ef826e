"""Commands that arrive at a stage replica. They are applied between two steps, never during one, as in vLLM's engine
core."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.core.device import Row
from engines.core.policy import ReactingPolicy, RequestView
from engines.core.request import StageRequest
from engines.core.requests import RequestTable
from engines.core.step import SchedulerStep


class Command(Protocol):
    """One thing that was asked for."""

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        """Do it. True when blocks were freed that a request held.

        `sampled`: rows of the step that just ended with a token; that of an aborted request counts as generated.
        """
        ...


Arrival = Callable[[Command, SchedulerStep], Collection[str]]
"""Asked when a command comes during a step: which of the step's requests the device is to drop at its next layer. What
it has computed for them is computed again; an aborted one is gone."""


def asking(policy: ReactingPolicy) -> Arrival:
    """A policy says who makes room for a request that comes during a step."""

    def on_arrival(command: Command, step: SchedulerStep) -> Collection[str]:
        if not isinstance(command, Add):
            return ()
        request, rows = command.request, step.rows
        shape, ids = [(row.tokens, row.context) for row in rows], [row.request_id for row in rows]
        elapsed_s = request.arrive_s - step.start_s
        view = RequestView(
            request.id, request.arrive_s, request.due_s, request.slo, tokens=len(request.prompt)
        )
        return policy.arrived(view, shape, ids, elapsed_s)

    return on_arrival


def all_of(arrivals: Sequence[Arrival]) -> Arrival | None:
    """Combine arrivals into one: a request leaves the step where any of them names it. None where there is none to
    combine."""
    if len(arrivals) < 2:
        return arrivals[0] if arrivals else None
    return lambda command, step: {id for arrival in arrivals for id in arrival(command, step)}


def abort_at_layer(command: Command, step: SchedulerStep) -> Collection[str]:
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
    """Only the first `tokens` tokens of the session's context will be asked for again."""

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
