"""Limits of what one server may send, so that none can take the memory or the time of the other calls.

A turn whose answer breaks a limit fails, with the limit as its reason.
"""

MOST_HEAD = 64 * 2**10
"""Bytes of an answer's head, and of its framing and trailers above those of its body. [chosen] Common servers and
proxies refuse heads of more than 8 to 32 KiB."""
MOST_MESSAGE = 16 * 2**20
"""Bytes of one message or event. [chosen] Four minutes of PCM at 24 kHz in base64."""
MOST_PARTS = 2**16
"""Fragments of one WebSocket message, and lines of one event. [chosen] `MOST_MESSAGE` in pieces of 256 bytes."""
MOST_REPLY = 64 * 2**20
"""Bytes of a chat completion's stream. [chosen] 128,000 tokens, as long as replies get, at 500 bytes an event."""
MOST_REPLIES = 2**13
"""Replies, items of replies, and changes of items within a reply, in one session. [chosen] Of eight hours at a reply
every four seconds."""
READ_AT_ONCE = 32 * 2**10
"""Bytes of one read of a WebSocket, whose frames are handled one after the other. [chosen] Half a second of audio, or
16,384 empty frames."""
LONG_READ_S = 0.005
"""After a read whose frames took longer to handle, s, all other calls go first. [chosen]"""


class Violation(Exception):
    """A server sends more than a client takes, or breaks a rule of the protocol. Its text is the reason of the failed
    turn."""


def size(limit: int) -> str:
    """Return a limit in words."""
    return f"{limit // 2**20} MiB" if limit >= 2**20 else f"{limit // 2**10} KiB"


STARTING = b"starting\n"
"""Body of a server of ours whose models still load (`harness.serving.starting`)."""
