"""In which order requests that wait for a prefill are looked at: short ones first, with ageing (OmniInfer's code)."""

from collections.abc import Callable, Iterable
from typing import TypeVar

SHORT, AGE = 0.8, 0.2
"""[code] weights of a short prompt and of a long wait."""

LEAST_WAIT_S = 0.05
"""[code] a wait is compared with the longest one, and with no less than this."""

Request = TypeVar("Request")


def by_priority(
    waiting: Iterable[Request], tokens: Callable[[Request], int], waited_s: Callable[[Request], float]
) -> list[Request]:
    """Sorted, the first to be looked at first; of equals who came first: descending 0.8 · (longest − own length) /
    longest + 0.2 · own wait / max(50 ms, longest wait)."""
    requests = list(waiting)
    longest = max(map(tokens, requests), default=0)
    oldest_s = max(LEAST_WAIT_S, *map(waited_s, requests)) if requests else LEAST_WAIT_S

    def priority(request: Request) -> float:
        short = (longest - tokens(request)) / longest if longest else 0.0
        return SHORT * short + AGE * waited_s(request) / oldest_s

    return sorted(requests, key=lambda request: (-priority(request), -waited_s(request)))
