"""Chat completions of documents, which nobody waits for: one follows the other for as long as the run lasts."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.live.client.text_endpoint import Chat, TextEndpoint

AGAIN_S = 1.0
"""After a document that failed, before the next one takes its place: a server that refuses them would else be asked as
fast as it refuses, which its users would feel. [chosen]"""


class BatchEndpoint(TextEndpoint):
    """Nobody knows before how many documents there will be, so requests are made while others are answered: one ahead
    for each that is in flight, in the order in which they come."""

    async def prepare(self) -> None:
        self._failed: set[int] = set()
        self._coming = iter(self.trace.sessions)
        await self.connect(self.trace.sessions[: self.target.batch])
        for _ in range(self.target.batch or 0):
            self._make_next()

    def open(self, session: int, listener: Any) -> None:
        if session not in self._ready:  # it overtook another one
            self._ready[session] = Chat(self, self._sessions[session])
        super().open(session, listener)
        self._loop.call_soon(self._make_next)

    def lost(self, session: int) -> None:
        self._failed.add(session)

    async def left(self, session: int) -> None:
        """See `harness.client.turns.Leaving`."""
        if session in self._failed:
            await asyncio.sleep(AGAIN_S)

    def _make_next(self) -> None:
        session = next(self._coming, None)
        if session is not None:
            self._ready[session.id] = Chat(self, session)
