"""KV of one replica on its way to and from elsewhere: host memory (`host_kv`), or other replicas (`handed_kv`)."""

from collections.abc import Mapping
from typing import Any, Protocol

from engines.core.device import Row
from engines.core.request import StageRequest


class KvTraffic(Protocol):
    """The transfers of a replica, as its loop and its table of requests drive them."""

    @property
    def busy(self) -> bool:
        """Whether anything is under way, or kept for somebody."""
        ...

    @property
    def next_s(self) -> float | None:
        """When to look again although nobody has woken the loop (s)."""
        ...

    def runnable(self, requests: Mapping[str, StageRequest], held: frozenset[str], now: float) -> bool:
        """Whether a round could do anything."""
        ...

    def begin(self, scheduled: Any, requests: Mapping[str, StageRequest], now: float) -> float:
        """Start what vLLM has asked for in this round; returns when its work can begin (s)."""
        ...

    def end(self, scheduled: Any, withdrawn: frozenset[int], now: float) -> Any:
        """The step has ended; returns what has arrived by `now`, for vLLM's scheduler, or None."""
        ...

    def take_arrived(self, arrived: bool, requests: Mapping[str, StageRequest], now: float) -> None:
        """vLLM's scheduler knows what has arrived, if anything has."""
        ...

    def started(self, row: Row, request: StageRequest, now: float) -> None:
        """The request runs for the first time."""
        ...

    def forget(self, request_id: str) -> None:
        """The request was aborted here."""
        ...

    def drop(self, request_id: str) -> bool:
        """Nobody will ask for the KV that is kept of a request; False where none is."""
        ...
