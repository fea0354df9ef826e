"""In which order requests that wait for a prefill are looked at: short ones first, until others have waited."""

from collections.abc import Callable, Iterable
from typing import TypeVar

SHORT, AGE = 0.8, 0.2
"""[code] weights of a short prompt and of a long wait."""

WAIT_S = 0.05
"""[code] what a wait is compared with. The code compares it with the longest one where that is longer, so that no wait
ever outweighs a length, and long prompts starve behind short ones: here it always can."""

Request = TypeVar("Request")


def by_priority(
    waiting: Iterable[Request], tokens: Callable[[Request], int], waited_s: Callable[[Request], float]
) -> list[Request]:
    """Sorted, the first to be looked at first; of equals who came first: descending 0.8 · (longest − own length) /
    longest + 0.2 · own wait / 50 ms. So the longest goes before whoever comes 200 ms after it."""
    requests = list(waiting)
    longest = max(map(tokens, requests), default=0)

    def priority(request: Request) -> float:
        short = (longest - tokens(request)) / longest if longest else 0.0
        return SHORT * short + AGE * waited_s(request) / WAIT_S

    return sorted(requests, key=lambda request: (-priority(request), -waited_s(request)))
