"""The events of a `text/event-stream`, cut anywhere (HTML standard, section 9.2.6)."""

BOM = b"\xef\xbb\xbf"
LF, CR = b"\n\r"

Event = tuple[bytes, bytes]
"""The name, empty where the server gives none, and the data."""


class EventStream:
    """Reads one stream. Only names and data are kept: `id` and `retry` are for browsers that connect again."""

    def __init__(self) -> None:
        self._rest = b""
        """The begin of a line whose end has not come."""
        self._name = b""
        self._data: list[bytes] = []
        self._begun = self._after_cr = self._between = False

    def single(self, chunk: bytes) -> bytes | None:
        """Return the data of `chunk` where it is exactly one event of one line without a name, as most are. None:
        `feed` reads it."""
        line, end, rest = chunk.partition(b"\n\n")
        if rest or not end or not self._between or line[:6] != b"data: " or LF in line or CR in line:
            return None
        return line[6:]

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that end in `chunk`."""
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
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
        return events

    def end(self) -> list[Event]:
        """Return the event that the end of the stream cuts off. The standard drops it, but servers end with it."""
        return self.feed(b"\n\n\n")
