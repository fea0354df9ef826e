"""Decode batch: requests that each get one token a step; one call reports all of them to the listeners."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engines.core.request import StageRequest

Produced = tuple[str, list[int], bool]
"""Request id, its new token ids, and whether it has finished."""


class DecodeBatch:
    """Requests in the order of their rows, as long as none joins or leaves.

    `log_keys`: their sessions and turns, (n, 2). `listeners`: data that `BatchListeners` keeps for them.
    """

    __slots__ = ("listeners", "log_keys", "requests")

    def __init__(self, requests: Sequence[StageRequest]) -> None:
        self.requests = requests
        self.log_keys = np.frombuffer(b"".join([request.log_key for request in requests])).reshape(-1, 2)
        self.listeners: Any = None


class BatchTokens(NamedTuple):
    """One more token for each of `batch.requests[begin:end]`."""

    batch: DecodeBatch
    begin: int
    end: int

    @property
    def requests(self) -> Sequence[StageRequest]:
        return self.batch.requests[self.begin : self.end]

    @property
    def log_keys(self) -> np.ndarray:
        return self.batch.log_keys[self.begin : self.end]


class BatchMembers:
    """Keeps track of the members of a replica's decode batch. `make`: makes the batch of these ids."""

    def __init__(self, make: Callable[[Sequence[str]], DecodeBatch]) -> None:
        self._make = make
        self._ids: list[str] = []
        self._joined: set[str] = set()
        self._left: set[str] = set()
        self._batch: DecodeBatch | None = None

    def __bool__(self) -> bool:
        """Return True if the step's products have to be merged with a batch."""
        return bool(self._ids or self._joined)

    def join(self, request_id: str) -> None:
        """Add the request to the batch from the next step on; a member stays."""
        if request_id in self._left:
            self._left.discard(request_id)
        else:
            self._joined.add(request_id)

    def leave(self, request_id: str) -> None:
        """Remove the request from the batch from the next step on."""
        if request_id in self._joined:
            self._joined.discard(request_id)
        else:
            self._left.add(request_id)

    def merge(self, produced: Sequence[Produced], places: Mapping[str, int]) -> Sequence[Produced | BatchTokens]:
        """Return a step's products with the batch's tokens among them, all in the order of rows.

        `places`: request id -> place of its row in the step.
        """
        if self._left or self._joined:
            ids = [request_id for request_id in self._ids if request_id not in self._left]
            ids += self._joined
            ids.sort(key=places.__getitem__)
            self._ids = ids
            self._left, self._joined = set(), set()
            self._batch = self._make(ids) if ids else None
        if self._batch is None:
            return produced
        merged: list[Produced | BatchTokens] = []
        begin, size = 0, len(self._ids)
        for product in produced:
            end = bisect_left(self._ids, places[product[0]], key=places.__getitem__)
            if end > begin:
                merged.append(BatchTokens(self._batch, begin, end))
                begin = end
            merged.append(product)
        if begin < size:
            merged.append(BatchTokens(self._batch, begin, size))
        return merged
