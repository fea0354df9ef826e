"""Names of hosts: which names are possible, and by which names a request may call this machine.

A page of another site can make its name lead to this machine (DNS rebinding). A browser then takes our answers for that
site's, but it still sends that name as Host.
"""

import ipaddress
import socket
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str) -> None:
    """Raise ValueError, with the reason, for a name that no machine can have, so that nobody looks it up."""
    if any(character.isspace() or not character.isprintable() for character in host):
        raise ValueError("names no machine: a host name has no spaces; correct it")
    if ":" in host:
        return  # an address of IPv6
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("names no machine: a part of a host name has 1 to 63 characters; correct it") from None
    if len(host) > 253:
        raise ValueError("names no machine: a host name has 253 characters at most; correct it")


def only_local(listener: socket.socket) -> bool:
    """Return True if only this machine reaches a bound socket."""
    return is_loopback(listener.getsockname()[0])


def is_own(host: str) -> bool:
    """Return True if a Host header holds an address, or a name that no site has: without a dot, or below localhost."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if ("." not in name and ":" not in name) or name.endswith(".localhost"):
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
