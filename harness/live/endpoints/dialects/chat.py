"""The stream of a chat completion: when output came, how the reply ended, and its tokens by the server's own count.

Only the needed fields are read, in any JSON that clients take: null for an absent value, 8.0 for 8, half of a surrogate
pair, NaN. Fields: OpenAI's API of chat completions and of completions; `reasoning` and continuous usage of vLLM and
SGLang, the latter's finish reason that is an object, and channels of gateways to other servers.
"""

import json
from typing import Any

import msgspec

from harness.live.endpoints.outcome import Facts, outcome
from harness.live.endpoints.transport.limits import MOST_MESSAGE, MOST_PARTS, MOST_REPLY, Violation, size

BOM = b"\xef\xbb\xbf"
LF, CR = b"\n\r"

Event = tuple[bytes, bytes]
"""The name, empty where the server gives none, and the data."""


class EventStream:
    """Reads one `text/event-stream`, cut anywhere (HTML standard, section 9.2.6). Only names and data are kept: `id`
    and `retry` are for browsers that connect again."""

    def __init__(self) -> None:
        self._rest: bytes | bytearray = b""
        """The begin of a line whose end has not come."""
        self._name = b""
        self._data: list[bytes] = []
        self._held = 0
        """Bytes read since the last end of an event."""
        self._begun = self._after_cr = self._between = False

    def single(self, chunk: bytes) -> bytes | None:
        """Return the data of `chunk` where it is exactly one event of one line without a name, as most are. None:
        `feed` reads it."""
        line, end, rest = chunk.partition(b"\n\n")
        if rest or not end or not self._between or line[:6] != b"data: " or LF in line or CR in line:
            return None
        return line[6:]

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that end in `chunk`. Violation where one is too long."""
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        if lines:
            if self._rest:
                lines[0] = bytes(self._rest) + lines[0]
            self._rest = rest
        elif self._rest:
            if isinstance(self._rest, bytes):
                self._rest = bytearray(self._rest)
            self._rest += rest  # of a long line, each byte once
        else:
            self._rest = rest
        if lines and not self._begun:
            self._begun, lines[0] = True, lines[0].removeprefix(BOM)
        events = []
        for line in lines:
            if not line:
                if self._data or self._name:  # a name alone is no event for a browser, but may say error
                    events.append((self._name, b"\n".join(self._data)))
                    self._name, self._data = b"", []
            elif line.startswith(b"data: "):
                self._data.append(line[6:])
            else:
                field, _, value = line.partition(b":")
                if field == b"data":
                    self._data.append(value)
                elif field == b"event":
                    self._name = value.removeprefix(b" ")
        self._between = self._begun and not (self._rest or self._data or self._name or self._after_cr)
        self._held += len(chunk)
        if self._held > LENIENT:
            self._check(events)
        if events or self._between:
            self._held = 0
        return events

    def _check(self, events: list[Event]) -> None:
        """Raise Violation where one of the events that have ended, or the next one, is too long."""
        limit = ""
        if not events and not self._between and self._held > MOST_MESSAGE:
            limit = size(MOST_MESSAGE)
        elif len(self._data) > MOST_PARTS:
            limit = f"{MOST_PARTS:,} lines"
        elif any(len(data) > LENIENT and sum(map(data.count, _VALUES)) > MOST_PARTS for _, data in events):
            limit = f"{MOST_PARTS:,} values"
        if limit:
            self._rest, self._data, self._name, self._held = b"", [], b"", 0
            raise Violation(f"an event above {limit}")

    def end(self) -> list[Event]:
        """Return the event that the end of the stream cuts off. The standard drops it, but servers end with it."""
        return self.feed(b"\n\n\n")


GOES_ON = {"", "null", "none"}
"""Finish reasons that some servers write instead of null before the end."""
LENIENT = 2**20
"""[chosen] Bytes of JSON that the lenient reader takes; a value in Python has up to 25 times its memory."""
_VALUES = b"[", b"{", b","
"""Before each value in JSON but the first of an object or list."""
MOST_BYTES = 4096
"""[chosen] Most bytes kept of a body without events, for the error that it may state."""


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None
    thinking_blocks: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None
    images: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: Any = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice | None] | None = None
    usage: Any = None
    error: Any = None
    modality: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ChatReply:
    """One reply, whose `facts` it notes. `over`: None while it goes on; empty once it is complete; else why it failed.

    The first end counts, a finish reason or [DONE]. Later data may state tokens, or an error.
    """

    def __init__(self, facts: Facts | None = None) -> None:
        self.facts = facts or Facts()
        self.over: str | None = None
        self.done = False
        """True where nothing more will come, not even usage."""
        self._pieces: list[str] = []
        self.produced: int | None = None
        """Tokens that the server has stated so far."""
        self.prompt: int | None = None
        """Tokens of the prompt; None: the server does not state them."""
        self.cached: int | None = None
        """Tokens of the prompt that the server states it found in its cache; None: it states none, or no number."""
        self._hidden = self._counted = 0
        self._reasoned = False
        self._events = EventStream()
        self._read = 0
        self._body: bytes | None = b""
        """Bytes of the answer so far, as long as no event has come."""

    @property
    def answers(self) -> bool:
        """True from the first text that is not reasoning."""
        return bool(self._pieces)

    @property
    def reasons(self) -> bool:
        """True from the first text that is reasoning."""
        return self._reasoned

    @property
    def content(self) -> str:
        """The text of the reply, without reasoning and calls. Halves of a split surrogate pair are one character."""
        text = "".join(self._pieces)
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    @property
    def delivered(self) -> int | None:
        """Tokens received, without reasoning that the server has kept; None: the server does not state them."""
        tokens = (self.produced or 0) - (0 if self._reasoned else self._hidden)
        return tokens if tokens > 0 else None

    def read(self, chunk: bytes) -> list[int]:
        """Return the tokens of each message with output that ends in `chunk`, 1 where the server states none."""
        if self._body is not None and len(self._body) < MOST_BYTES:
            self._body = (self._body + chunk)[:MOST_BYTES]
        self._read += len(chunk)
        if self._read > MOST_REPLY:
            self._end(f"a reply above {size(MOST_REPLY)}")
            return []
        data = self._events.single(chunk)
        try:
            return self._take(self._events.feed(chunk)) if data is None else self._event(b"", data, False)
        except (Violation, RecursionError) as error:
            self._end(_fault(error))
            return []

    def end(self) -> list[int]:
        """End the body, and with it an event that lacks its own end. Return its tokens as `read` does."""
        tokens = []
        try:
            tokens = self._take(self._events.end(), last=True)
        except (Violation, RecursionError) as error:
            self._end(_fault(error))
        if self._body is not None:
            self._end(reason_of(any_json(self._body)) or ("no stream of events" if self._body else ""))
        elif self.over is None:
            self.lose("cut short")
        return tokens

    def lose(self, lost: str) -> None:
        """End the reply, whose answer has ended as `lost` says, before the server has marked its end."""
        self.facts.lost = self.facts.lost or lost
        self.over = self.over or outcome(self.facts)

    def _take(self, events: list[Event], last: bool = False) -> list[int]:
        return [tokens for name, data in events for tokens in self._event(name, data, last)]

    def _event(self, name: bytes, data: bytes, last: bool) -> list[int]:
        """Return the tokens of its message with output, if it has any. `last`: it may be cut."""
        self._body = None
        if name and b"error" in name.lower():
            document = any_json(data)
            why = reason_of(data.decode(errors="replace") if document is None else document, True)
            self._end(why or "error: unknown")
            return []
        try:
            chunk = None if data == b"[DONE]" else _decode(data)
        except _BROKEN:
            chunk = None
        if chunk is None:
            tokens = self._unusual(name, data, last)
            return [tokens] if tokens else []
        choices = chunk.choices
        if choices and len(choices) == 1 and (choice := choices[0]) and (delta := choice.delta):
            content, more = delta.content, choice.finish_reason or choice.error or chunk.usage or chunk.error
            if content and content.__class__ is str and not more and not chunk.modality and self.over is None:
                self._pieces.append(content)  # as of most
                self.facts.output = True
                self._counted += 1
                return [1]
        tokens = self._chunk(chunk, name, data)
        return [tokens] if tokens else []

    def _unusual(self, name: bytes, data: bytes, last: bool) -> int:
        """Read data that a strict reader refuses. Return the number of new tokens in it."""
        data = data.strip()
        if data == b"[DONE]":
            self.done = True
            self._end("")
        elif data and data != b"null":
            document = any_json(data)
            try:
                if isinstance(document, dict):
                    return self._chunk(msgspec.convert(document, _Chunk), name, data)
            except msgspec.ValidationError:
                pass
            why = reason_of(document)
            if why or not last:
                self._end(why or "garbage")
        return 0

    def _chunk(self, chunk: _Chunk, name: bytes, data: bytes) -> int:
        before = self._counted
        stated = chunk.usage is not None and self._state(chunk.usage)
        strange = not chunk.choices and not stated and name in (b"", b"message")
        if (chunk.error or strange) and (why := reason_of(any_json(data))):
            self._end(why)
        spoke, finish = False, None
        for choice in chunk.choices or ():
            if choice is not None:
                spoke |= self._says(choice, chunk.modality)
                finish = choice.finish_reason or finish
                if choice.error and (why := reason_of(choice.error, True)):
                    self._end(why)
        if spoke and self.over is not None:
            if not self.over and chunk.modality != "audio":
                self._end("output after the finish reason")
            return 0
        if spoke:
            self.facts.output = True
            self._counted = max(before + 1, self.produced or 0 if stated else 0)
        if finish:
            self._finish(finish)
        return self._counted - before

    def _says(self, choice: _Choice, modality: Any) -> bool:
        delta = choice.delta or choice.message
        content = choice.text if delta is None else delta.content
        if content and has_text(content):
            if modality != "audio":
                self._pieces.append(content if isinstance(content, str) else "".join(_texts(content)))
            return True
        if delta is None:
            return False
        reasons = any(map(has_text, (delta.reasoning_content, delta.reasoning, delta.thinking, delta.thinking_blocks)))
        self._reasoned |= reasons
        return reasons or any(
            map(has_text, (delta.tool_calls, delta.function_call, delta.refusal, delta.audio, delta.images))
        )

    def _state(self, usage: Any) -> bool:
        """Keep the stated tokens. Return whether it states any."""
        if not isinstance(usage, dict):
            return False
        if prompt := _count(usage.get("prompt_tokens") or usage.get("input_tokens")):
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
            stated = details.get("cached_tokens") if isinstance(details, dict) else None
            self.prompt, self.cached = prompt, None if stated is None else _count(stated)
        tokens = _count(usage.get("completion_tokens") or usage.get("output_tokens"))
        if tokens:
            details = usage.get("completion_tokens_details")
            self.produced = tokens
            self._hidden = _count(details.get("reasoning_tokens")) if isinstance(details, dict) else 0
        return tokens > 0

    def _finish(self, reason: Any) -> None:
        if isinstance(reason, dict):
            reason = reason.get("type")
        reason = str(reason).lower()
        if reason not in GOES_ON and not self.over:
            self.facts.finish = reason
            self._end("")

    def _end(self, error: str) -> None:
        """Note the end, and the error with which it came; empty: none."""
        if not self.over:
            self.facts.ended, self.facts.error = True, self.facts.error or error
            self.over = outcome(self.facts)


def _fault(error: Violation | RecursionError) -> str:
    """Return why an event cannot be read: too much of it, or values too deep within each other."""
    return str(error) if isinstance(error, Violation) else "garbage"


_NOT_OUTPUT = {"id", "call_id", "tool_call_id", "type", "object", "index", "role", "format", "signature"}


def has_text(value: Any) -> bool:
    """Return whether a channel's value has content besides names and numbers."""
    if isinstance(value, dict):
        return any(has_text(each) for name, each in value.items() if name not in _NOT_OUTPUT)
    return any(map(has_text, value)) if isinstance(value, list) else isinstance(value, str) and value != ""


