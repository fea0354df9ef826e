"""The way to a server: over TCP, a Unix socket or a proxy, and with which certificates.

Both transports and `get` connect through it. Without a proxy or a Unix socket they connect as they always do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies_environment

from workloads.errors import UserError, printable
from workloads.host_names import is_loopback

PROXIES = ("http", "socks5")
"""Schemes of proxies: CONNECT (RFC 9110, section 9.3.6), and SOCKS (RFC 1928) with names looked up by the proxy."""
FULL_S = 0.001
"""After which a Unix socket that was full is tried again, s. [chosen]"""
SCHEMES = {"http": "HTTP_PROXY", "ws": "HTTP_PROXY", "https": "HTTPS_PROXY", "wss": "HTTPS_PROXY"}
"""Schemes of addresses, with the environment variable of their proxy. [config: curl, and RFC 6455, section 4.1]"""


@dataclass(frozen=True)
class Route:
    """`ca`: PEM file of the certificate authorities to trust in place of the system's. `certificate`, `key`: PEM files
    of the client's. `proxy`: its address without user and password, which come from the environment."""

    ca: str | None = None
    insecure: bool = False
    certificate: str | None = None
    key: str | None = None
    unix_socket: str | None = None
    proxy: str | None = None

    @property
    def is_direct(self) -> bool:
        """True where connections are of TCP, from this host to the server."""
        return self.unix_socket is None and self.proxy is None

    def tls(self) -> ssl.SSLContext:
        """Return the context of all connections. UserError for a file that holds no certificate or key."""
        return _context(self.ca, self.insecure, self.certificate, self.key)

    async def opened(self, host: str, port: int) -> socket.socket:
        """Return a connected socket over the Unix socket or the proxy, before TLS. OSError where there is none."""
        if self.unix_socket is not None:
            while True:
                try:
                    return _over_unix(self.unix_socket, 0)
                except BlockingIOError:  # its queue is full
                    await asyncio.sleep(FULL_S)
        from python_socks.async_.asyncio import Proxy

        assert self.proxy is not None
        with _Failures(self.proxy):
            peer = await Proxy.from_url(self._with_credentials(), rdns=True).connect(host, port)
        return _at_once(peer)

    def connected(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return what `opened` does, or a connection of TCP, and wait for it."""
        if self.unix_socket is not None:
            return _over_unix(self.unix_socket, timeout_s)
        if self.proxy is None:
            return socket.create_connection((host, port), timeout=timeout_s)
        from python_socks.sync import Proxy

        with _Failures(self.proxy):
            peer = Proxy.from_url(self._with_credentials(), rdns=True).connect(host, port, timeout=timeout_s)
        peer.settimeout(timeout_s)
        return _at_once(peer)

    def _with_credentials(self) -> str:
        """Return the proxy's address with the user and password that the environment has for it."""
        for text in getproxies_environment().values():
            parts = _parts(text)
            if parts is not None and _address(parts) == self.proxy and "@" in parts.netloc:
                return f"{parts.scheme}://{parts.netloc.rpartition('@')[0]}@{urlsplit(self.proxy).netloc}"
        assert self.proxy is not None
        return self.proxy


DIRECT = Route()
"""TCP and the system's certificate authorities."""


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for `url`, without user and password; None: none.

    `HTTPS_PROXY` counts for https:// and wss://, `HTTP_PROXY` for http:// and ws://, `ALL_PROXY` for both. Hosts of
    `NO_PROXY`, which may be networks such as 10.0.0.0/8, and this host itself are called without one, as in Go's
    clients. UserError, which does not repeat a password, for a proxy that cannot be used.
    """
    named, parts = getproxies_environment(), urlsplit(url)
    variable, host = SCHEMES[parts.scheme], parts.hostname or ""
    text = named.get(variable.split("_")[0].lower()) or named.get("all")
    port = parts.port or {"HTTP_PROXY": 80, "HTTPS_PROXY": 443}[variable]
    if not text or is_loopback(host) or _excepted(host, port, named.get("no", "")):
        return None
    proxy = _parts(text)
    if proxy is None or proxy.scheme not in PROXIES or not proxy.hostname:
        raise UserError(
            f"{variable} (or ALL_PROXY) names no proxy that can be used; write {' or '.join(PROXIES)}://HOST:PORT, or "
            f"except the host with NO_PROXY={printable(host, 80)}."
        )
    return _address(proxy)


def check_proxy(address: str) -> None:
    """Raise UserError, which does not repeat it, for an address that is not of a proxy, or that holds a password."""
    parts = _parts(address)
    if parts is None or parts.scheme not in PROXIES or _address(parts) != address:
        raise UserError(
            f"proxy is not {' or '.join(PROXIES)}://HOST:PORT, without user and password; export HTTPS_PROXY with "
            "those, or correct it."
        )


def certificate_fault(url: str, error: ssl.SSLCertVerificationError) -> str:
    """Return why the server's certificate is not accepted, with the remedy, as a sentence."""
    remedies = {
        "expired": "renew it",
        "not yet valid": "set the clock",
        "mismatch": "give a name that it is for as the host of the url",
    }
    why = error.verify_message.rstrip(".")
    remedy = next((text for words, text in remedies.items() if words in why), "give its authority with --ca FILE")
    return f"the certificate of {url} is not accepted ({why}); {remedy}, or measure without a check by --insecure."


@cache
def _context(ca: str | None, insecure: bool, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Return one context for all connections: loading the certificates takes longer than a handshake."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:  # of which an SSLError is one
        raise UserError(f"--ca {ca} has no certificates in PEM format ({_reason(error)}); give another.") from None
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=_no_passphrase)
        except OSError as error:
            raise UserError(
                f"--client-cert {certificate} and --client-key {key or certificate} are no certificate and its key "
                f"in PEM format ({_reason(error)}); give those."
            ) from None
    return context


def _no_passphrase() -> str:
    raise UserError("the key of --client-key wants a passphrase; give a key without one, as openssl pkey writes it.")


def _reason(error: OSError) -> str:
    return (getattr(error, "reason", None) or error.strerror or str(error)).replace("_", " ").lower()


class _Failures:
    """Turns errors of the library for proxies into OSErrors that name the proxy."""

    def __init__(self, proxy: str) -> None:
        self._proxy = proxy

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, _: object) -> None:
        from python_socks import ProxyError

        if isinstance(error, ProxyError):
            raise ProxyRefused(
                f"the proxy {self._proxy} refuses the connection ({printable(str(error), 80)})"
            ) from None
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            raise ProxyRefused(f"the proxy {self._proxy} does not answer") from None


