"""Users who take turns with a server: in an open loop each comes when scheduled; in a closed loop they share slots."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.client.client_params import ClientParams
from harness.client.session import LAST, Client, Leaving, Server
from harness.clocks.clock import VirtualClockLoop
from harness.events.log import EventLog
from workloads.columns.jobs import BEGIN, links
from workloads.trace import Session, Trace, Turn

AHEAD_S = 0.005
"""[chosen] time before its arrival at which a user is made on the wall clock, where that takes time: longer than it
takes, and short compared with a session."""


def together(sessions: Iterable[Session]) -> Iterator[tuple[Session, ...]]:
    """Yield the sessions of each job, the main one first; a session that calls no other is alone."""
    job: list[Session] = []
    for session in sessions:
        if job and session.turns[0].job.waits is None:
            yield tuple(job)
            job = []
        job.append(session)
    if job:
        yield tuple(job)


class Job:
    """Plays the sessions of one job: an agent that calls others and goes on when those it waits for have ended. `run`
    is as `Client.run`.

    Where an agent fails, or comes to the end of the time in which turns begin, nobody goes on who waits for its later
    turns. All sessions are closed together, so that an agent may begin with what another has said.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        server: Server,
        log: EventLog,
        params: ClientParams,
        slots: asyncio.Semaphore | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._agents = [Agent(self, session, server, log, params, slots) for session in sessions]
        self._opened: list[Agent] = []
        turns = [turn for session in sessions for turn in session.turns]
        self._over: dict[tuple[int, int], asyncio.Future[bool]] = {
            key: self._loop.create_future() for turn in turns for key in _awaited(turn)
        }

    async def run(self, begin_s: float) -> None:
        """Play the job, whose main agent was to come at `begin_s`. Return when every session that began has ended."""
        async with asyncio.TaskGroup() as group:
            for agent in self._agents:
                group.create_task(self._play(agent, begin_s), name=f"session {agent.session.id}")
        await asyncio.sleep(self._agents[0].network_s)
        for agent in self._opened:
            agent.server.close(agent.session.id)

    async def awaited(self, turn: Turn) -> bool:
        """Wait for the other sessions' turns that `turn` depends on. Return whether all were answered."""
        futures = [self._over[key] for key in _awaited(turn)]
        for future in futures:
            await future
        return all(future.result() for future in futures)

    def ended(self, turn: Turn, answered: bool) -> None:
        """Let the turns that wait for `turn` go on."""
        future = self._over.get((turn.session, turn.turn))
        if future is not None and not future.done():
            future.set_result(answered)

    async def _play(self, agent: "Agent", begin_s: float) -> None:
        first = agent.session.turns[0]
        if await self.awaited(first):
            if first.job.waits is not None:
                begin_s = (begin_s if first.job.waits == BEGIN else self._loop.time()) + (first.think_s or 0.0)
                await asyncio.sleep(max(0.0, begin_s - self._loop.time()))
            if agent.params.begins(begin_s):
                self._opened.append(agent)
                await agent.run(begin_s)
        for turn in agent.session.turns:
            self.ended(turn, False)


class Agent(Client):
    """The user of one session of a job."""

    def __init__(self, job: Job, session: Session, *args: Any) -> None:
        super().__init__(session, *args)
        self._job = job

    async def _goes_on(self, turn: Turn) -> bool:
        return await self._job.awaited(turn)

    async def _turn(self, turn: Turn, begin_s: float) -> str:
        outcome = await super()._turn(turn, begin_s)
        self._job.ended(turn, outcome not in LAST)
        return outcome

    async def _hang_up(self) -> None:
        """Leave with the rest of the job."""


def _awaited(turn: Turn) -> list[tuple[int, int]]:
    return [(turn.session + offset, later) for offset, later in links(turn.job.waits)]


class User(Protocol):
    """The player of one session."""

    async def run(self, begin_s: float) -> None: ...


