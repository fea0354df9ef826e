"""Location of the samples of a WAV, also if its header has a wrong length.

A program that writes into a pipe cannot go back to the header: sizes stay 0, the largest number, or those of the
first buffer. The actual bytes count, and chunks after the samples are not samples.
"""

from typing import NamedTuple

LARGEST = 2**30
"""Largest plausible number of bytes of samples; a header with more means unknown. [chosen]"""
LONGEST_S = 3600.0
"""Longest plausible duration, s; a header with more means unknown. [chosen]"""
_MOST_HEADER = 2**20
"""Bytes before the samples. [chosen]"""
_MOST_CHUNKS = 4096
"""Chunks in one piece of a stream. [chosen]"""
_RIFF, _CHUNK = 12, 8
"""Bytes before the first chunk, and of a chunk before its own. [config: RIFF]"""
_EXTENSIBLE = 0xFFFE
_TAG = b"TAG", 128
"""Tag that some programs append to MP3s and also to WAVs, with its length in bytes. [config: ID3v1]"""


class Header(NamedTuple):
    """`tag`: WAVE_FORMAT of the samples, 1: integers, 3: floats, 6: A-law, 7: u-law. `at`: bytes before the samples;
    `size`: bytes of them, as the header says; `riff`: bytes of the whole after the first 8, as it says."""

    tag: int
    channels: int
    rate: int
    bits: int
    at: int
    size: int
    riff: int

    @property
    def known(self) -> bool:
        """Return whether the length is plausible and not one of the values for unknown."""
        frame = max(1, self.channels * self.bits // 8)
        return 0 < self.size < LARGEST and self.size <= LONGEST_S * self.rate * frame


def header(data: bytes) -> Header | None:
    """The header that `data` begins with; None where it begins with no WAV's, or with a part of one."""
    if data[:4] != b"RIFF" or data[8:_RIFF] != b"WAVE":
        return None
    at, form = _RIFF, b""
    while at + 8 <= len(data):
        name, size = data[at : at + 4], _number(data, at + 4, 4)
        at += 8
        if name == b"data" and len(form) >= 16:
            return _header(form, at, size, _number(data, 4, 4))
        if name == b"fmt ":
            form = data[at : at + size]
        at += size + size % 2
    return None


def begins(data: bytes) -> bool:
    """Return whether `data` may be the beginning of a header, or contains one."""
    short = data[:_RIFF]
    return short[:4] == b"RIFF"[: len(short)] and short[8:] == b"WAVE"[: max(0, len(short) - 8)]


def ends_there(rest: bytes) -> bool:
    """Return whether the samples are followed by WAV chunks or nothing, and not by more samples."""
    for padding in (0, 1):
        at = padding
        while at + 8 <= len(rest) and _printable(rest[at : at + 4]):
            size = _number(rest, at + 4, 4)
            at += 8 + size + size % 2
        if len(rest) <= at <= len(rest) + 1 or (rest[padding:][:3] == _TAG[0] and len(rest) == padding + _TAG[1]):
            return True
    return False


def corrected(content: bytes) -> bytes | None:
    """`content`, a WAV, with the length of its samples in its header where that is another; None where it is right,
    or larger than the file though it can be meant: then the file was cut."""
    chunk = header(content)
    if chunk is None:
        return None
    length = len(content) - chunk.at
    if chunk.size <= length and ends_there(content[chunk.at + chunk.size :]) and (chunk.size or not length):
        return None
    if chunk.size > length and chunk.known and chunk.riff >= chunk.at - 8 + chunk.size:
        return None
    sizes = (length + chunk.at - 8).to_bytes(4, "little"), length.to_bytes(4, "little")
    return b"RIFF%b%b%b%b" % (sizes[0], content[8 : chunk.at - 4], sizes[1], content[chunk.at :])


class Stream:
    """Samples of a WAV that comes in pieces, or of several one after the other. `header`: of the newest. Each byte is
    looked at once."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._left: int | None = 0
        """Bytes of samples to come, by the header; None: unknown or not plausible."""
        self._held, self._wanted = bytearray(), _CHUNK
        """The begin of a chunk, and its length when it is complete."""
        self._skipped = 0
        """Bytes of a chunk that are still to be passed over."""
        self._at, self._riff, self._form, self._in_form = 0, 0, b"", False
        """Place in a header; 0: in none. The length and the format that it states."""

    def feed(self, data: bytes) -> bytes:
        """The samples in the next piece. ValueError where a header is longer than any that is known, or a piece has
        more chunks than any."""
        if self._left is None:
            return data
        samples: list[bytes] = []
        at = chunks = 0
        while at < len(data):
            if self._left is None:
                samples.append(data[at:])
                break
            if self._left:
                samples.append(data[at : at + self._left])
                at, self._left = at + self._left, max(0, self._left - len(samples[-1]))
            elif self._skipped and not self._in_form:
                at, self._skipped = at + self._skipped, max(0, self._skipped - (len(data) - at))
            else:
                piece = data[at : at + self._wanted - len(self._held)]
                self._held += piece
                at += len(piece)
                if len(self._held) == self._wanted:
                    samples.append(self._chunk())
                    chunks += 1
                if chunks > _MOST_CHUNKS:
                    raise ValueError(f"a piece of its WAV has more than {_MOST_CHUNKS:,} chunks")
        return samples[0] if len(samples) == 1 else b"".join(samples)

    def _chunk(self) -> bytes:
        """Take what is held. Return it where it turns out to be samples."""
        held = bytes(self._held)
        if held == b"RIFF" + held[4:_CHUNK] and not self._at:
            self._wanted = _RIFF
            return b""
        self._held.clear()
        self._wanted = _CHUNK
        if self._in_form:
            self._form, self._in_form = held, False
            return b""
        name, size = held[:4], _number(held, 4, 4)
        whole = size + size % 2
        if held[_CHUNK:] == b"WAVE":
            self._at, self._riff, self._form = _RIFF, size, b""
        elif self._at:
            self._at += _CHUNK
            if name == b"data" and len(self._form) >= 16:
                self.header = _header(self._form, self._at, size, self._riff)
                self._left, self._at = size if self.header.known else None, 0
                return b""
            self._at += whole
            if self._at > _MOST_HEADER:
                raise ValueError("the header of its WAV does not end")
            self._in_form = name == b"fmt "
            self._wanted, self._skipped = (size, size % 2) if self._in_form else (_CHUNK, whole)
        elif not _printable(name) or size > _MOST_HEADER:
            self._left = None
            return held
        else:
            self._held += held[_CHUNK + whole :]
            self._skipped = max(0, whole - (len(held) - _CHUNK))
        return b""


def _header(form: bytes, at: int, size: int, riff: int) -> Header:
    tag = _number(form, 24 if _number(form, 0, 2) == _EXTENSIBLE and len(form) >= 26 else 0, 2)
    return Header(tag, _number(form, 2, 2), _number(form, 4, 4), _number(form, 14, 2), at, size, riff)


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _printable(name: bytes) -> bool:
    return len(name) == 4 and all(0x20 <= byte < 0x7F for byte in name)
