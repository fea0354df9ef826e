"""The sentence on the way to the server, where that is more than TCP and the system's certificates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {
    "proxy": "through the proxy {}, whose delay counts",
    "unix_socket": "over the Unix socket {}",
    "insecure": "with no check of the server's certificate (--insecure)",
    "ca": "with the certificate authorities in {}",
    "client_cert": "with the client's certificate in {}",
}
"""Parameter of a target -> what it means for its connections."""


def connection_notes(settings: Mapping[str, Any]) -> list[str]:
    """Return the sentence on the connections of a run with these `settings`; none for plain ones."""
    parts = [words.format(settings[name]) for name, words in _WORDS.items() if settings.get(name)]
    return [f"Connections: {', '.join(parts)}."] if parts else []
