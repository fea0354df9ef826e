"""The answer of a speech server: sound or the text of an error, whatever status and type it has."""

import re

from harness.live.endpoints.dialects.chat import any_json, reason_of

MOST_BYTES = 4096
"""Most bytes kept of a text, for the error that it may state. [chosen]"""
_LOOKED_AT = 64
"""Bytes of the begin that tell sound from text: sound has a byte among them that no text has. [chosen]"""
_READABLE = re.compile(rb"[\t\n\v\f\r\x20-\x7e\x80-\xf4]+")
"""Bytes of texts in UTF-8."""
_WORDS = 80
"""Characters of a plain text that are repeated as the reason. [chosen]"""
_MARKED_UP = re.compile(r'[<{\["]|(data|event|id|retry)?:')
"""Begins texts that are not plain words: of HTML, JSON and events."""
_NOT_AUDIO = re.compile(
    r"(text|image|multipart)/|application/(.*\+)?(json|xml|html|xhtml|yaml|javascript|problem)|"
    r".*(jsonl|ndjson|json-seq)\b",
    re.IGNORECASE,
)
"""Media types whose bodies are never sound."""


def not_audio(content_type: str) -> str:
    """Return the media type if its bodies are never sound; empty: they may be."""
    name = content_type.partition(";")[0].strip().lower()
    return name if _NOT_AUDIO.match(name) else ""


def is_text(data: bytes) -> bool:
    """Return whether `data` can be the begin of a text in UTF-8. One byte again and again is sound: a level."""
    if not _READABLE.fullmatch(data, 0, _LOOKED_AT) or not _READABLE.fullmatch(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:
            return False  # and not only the last character is cut
    return len(data) < _LOOKED_AT or data.isspace() or data != data[:1] * len(data)


def text_reason(text: bytes, type: str = "") -> str:
    """Return why an answer that is no sound failed: the error that it states, in JSON or in plain words, or else its
    media `type`."""
    values = [any_json(text)] + [any_json(line) for line in text.splitlines()]
    if why := next((why for value in values if (why := reason_of(value))), ""):
        return why
    message = " ".join(text.decode(errors="replace").split())
    plain = type in ("", "text", "text/plain") and not _MARKED_UP.match(message)
    return f"error: {message[:_WORDS]}" if plain and message else f"{type or 'text'} and not audio"


class SpeechBody:
    """The body of one answer, which comes in any pieces."""

    def __init__(self, content_type: str) -> None:
        self._type = not_audio(content_type)
        self._text: bytes | None = b""
        """All of it so far, as long as it is text or may be; None: it is sound."""
        self._last = b""

    def sound(self, piece: bytes) -> bytes:
        """Return the bytes that are certain to be sound, with this piece."""
        if self._text is None:
            self._last = piece if len(piece) >= MOST_BYTES else (self._last + piece)[-MOST_BYTES:]
            return piece
        held = self._text + piece
        if self._type or is_text(held):
            self._text = held[:MOST_BYTES]
            if len(held) > MOST_BYTES:
                self._type = self._type or "text"
            return b""
        self._text = None
        self._last = held[-MOST_BYTES:]
        return held

    @property
    def error(self) -> str:
        """Reason why the body, which has ended, is not sound alone; empty: it is."""
        if self._text is not None:
            return text_reason(self._text, self._type) if self._text else ""
        last = self._last.rstrip()
        if last[-7:].lower() == b"</html>":
            return "text/html after the audio"
        if last.endswith(b"}"):
            for begin in (match.start() for match in re.finditer(rb"\{", last)):
                if why := reason_of(any_json(last[begin:])):
                    return why
        return ""
