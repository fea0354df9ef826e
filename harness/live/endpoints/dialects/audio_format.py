"""Audio formats as servers state them, and the samples of their audio.

Read are 16-bit PCM and G.711 (ITU-T G.711, 11/1988), in base64 or not. Formats are stated as OpenAI's objects and older
names (pcm16, g711_ulaw), as MIME types (audio/pcm;rate=16000, audio/PCMU of RFC 3551), or by names with a rate
(pcm_22050).
"""

import re
from binascii import Error, a2b_base64
from functools import cache, lru_cache
from typing import Any

import msgspec
import numpy as np

RATE = 24_000
"""Samples/s of PCM where a server says nothing. [config: OpenAI Realtime API]"""
TELEPHONE_RATE = 8000
"""Samples/s of G.711 where a server says nothing. [config: G.711]"""
RATES = range(4000, 384_001)
"""Plausible samples/s. [chosen]"""
_PCM, _ULAW, _ALAW = "pcm", "u-law", "A-law"
_TELEPHONE = (_ULAW, _ALAW)
_NAMES = {
    **dict.fromkeys(
        ("pcm", "pcm16", "pcm16le", "pcms16le", "s16le", "s16", "l16", "linear16", "lpcm", "int16", "raw"), _PCM
    ),
    **dict.fromkeys(("ulaw", "mulaw", "g711ulaw", "g711mulaw", "g711u", "pcmu", "pcmulaw", "pcmmulaw", "basic"), _ULAW),
    **dict.fromkeys(("alaw", "g711alaw", "g711a", "pcma", "pcmalaw", "alawbasic"), _ALAW),
}
_SAYS_NOTHING = ("", "audio", "application", "octetstream", "binary")
_WITH_RATE = re.compile(r"(.+?)[-_ ]?(\d{4,6})(?:hz)?")
_RATE_FIELD = re.compile(r"(output|out|audio|tts)*(sample|sampling)?rate(hz|hertz)?")
LONGEST_NAME = 200
"""Characters of a format's name that are read. [chosen]"""
_DEEPEST = 8
"""Objects within each other that may state a format. [chosen] OpenAI's sessions have four."""
_BITS = ("bits", "bitdepth", "bitspersample", "samplewidth")


class AudioFormat(msgspec.Struct, frozen=True, gc=False):
    """The audio format that a server states; None: not stated. `encoding`: pcm, u-law, A-law, or the name of one that
    is not read."""

    encoding: str | None = None
    rate: int | None = None
    channels: int | None = None

    def over(self, other: "AudioFormat") -> "AudioFormat":
        """Return this format, completed by `other`."""
        if other in (NOTHING, self):
            return self
        same = self.encoding is None or other.encoding in (None, self.encoding)
        return AudioFormat(
            self.encoding or other.encoding,
            self.rate or (other.rate if same else None),
            self.channels or other.channels,
        )

    @property
    def unread(self) -> str | None:
        """Reason why its audio cannot be measured; None: it can."""
        return None if self.encoding in (None, _PCM, *_TELEPHONE) else f"audio as {self.encoding}, which is not read"

    @property
    def frame(self) -> int:
        """Bytes of one sample of every channel."""
        return (1 if self.encoding in _TELEPHONE else 2) * (self.channels or 1)

    @property
    def bytes_per_s(self) -> int:
        return self.frame * (self.rate or (TELEPHONE_RATE if self.encoding in _TELEPHONE else RATE))

    def samples(self, data: bytes) -> np.ndarray:
        """Return the samples of whole frames, int16, of all channels in turn."""
        if self.encoding in _TELEPHONE:
            return _table(self.encoding)[np.frombuffer(data, np.uint8)]
        return np.frombuffer(data, "<i2")

    def pcm(self, data: bytes) -> bytes:
        """Return whole frames as 16-bit little-endian mono, of their first channel."""
        if self.frame == 2 and self.encoding not in _TELEPHONE:
            return data
        return self.samples(data)[:: self.channels or 1].tobytes()


NOTHING = AudioFormat()
ULAW = AudioFormat(_ULAW, TELEPHONE_RATE, 1)


def as_ulaw(pcm: bytes) -> bytes:
    """Return 16-bit little-endian samples in G.711's u-law."""
    samples = np.frombuffer(pcm, "<i2").astype(np.int32)
    size = np.minimum(np.abs(samples), 32635) + 132
    chord = np.floor(np.log2(size)).astype(np.int32) - 7
    code = (chord << 4) | (size >> (chord + 3) & 0x0F) | np.where(samples < 0, 0x80, 0)
    return (code ^ 0xFF).astype(np.uint8).tobytes()