class ProxyRefused(OSError):
    """No connection because of the proxy."""


class _Unix(socket.socket):
    """A Unix socket that takes TCP's options, which picows sets on every socket, and has none of them."""

    def setsockopt(self, level: int, *option: Any) -> None:
        if level != socket.IPPROTO_TCP:
            super().setsockopt(level, *option)

    def getsockopt(self, level: int, *option: int) -> Any:
        return 0 if level == socket.IPPROTO_TCP else super().getsockopt(level, *option)


def _over_unix(path: str, timeout_s: float) -> socket.socket:
    peer = _Unix(socket.AF_UNIX)
    try:
        peer.settimeout(timeout_s)
        peer.connect(path)
    except BaseException:
        peer.close()
        raise
    return peer


def _at_once(peer: socket.socket) -> socket.socket:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _parts(text: str) -> SplitResult | None:
    """Return the parts of a proxy's address, which may lack its scheme; None: it is none."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        parts = parts._replace(scheme={"socks5h": "socks5"}.get(parts.scheme, parts.scheme))
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _address(proxy: SplitResult) -> str:
    """`http://proxy:3128`, without user and password."""
    host = proxy.hostname or ""
    port = proxy.port or {"http": 80, "https": 443}.get(proxy.scheme, 1080)
    return f"{proxy.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _excepted(host: str, port: int, no_proxy: str) -> bool:
    """Return whether an entry of `NO_PROXY` is the host, its domain, host and port, its network, or `*`."""
    for entry in no_proxy.lower().split(","):
        name = entry.strip().lstrip(".")
        if name and (name in ("*", host, f"{host}:{port}") or host.endswith(f".{name}")):
            return True
        with contextlib.suppress(ValueError):
            if "/" in name and ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
    return False
