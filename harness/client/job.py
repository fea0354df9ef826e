"""One job: an agent that calls others, each a session of its own, and goes on when those it waits for have ended.

Where an agent fails, or comes to the end of the time in which turns begin, nobody goes on who waits for its later
turns; what does not wait for them goes on to its end. All sessions of a job are closed together, so that an agent may
begin with what another has said.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from harness.client.client_params import ClientParams
from harness.client.session import ABORTED, FAILED, Client, Server
from harness.events.log import EventLog
from workloads.columns.jobs import BEGIN, links
from workloads.trace import Session, Turn


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
    """Plays the sessions of one job. `run` is as `Client.run`."""

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
                begin_s = (begin_s if first.job.waits == BEGIN else self._loop.time()) + (
                    first.think_s or 0.0
                )
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
        self._job.ended(turn, outcome not in (FAILED, ABORTED))
        return outcome

    async def _hang_up(self) -> None:
        """Leave with the rest of the job."""


def _awaited(turn: Turn) -> list[tuple[int, int]]:
    return [(turn.session + offset, later) for offset, later in links(turn.job.waits)]