async def serve_turns(
    trace: Trace,
    server: Any,
    log: EventLog,
    params: ClientParams,
    replicas: int = 1,
    user_of: Callable[..., User] = Client,
) -> None:
    """Play every session of `trace` and return when the last one has ended. The sessions of a job have one user.

    In a closed loop, slots are acquired in the order of requests for them: by sessions in the order of their scheduled
    arrivals, or by each turn of a session anew. An open loop with a limit has a slot for each session, too; there, a
    user who did not wait for one comes as scheduled. `replicas`: factor on the c slots when `params.c_scope` is
    replica. Sessions of a backlog take no slot. `user_of` makes a session's user.
    """
    loop: Any = asyncio.get_running_loop()
    leaving = isinstance(server, Leaving)  # a protocol's check takes longer than a user's arrival
    slots = None
    if params.c is not None:
        slots = asyncio.Semaphore(params.c * (replicas if params.c_scope == "replica" else 1))
    of_session, of_turn = (slots, None) if params.c_counts == "session" else (None, slots)
    ahead_s = 0.0 if of_session or isinstance(loop, VirtualClockLoop) else AHEAD_S
    if params.most is not None:
        of_session = asyncio.Semaphore(params.most)

    async def user(sessions: Sequence[Session], arrival_s: float) -> None:
        waits = of_session is not None and (params.most is None or of_session.locked())
        async with of_session or nullcontext():
            begin_s = max(arrival_s, loop.time()) if waits else arrival_s
            if params.begins(begin_s):
                if len(sessions) > 1:
                    one: User = Job(sessions, server, log, params, of_turn)
                else:
                    one = user_of(sessions[0], server, log, params, of_turn)
                if ahead_s:
                    await _arrival(loop, begin_s)
                await one.run(begin_s)
                if leaving:  # or the server would refuse the next user
                    for session in sessions:
                        await server.left(session.id)

    # A backlog ends with the last user, if some session is of no backlog.
    begun_s, ends = loop.time(), bool(np.isnan(trace.columns()["backlog"]).any())
    backlogs = [Backlog(size, sessions, server, log, params, ends) for (_, size), sessions in by_backlog(trace).items()]
    async with asyncio.TaskGroup() as background:
        for backlog in backlogs:
            background.create_task(backlog.run())
        async with asyncio.TaskGroup() as users:
            for sessions in together(trace.each_session()):
                session = sessions[0]
                arrival_s = session.turns[0].arrival_s
                if session.turns[0].request.backlog is not None:
                    continue
                assert arrival_s is not None
                if not params.begins(arrival_s):
                    continue
                if arrival_s - ahead_s > begun_s:
                    await _arrival(loop, arrival_s - ahead_s)
                users.create_task(user(sessions, arrival_s), name=f"session {session.id}")
        for backlog in backlogs if ends else ():
            backlog.end()


def by_backlog(trace: Trace) -> dict[tuple[str | None, int], list[Session]]:
    """Return the sessions of each backlog, by class and size."""
    backlogs: dict[tuple[str | None, int], list[Session]] = {}
    if np.isnan(trace.columns()["backlog"]).all():
        return backlogs
    for session in trace.each_session():
        first = session.turns[0]
        if first.request.backlog is not None:
            backlogs.setdefault((first.request.request_class, first.request.backlog), []).append(session)
    return backlogs


async def _arrival(loop: Any, at_s: float) -> None:
    """Return at `at_s`, before anything else that is due then: arrivals do not depend on the server."""
    due = loop.create_future()
    timer = loop.call_first_at(at_s, due.set_result, None)
    try:
        await due
    finally:
        timer.cancel()


@dataclass(eq=False)
class Backlog:
    """Batch jobs: sessions that no user waits for. `size` of them are under way at once, next to the users' sessions.

    When one ends, the next begins, so that the server always has work and never a long queue. Sessions go in their
    order, none before its arrival. When the last user has gone, the running ones are aborted, which is no failure.

    `ends`: True where `end` ends it, before which it must not run dry; False where it ends with its last session, as
    a closed loop does.
    """

    size: int
    sessions: Sequence[Session]
    server: Server
    log: EventLog
    params: ClientParams
    ends: bool

    def __post_init__(self) -> None:
        self._coming = iter(self.sessions)
        self._under_way: list[Client] = []
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Return when the last session has ended."""
        async with asyncio.TaskGroup() as slots:
            for _ in range(self.size):
                slots.create_task(self._slot())

    def end(self) -> None:
        """Abort the running sessions, as the last user has gone."""
        self._over.set_result(None)
        for client in self._under_way:
            client.abort()

    async def _slot(self) -> None:
        for session in self._coming:
            begin_s = session.turns[0].arrival_s
            assert begin_s is not None
            if begin_s > self._loop.time():
                await asyncio.wait([self._over], timeout=begin_s - self._loop.time())
            begin_s = max(begin_s, self._loop.time())
            if self._over.done() or not self.params.begins(begin_s):
                return
            client = Client(session, self.server, self.log, self.params, in_background=self.ends)
            self._under_way.append(client)
            await client.run(begin_s)
            if isinstance(self.server, Leaving):
                await self.server.left(session.id)
            self._under_way.remove(client)
            if self._over.done():
                return
        if self.ends:
            self.log.event(self._loop.time(), "backlog_dry", self.sessions[-1].id, 0, value=len(self._under_way))
