"""Limits of what one server may send, so that none can take the memory or the time of the other calls."""

MOST_HEAD = 64 * 2**10
"""Bytes of an answer's head. [chosen] Common servers and proxies refuse heads of more than 8 to 32 KiB."""


def size(limit: int) -> str:
    """Return a limit in words."""
    return f"{limit // 2**20} MiB" if limit >= 2**20 else f"{limit // 2**10} KiB"