def _texts(parts: Any) -> list[str]:
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return [text for text in texts if isinstance(text, str)]


def _count(value: Any) -> int:
    """Read 8, 8.0 and "8" as 8; 0 for anything else."""
    try:
        return max(0, int(float(value)))
    except (TypeError, ValueError, OverflowError):
        return 0


def any_json(data: bytes) -> Any:
    """Return the value of JSON as most clients read it: NaN and halves of surrogate pairs are accepted. None for data
    that is not JSON, or longer than `LENIENT`."""
    try:
        return json.loads(data.decode(errors="replace")) if len(data) <= LENIENT else None
    except (ValueError, RecursionError):
        return None


_WORDS = ("message", "detail", "msg", "error_message", "error_msg", "title")
_CODES = ("code", "error_code", "status_code")
_FINE = {"", "none", "false", "0", "200", "201", "ok", "success"}
"""Codes and statuses that are no error."""
_FAILED = {"error", "failed", "failure"}


def stated_error(value: Any, sure: bool = False) -> tuple[str, str] | None:
    """Return the code and the words of an error, as far as a JSON value has them; None where it states no error, or is
    nested too deep. `sure`: it is in the place of errors."""
    try:
        return _stated(value, sure)
    except RecursionError:
        return None


def _stated(value: Any, sure: bool = False) -> tuple[str, str] | None:
    if isinstance(value, list):
        value = next(iter(value), None)
    if isinstance(value, str):
        return ("", value.strip()) if value.strip() else None
    if not isinstance(value, dict) or (sure and not any(value.values())):
        return ("", "") if sure and value else None
    for name in ("error", "errors"):
        inner = _stated(value.get(name), True)
        if inner is not None:
            sure = True
            if any(inner):
                return inner
    words = next((nested[1] for name in _WORDS if (nested := _stated(value.get(name))) is not None), "")
    code = next((text for name in _CODES if (text := _scalar(value.get(name))).lower() not in _FINE), "")
    status, kind = _scalar(value.get("status")), _scalar(value.get("type"))
    if status.lower() in _FAILED or (status.isdigit() and int(status) >= 400):
        code, sure = code or status, True
    if sure or words or code or "error" in (value.get("object"), kind):
        return code or ("" if kind == "error" else kind), words
    return None


def reason_of(value: Any, sure: bool = False) -> str:
    """Return why a reply failed, from the server's answer (`value`); empty if it states no error."""
    error = stated_error(value, sure)
    return "" if error is None else f"error: {error[0] or error[1] or 'unknown'}"


def _scalar(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value) if isinstance(value, str | int) else ""
