"""Requests of a replica that each have one more token a step, of which all their listeners are told at once."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from engines.core.request import StageRequest


class Chorus:
    """Such requests, in the order of their rows, as long as nobody joins or leaves. `who`: session and turn of each.

    `ears`: what whoever passes it on keeps of each.
    """

    __slots__ = ("ears", "requests", "who")

    def __init__(self, requests: Sequence[StageRequest]) -> None:
        self.requests = requests
        self.who = np.frombuffer(b"".join([request.log_key for request in requests])).reshape(-1, 2)
        self.ears: object = None


class Told(NamedTuple):
    """One more token for each of `chorus.requests[begin:end]`."""

    chorus: Chorus
    begin: int
    end: int

    @property
    def requests(self) -> Sequence[StageRequest]:
        return self.chorus.requests[self.begin : self.end]

    @property
    def who(self) -> np.ndarray:
        return self.chorus.who[self.begin : self.end]


class Together(Protocol):
    """A pipeline that passes on the tokens of several requests at once."""

    def takes(self, request: StageRequest) -> bool:
        """Whether its tokens, from the second on, may come that way."""
        ...

    def told(self, told: Told) -> None:
        """The tokens of a step that ends now."""
        ...

    def caught_up(self, request: StageRequest, tokens: int) -> None:
        """So many of its tokens, of which `told` has told, are in its own counts now."""
        ...
