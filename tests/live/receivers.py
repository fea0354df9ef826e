"""Receivers of the live client's transports, which keep all that they receive."""

import asyncio
import json
from typing import Any


class Receiver:
    """A WebSocket's messages and ends. `stamps`: when each message was read, s of the loop."""

    seed = 0

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.stamps: list[float] = []
        self.ends: list[tuple[int, str]] = []
        self.ended = asyncio.Event()
        self.news = asyncio.Event()

    def message(self, data: bytes, at_s: float) -> None:
        self.messages.append(data)
        self.stamps.append(at_s)
        self.news.set()

    def closed(self, code: int, reason: str, at_s: float) -> None:
        self.ends.append((code, reason))
        self.ended.set()

    async def has(self, n: int) -> list[bytes]:
        async with asyncio.timeout(20):
            while len(self.messages) < n:
                self.news.clear()
                await self.news.wait()
        return self.messages

    def events(self) -> list[tuple[str, dict[str, Any], float]]:
        """Messages as events: type, content, and when it was read."""
        events = map(json.loads, self.messages)
        return [
            (event.get("type") or event["event"], event, at_s) for event, at_s in zip(events, self.stamps, strict=True)
        ]

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.events()]

    async def until(self, kind: str, times: int = 1) -> None:
        """Receive until `times` events of the type have come."""
        while self.kinds().count(kind) < times:
            await self.has(len(self.messages) + 1)


class Stream:
    """One HTTP answer."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.body = b""
        self.stamps: list[float] = []
        self.ends: list[str] = []
        self.ended = asyncio.Event()

    def status(self, code: int, at_s: float) -> None:
        assert self.code is None
        self.code = code

    def data(self, chunk: bytes, at_s: float) -> None:
        assert not self.ends
        self.body += chunk
        self.stamps.append(at_s)

    def done(self, at_s: float) -> None:
        self._end("done")

    def failed(self, reason: str, at_s: float) -> None:
        self._end(reason)

    def _end(self, how: str) -> None:
        self.ends.append(how)
        self.ended.set()
