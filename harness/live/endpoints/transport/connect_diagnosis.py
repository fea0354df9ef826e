"""Diagnosis of an address where the protocol of its url failed: a web server, one with or without TLS, or neither.

The address is asked once, with one HTTP request in plain and one within TLS. A user then reads what to correct instead
of a library's message.
"""

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from harness.live.endpoints.transport.get import Answer, get

MOST_BYTES = 2**20
"""[chosen] Most bytes read of an answer."""
PATIENCE_S = 2.0
"""With each request: who has it answers at once, which takes five times the way there and back. [chosen]"""
SECURE = {"ws": "wss", "http": "https"}
PLAIN = {secure: plain for plain, secure in SECURE.items()}


def asked(
    url: str, tls: bool, path: str | None = None, headers: Mapping[str, str] | None = None
) -> Answer | None:
    """Return the answer to a GET of `path` (default: the url's) at the address; None: no HTTP answer. `headers`: only
    for a host whose certificate holds, where there is TLS."""
    parts = urlsplit(url)
    netloc = parts.netloc if parts.port else f"{parts.netloc.rstrip(':')}:{_port(url)}"
    address = urlunsplit(("https" if tls else "http", netloc, path or parts.path, "", ""))
    try:
        return get(
            address, timeout_s=PATIENCE_S, most_bytes=MOST_BYTES, headers=headers, verified=bool(headers)
        )
    except (OSError, ValueError):
        return None


def described(url: str) -> str | None:
    """Return the fault of `url`, as the rest of a sentence, with its remedy; None where nothing is known."""
    parts = urlsplit(url)
    secure = parts.scheme in PLAIN
    swapped = (PLAIN if secure else SECURE)[parts.scheme]
    answer = asked(url, secure)
    garbled = answer is None or answer.status == 400  # which is what servers of HTTPS answer to plain HTTP
    if garbled and asked(url, not secure) is not None:
        has = "has no TLS" if secure else "wants TLS"
        return f"{has}; give {urlunsplit(parts._replace(scheme=swapped))}."
    if answer is None:
        try:
            reach(url)
        except OSError:
            return None
        return "speaks no HTTP, over which realtime endpoints and chat completions are; correct the port."
    who = f"HTTP status {answer.status}" + (f" of {answer.software}" if answer.software else "")
    return (
        f"is a web server that opens no WebSocket there ({who}); correct the path, often /v1/realtime, or the port, "
        "where another program may listen."
    )


def reach(url: str, timeout_s: float = PATIENCE_S) -> None:
    """Connect to the address, and hang up. OSError where nothing takes a connection."""
    socket.create_connection((urlsplit(url).hostname or "", _port(url)), timeout=timeout_s).close()


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme in PLAIN else 80)
