"""Diagnosis of an address where the protocol of its url failed: a web server, one with or without TLS, or neither.

The address is asked once, with one HTTP request in plain and one within TLS. A user then reads what to correct instead
of a library's message.
"""

import contextlib
import re
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from harness.live.endpoints.transport.get import Answer, get
from harness.live.endpoints.transport.route import DIRECT, Route

MOST_BYTES = 2**20
"""[chosen] Most bytes read of an answer."""
PATIENCE_S = 2.0
"""With each request: who has it answers at once, which takes five times the way there and back. [chosen]"""
SECURE = {"ws": "wss", "http": "https"}
PLAIN = {secure: plain for plain, secure in SECURE.items()}


def asked(
    url: str, tls: bool, path: str | None = None, headers: Mapping[str, str] | None = None, route: Route = DIRECT
) -> Answer | None:
    """Return the answer to a GET of `path` (default: the url's) at the address; None: no HTTP answer. `headers`: only
    for a host whose certificate holds, where there is TLS."""
    parts = urlsplit(url)
    netloc = parts.netloc if parts.port else f"{parts.netloc.rstrip(':')}:{_port(url)}"
    address = urlunsplit(("https" if tls else "http", netloc, path or parts.path, "", ""))
    try:
        return get(
            address, timeout_s=PATIENCE_S, most_bytes=MOST_BYTES, headers=headers, verified=bool(headers), route=route
        )
    except (OSError, ValueError):
        return None


def described(url: str, route: Route = DIRECT) -> str | None:
    """Return the fault of `url`, as the rest of a sentence, with its remedy; None where nothing is known."""
    parts = urlsplit(url)
    secure = parts.scheme in PLAIN
    swapped = (PLAIN if secure else SECURE)[parts.scheme]
    answer = asked(url, secure, route=route)
    garbled = answer is None or answer.status == 400  # which is what servers of HTTPS answer to plain HTTP
    if garbled and asked(url, not secure, route=route) is not None:
        has = "has no TLS" if secure else "wants TLS"
        return f"{has}; give {urlunsplit(parts._replace(scheme=swapped))}."
    if answer is None:
        if why := client_certificate_fault(url, route):
            return why
        try:
            reach(url, route)
        except OSError:
            return None
        return "speaks no HTTP, over which realtime endpoints and chat completions are; correct the port."
    who = f"HTTP status {answer.status}" + (f" of {answer.software}" if answer.software else "")
    return (
        f"is a web server that opens no WebSocket there ({who}); correct the path, often /v1/realtime, or the port, "
        "where another program may listen."
    )


def reach(url: str, route: Route = DIRECT, timeout_s: float = PATIENCE_S) -> None:
    """Connect to the address, shake hands where it has TLS, and hang up.

    OSError where nothing takes a connection; of TLS only `ssl.SSLCertVerificationError`, for a certificate that is not
    accepted.
    """
    parts = urlsplit(url)
    with route.connected(parts.hostname or "", _port(url), timeout_s) as peer:
        if parts.scheme in PLAIN:
            peer.settimeout(min(timeout_s, PATIENCE_S))
            try:
                route.tls().wrap_socket(peer, server_hostname=parts.hostname).close()
            except ssl.SSLCertVerificationError:
                raise
            except OSError:  # what is no TLS is described by its protocol's own first words
                return


def client_certificate_fault(url: str, route: Route) -> str | None:
    """Return that the server wants another certificate of the client, as the rest of a sentence; None: it does not."""
    host = urlsplit(url).hostname or ""
    if urlsplit(url).scheme not in PLAIN:
        return None
    alert = ""
    with contextlib.suppress(OSError), route.connected(host, _port(url), PATIENCE_S) as peer:
        try:
            with route.tls().wrap_socket(peer, server_hostname=host) as tls:
                tls.recv(1)  # by TLS 1.3 it comes after the handshake
        except ssl.SSLError as error:
            alert = error.reason or ""
    if not _ALERT.search(alert):
        return None
    if route.certificate is None:
        return "wants a certificate of the client; give it with --client-cert FILE and --client-key FILE."
    return f"refuses the client's certificate in {route.certificate}; give one of an authority that it trusts."


_ALERT = re.compile("ALERT_(CERTIFICATE|BAD_CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|ACCESS_DENIED)")
"""Alerts of TLS with which servers refuse a client's certificate, or its lack. [config: RFC 8446, section 6.2]"""


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme in PLAIN else 80)
