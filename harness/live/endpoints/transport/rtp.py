"""Sound over RTP, as a listener hears it: its packets in order, each when a jitter buffer plays it."""

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

AUDIO = b"\0"
"""Begins a message of sound, 16-bit little-endian mono; the others are texts of the data channel."""
RATE = 48_000
"""Ticks/s of timestamps, and samples/s of the sound that comes. [config: RFC 7587]"""
FRAME_MS = 20
"""Length of each packet that is sent, ms. [config: RFC 7587's default]"""
MOST_PACKETS = 1024
"""Packets that wait; more are dropped. [chosen] 20 s of packets of 20 ms."""


class Path(NamedTuple):
    """One way of a call's network. `loss`: share of the packets that is lost; `jitter_s`: each is delayed by 0 to this,
    evenly; `seed`, `way`: what happens to a packet depends on them and its number alone."""

    seed: int
    way: str
    loss: float
    jitter_s: float

    def delay_s(self, number: int) -> float | None:
        """Return the delay of packet `number` of the call, s. None: it is lost."""
        drawn = blake2b(f"{self.seed} {self.way} {number}".encode(), digest_size=8).digest()
        loss, delay = (int.from_bytes(half) / 2**32 for half in (drawn[:4], drawn[4:]))
        return None if loss < self.loss else delay * self.jitter_s


class JitterBuffer:
    """Hands each packet to `play`, with the time at which it is heard: `delay_s` after it would have come if it were as
    fast as the fastest one. A packet that comes later is played at once, or dropped if a later one has been played.
    The time of a missing packet stays empty. `late`, `played`: packets; `waited_s`: from arrival to playback, in all.
    """

    def __init__(self, delay_s: float, play: Callable[[bytes, float], None]) -> None:
        self._delay_s, self._play = delay_s, play
        self._loop = asyncio.get_running_loop()
        self._packets: list[tuple[int, float, float, bytes]] = []
        """Number, place in the stream (s), time of arrival (s) and payload of each."""
        self._offset_s = inf
        """Time of playback less the place in the stream."""
        self._newest: tuple[int, int] | None = None
        self._next = self._played_s = -inf
        self._timer: asyncio.TimerHandle | None = None
        self.late, self.played, self.waited_s = 0, 0, 0.0

    def add(self, number: int, timestamp: int, payload: bytes, at_s: float) -> None:
        """Take a packet that came at `at_s`; its number has 16 bits, its timestamp 32."""
        before = self._newest or (number, timestamp)
        number, timestamp = _unwrapped(number, before[0], 16), _unwrapped(timestamp, before[1], 32)
        self._newest = max(before, (number, timestamp))
        if number < self._next or len(self._packets) == MOST_PACKETS:
            self.late += 1
            return
        place_s = timestamp / RATE
        self._offset_s = max(min(self._offset_s, at_s - place_s + self._delay_s), at_s - place_s)
        heappush(self._packets, (number, place_s, at_s, payload))
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._packets[0][1] + self._offset_s if self._packets else None
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._play_next)

    def _play_next(self) -> None:
        number, place_s, arrived_s, payload = heappop(self._packets)
        if number >= self._next:  # no second copy
            self._next, self._played_s = number + 1, max(place_s + self._offset_s, arrived_s, self._played_s)
            self.played, self.waited_s = self.played + 1, self.waited_s + self._played_s - arrived_s
            self._play(payload, self._played_s)
        self._wait()


def _unwrapped(value: int, near: int, bits: int) -> int:
    """Return the number that ends with the `bits` of `value` and is nearest to `near`."""
    half = 1 << (bits - 1)
    return near + (value - near + half) % (2 * half) - half
