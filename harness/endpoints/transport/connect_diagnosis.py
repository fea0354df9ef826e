"""Diagnosis of an address where the protocol of its url failed: a web server, one with or without TLS, or neither.

The address is asked once, with one HTTP request in plain and one within TLS. A user then reads what to correct instead
of a library's message.
"""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

MOST_BYTES = 2**20
"""[chosen] Most bytes read of an answer."""
PATIENCE_S = 1.0
"""With each request: who has it answers at once. [chosen]"""
SECURE = {"ws": "wss", "http": "https"}
PLAIN = {secure: plain for plain, secure in SECURE.items()}


class Answer(NamedTuple):
    """The answer of a web server. `software`: its name for itself."""

    status: int
    software: str
    body: bytes


def asked(
    url: str, tls: bool, path: str | None = None, headers: Mapping[str, str] | None = None
) -> Answer | None:
    """Return the answer to a GET of `path` (default: the url's) at the address; None: no HTTP answer. `headers`: only
    for a host whose certificate holds, where there is TLS."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme in PLAIN else 80)
    if tls:
        context = ssl.create_default_context() if headers else ssl._create_unverified_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname, port, timeout=PATIENCE_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path or parts.path or "/", headers=headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheader("Server", ""), answer.read(MOST_BYTES))
        except (OSError, http.client.HTTPException):
            return None


def described(url: str) -> str | None:
    """Return the fault of `url`, as the rest of a sentence, with its remedy; None where nothing is known."""
    parts = urlsplit(url)
    secure = parts.scheme in PLAIN
    swapped = (PLAIN if secure else SECURE)[parts.scheme]
    found = asked(url, secure)
    garbled = found is None or found.status == 400  # which is what servers of HTTPS answer to plain HTTP
    if garbled and asked(url, not secure) is not None:
        has = "has no TLS" if secure else "wants TLS"
        return f"{has}; give {urlunsplit(parts._replace(scheme=swapped))}."
    if found is None:
        try:
            reach(url)
        except OSError:
            return None
        return "speaks no HTTP, over which realtime endpoints and chat completions are; correct the port."
    who = f"HTTP status {found.status}" + (f" of {found.software}" if found.software else "")
    return (
        f"is a web server that opens no WebSocket there ({who}); correct the path, often /v1/realtime, or the port, "
        "where another program may listen."
    )


def reach(url: str, timeout_s: float = PATIENCE_S) -> None:
    """Connect to the address, and hang up. OSError where nothing takes a connection."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme in PLAIN else 80)
    socket.create_connection((parts.hostname or "", port), timeout=timeout_s).close()
