"""Walkie, a protocol made up for this example: JSON texts over a WebSocket, each with an `op`."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from rehearsal import dialects as rd


def op(kind: str, **fields: Any) -> bytes:
    return json.dumps({"op": kind, **fields}).encode()


@dataclass(frozen=True)
class Walkie(rd.Dialect):
    """Servers of an example protocol: push to talk."""

    name: ClassVar[str] = "walkie"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "ready"
    waits: ClassVar[bool] = True

    def hello(self) -> list[bytes]:
        return [op("hello", model=self.target.model)]

    def append(self, pcm: bytes) -> bytes:
        return op("sound", data=b64encode(pcm).decode())

    def end_of_turn(self, turn: object) -> list[bytes]:
        return [op("over")]

    def interrupt(self, cut: rd.Cut) -> list[bytes]:
        return [op("stop", heard_s=cut.played_s)]

    def reader(self) -> Callable[[bytes], rd.Event]:
        return read


def read(data: bytes) -> rd.Event:
    try:
        message = json.loads(data)
        if message["op"] == "sound":
            pcm = b64decode(message["data"], validate=True)
            return rd.Audio(None, None, len(pcm), rd.AudioFormat("pcm", 24_000), pcm)
        if message["op"] == "error":
            return rd.Failure("walkie", str(message["why"]))
        return EVENTS.get(message["op"], rd.Other())
    except (ValueError, TypeError, KeyError, RecursionError):
        return rd.Garbage()


EVENTS: dict[str, rd.Event] = {
    "ready": rd.Ready(),
    "begin": rd.Started(None),
    "word": rd.Text(None, 1, 4),
    "end": rd.Done(None, "completed"),
    "stopped": rd.Done(None, "cancelled"),
}
