"""Walkie keeps the promises of a dialect, and a call with a server of it works."""

from base64 import b64encode

from rehearsal.dialects import TargetParams, check_dialect
from walkie import op


class Server:
    """What a server says. Implements `rehearsal.dialects.Server`."""

    rate = 24_000

    def ready(self) -> list[bytes]:
        return [op("ready")]

    def begin(self, reply: int) -> list[bytes]:
        return [op("begin")]

    def audio(self, reply: int, pcm: bytes) -> list[bytes]:
        return [op("sound", data=b64encode(pcm).decode())]

    def text(self, reply: int) -> list[bytes]:
        return [op("word")]

    def end(self, reply: int) -> list[bytes]:
        return [op("end")]

    def cut(self, reply: int) -> list[bytes]:
        return [op("stopped")]

    def error(self) -> list[bytes]:
        return [op("error", why="no batteries")]


def test_walkie_is_a_dialect() -> None:
    target = {"url": "ws://127.0.0.1:9/", "dialect": "walkie"}
    check_dialect(TargetParams.model_validate(target), Server())
