"""The network between replicas, over which one hands KV to another."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

LAST_BYTE = 1.0
"""Most remaining bytes of a transfer that counts as ended: sums of floats are not exact."""


@dataclass(slots=True, eq=False)
class Port:
    """A replica's connection to the network. `bandwidth`: bytes/s in each direction."""

    bandwidth: float


@dataclass(slots=True, eq=False)
class _Flow:
    """A transfer under way. `ports`: (replica's port, True if the transfer enters there)."""

    ports: tuple[tuple[Port, bool], ...]
    left_bytes: float
    then: Callable[[], None]
    rate: float = 0.0


class Fabric:
    """A network that is never itself the bottleneck: transfers share the ports that they leave and enter by.

    Rates are max-min fair, as those of long flows under congestion control become: no flow's rate can be raised without
    lowering that of a slower one. `latency_s` passes before the first byte of each.
    """

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self._loop = asyncio.get_running_loop()
        self._flows: list[_Flow] = []
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def send(self, source: Port, target: Port, size_bytes: float, then: Callable[[], None]) -> None:
        """Move `size_bytes` bytes; `then` is called when the last has arrived."""
        flow = _Flow(((source, False), (target, True)), size_bytes, then)
        self._loop.call_later(self.latency_s, self._begin, flow)

    def _begin(self, flow: _Flow) -> None:
        self._advance()
        self._flows.append(flow)
        self._share()

    def _advance(self) -> None:
        """Count the bytes moved since rates last changed."""
        now = self._loop.time()
        for flow in self._flows:
            flow.left_bytes -= flow.rate * (now - self._since_s)
        self._since_s = now

    def _share(self) -> None:
        """Find the rate of each flow, and look again when the first has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._flows:
            return
        _share_fairly(self._flows)
        first = min(self._flows, key=lambda flow: flow.left_bytes / flow.rate)
        self._timer = self._loop.call_later(first.left_bytes / first.rate, self._end, first)

    def _end(self, first: _Flow) -> None:
        self._timer = None
        self._advance()
        ended = [flow for flow in self._flows if flow is first or flow.left_bytes <= LAST_BYTE]
        self._flows = [flow for flow in self._flows if flow not in ended]
        self._share()
        for flow in ended:
            flow.then()


def _share_fairly(flows: Iterable[_Flow]) -> None:
    """Share by progressive filling: the port that gives each of its flows least settles theirs, and so on without
    them."""
    unsettled = list(flows)
    room: dict[tuple[Port, bool], float] = {way: way[0].bandwidth for flow in unsettled for way in flow.ports}
    while unsettled:
        count = dict.fromkeys(room, 0)
        for flow in unsettled:
            for way in flow.ports:
                count[way] += 1
        tightest = min((way for way in room if count[way]), key=lambda way: room[way] / count[way])
        rate = max(0.0, room[tightest]) / count[tightest]
        for flow in [flow for flow in unsettled if tightest in flow.ports]:
            flow.rate = rate
            unsettled.remove(flow)
            for way in flow.ports:
                room[way] -= rate
        del room[tightest]
        room = {way: free for way, free in room.items() if count[way]}
