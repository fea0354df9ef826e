"""Bodies that a server or a proxy has compressed, decoded as they come. Nobody asks for that, and some do it.

Read are gzip and deflate, the latter with zlib's header (RFC 9110, 8.4.1.2) or without, as some servers send it, and br
where the package brotli is installed. A list of encodings is undone from its end.
"""

import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol

PIECE = 2**16
"""Most bytes of a decoded piece: a small body may become a large one. [chosen]"""


class NotDecoded(Exception):
    """A body that cannot be decoded, with the reason."""


class _Stage(Protocol):
    name: str

    @property
    def whole(self) -> bool:
        """True once the end of the compressed data has come."""
        ...

    def feed(self, data: bytes) -> Iterator[bytes]: ...


class Decoder:
    """Decodes one body. NotDecoded where its encoding is not read."""

    def __init__(self, content_encoding: str) -> None:
        names = [name.strip().lower().removeprefix("x-") for name in content_encoding.split(",")]
        self._stages = [_stage(name) for name in reversed(names) if name not in ("", "identity")]
        self._fed = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded data of the next piece, `PIECE` bytes at most at a time. NotDecoded for garbage."""
        self._fed = self._fed or bool(data)
        return self._through(data, 0)

    @property
    def cut(self) -> str:
        """Reason why the body is not whole if it ends here; empty: it is."""
        cut = [stage.name for stage in self._stages if not stage.whole]
        return f"{cut[0]} cut short" if cut and self._fed else ""

    def _through(self, data: bytes, k: int) -> Iterator[bytes]:
        if k == len(self._stages):
            yield data
            return
        for piece in self._stages[k].feed(data):
            yield from self._through(piece, k + 1)


def unread(content_encoding: str) -> str:
    """Return why a body with this header cannot be decoded; empty: it can."""
    try:
        Decoder(content_encoding)
    except NotDecoded as error:
        return str(error)
    return ""


def _stage(name: str) -> _Stage:
    if name in ("gzip", "deflate"):
        return _Inflate(name)
    if name == "br":
        try:
            return _Brotli(import_module("brotli"))
        except (ImportError, AttributeError):  # or one before 1.2, which cannot bound what it returns
            pass
    raise NotDecoded(f"compressed with {name}, which is not read")


class _Inflate:
    """The stage of gzip, of one member or several, or of deflate."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stream: Any = zlib.decompressobj(31) if name == "gzip" else None
        self._held = b""

    @property
    def whole(self) -> bool:
        return self._stream is not None and self._stream.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._held += data
            if len(self._held) < 2:
                return
            data = self._held
            header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(15 if header else -15)
        try:
            yield from self._inflated(data)
        except zlib.error:
            raise NotDecoded(f"garbage: no {self.name}") from None

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        while True:
            if self._stream.eof:
                if self.name != "gzip" or not data.startswith(b"\x1f"):
                    return  # what follows is no other member
                self._stream = zlib.decompressobj(31)
            piece = self._stream.decompress(data, PIECE)
            if piece:
                yield piece
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if not data and len(piece) < PIECE:
                return


class _Brotli:
    """The stage of br. AttributeError where the package is too old."""

    name = "br"

    def __init__(self, brotli: Any) -> None:
        self._stream, self._error = brotli.Decompressor(), brotli.error
        self._takes_more = self._stream.can_accept_more_data

    @property
    def whole(self) -> bool:
        return self._stream.is_finished()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while True:
                piece = self._stream.process(data, output_buffer_limit=PIECE)
                if piece:
                    yield piece
                if self.whole or (self._takes_more() and not piece):
                    return
                data = b""
        except self._error:
            raise NotDecoded("garbage: no br") from None