def stated(about: Any, format: bool = False, depth: int = 0) -> AudioFormat:
    """Return the format that a name, or an object as JSON has them, states of the audio from a server: a session, a
    response, a `format`, or the fields of an event. Statements about the other direction are ignored."""
    if isinstance(about, str):
        return named(about)
    if not isinstance(about, dict) or depth > _DEEPEST:
        return NOTHING
    audio_format = NOTHING
    fields = {re.sub(r"[^a-z0-9]", "", str(name).lower()): value for name, value in about.items()}
    for name in ("output", "audio", "format", "audioformat", "outputaudioformat", "outputformat", "responseformat"):
        inner = fields.get(name)
        if not isinstance(inner, str) or name.endswith("format"):
            audio_format = audio_format.over(stated(inner, name.endswith("format"), depth + 1))
    names = ("encoding", "codec", "mimetype", "contenttype") + (("type", "name") if format else ())
    for name in names:
        if isinstance(value := fields.get(name), str):
            audio_format = audio_format.over(named(value))
    rates = [(name, _rate(value)) for name, value in fields.items() if _RATE_FIELD.fullmatch(name)]
    rates.sort(key=lambda each: "out" not in each[0])
    rate = next((value for _, value in rates if value), None)
    channels = next((n for name in ("channels", "numchannels") if (n := fields.get(name)) in (1, 2)), None)
    audio_format = audio_format.over(AudioFormat(None, rate, channels))
    bits = next((fields[name] for name in _BITS if isinstance(fields.get(name), int)), 16)
    return _deep(audio_format, 8 * bits if bits < 8 else bits)


def named(text: str) -> AudioFormat:
    """Return the format that a name states, with its parameters where it is a MIME type."""
    return _named(text[:LONGEST_NAME])


@lru_cache(256)
def _named(text: str) -> AudioFormat:
    name, *params = (part.strip().lower() for part in text.split(";"))
    about = dict(part.split("=", 1) for part in params if "=" in part)
    codec = about.get("codecs", about.get("codec", "")).strip("\"'")
    short = re.sub(r"^audio/|^x-|^audio/x-", "", name)
    rated = _WITH_RATE.fullmatch(short)
    if rated and _key(short) not in _NAMES and _key(rated[1]) in _NAMES:
        short, about = rated[1], {"rate": rated[2], **about}
    key = _key(codec) if codec else _key(short)
    if key in _SAYS_NOTHING or "/" in short:
        return NOTHING if not name.startswith("audio/") or key in _SAYS_NOTHING else AudioFormat(_shown(short))
    channels = int(about["channels"]) if about.get("channels") in ("1", "2") else None
    audio_format = AudioFormat(_NAMES.get(key) or _shown(codec or short), _rate(about.get("rate")), channels)
    bits = about.get("bits", "16")
    return _deep(audio_format, int(bits) if bits.isdecimal() else 16)


def decoded(base64: str) -> bytes:
    """Return the data of base64 in any of its forms: with line breaks, without padding, in either alphabet, or of
    several pieces. ValueError for anything else."""
    try:
        return msgspec.convert(base64, bytes)  # as of most, at four times the speed
    except msgspec.ValidationError:
        pass
    text = base64.translate(_OTHER_ALPHABET)
    try:
        return b"".join(
            a2b_base64(part + "=" * (-len(part) % 4), strict_mode=True) for part in re.split("=+", text) if part
        )
    except Error as error:
        raise ValueError(str(error)) from None


def length(base64: str) -> int:
    """Return the bytes of its data. ValueError where it is not base64."""
    end = base64.find("=")
    whole = end < 0 or end >= len(base64) - 2
    if whole and "\n" not in base64 and "\r" not in base64 and " " not in base64 and "\t" not in base64:
        return (len(base64) if end < 0 else end) * 3 // 4
    return len(decoded(base64))


def _deep(audio_format: AudioFormat, bits: int) -> AudioFormat:
    if bits == 16 or audio_format.encoding != _PCM:
        return audio_format
    return AudioFormat(f"{bits}-bit PCM", audio_format.rate, audio_format.channels)


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.removeprefix("x-"))


def _rate(value: Any) -> int | None:
    """Return samples/s, where the value is plausible."""
    try:
        rate = round(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return rate if rate in RATES else None


def _shown(name: str) -> str:
    return "".join(each for each in name if each.isprintable())[:40] or "an encoding without a name"


_OTHER_ALPHABET = str.maketrans("-_", "+/", " \n\r\t")


@cache
def _table(encoding: str | None) -> np.ndarray:
    """Return the sample of each byte, int16, by G.711's tables 1 and 2."""
    code = np.arange(256)
    if encoding == _ULAW:
        code ^= 0xFF
        size = ((((code & 0x0F) << 3) + 0x84) << (code >> 4 & 7)) - 0x84
        return np.where(code & 0x80, -size, size).astype("<i2")
    code ^= 0x55
    step, chord = code & 0x0F, code >> 4 & 7
    size = np.where(chord == 0, (step << 4) + 8, ((step << 4) + 0x108) << np.maximum(chord - 1, 0))
    return np.where(code & 0x80, size, -size).astype("<i2")
