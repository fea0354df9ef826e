"""A modelled GPU: one compute queue, and one copy engine in each direction.

Steps run one after the other in the order they were submitted (a vocoder on the talker's GPU delays the next talker
step). A running step can be interrupted: it ends at its next layer boundary, or goes on smaller from there. Copies run
on their own engines in parallel.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from engines.devices.hardware import Gpu
from engines.devices.roofline import StepCost
from engines.devices.sharing import SharedCompute


class Execution:
    """One submitted step, to be awaited; then `layers_done` counts its layers, and `completed` is True if it ran to the
    end.

    `ended`: called at its end instead, if nobody awaits it.
    """

    __slots__ = ("_done", "_ended", "_timer", "completed", "cost", "layers_done", "start_s")

    def __init__(self, cost: StepCost, ended: Callable[[], None] | None = None) -> None:
        self.cost = cost
        self.start_s: float | None = None
        self.completed = False
        self.layers_done = 0
        self._done = asyncio.get_running_loop().create_future() if ended is None else None
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None

    def __await__(self) -> Generator[Any, None, None]:
        assert self._done is not None
        return self._done.__await__()

    def leave(self) -> None:
        """Take the step out: it will not begin. Its waiters learn of it after the caller is done."""
        if self._ended is not None:
            asyncio.get_running_loop().call_soon(self._ended)
        else:
            self.end()

    def end(self) -> None:
        """Wake the waiters of the step."""
        if self._ended is not None:
            self._ended()
        elif self._done is not None and not self._done.done():
            self._done.set_result(None)


class ComputeQueue:
    """The GPU's compute stream: first in, first out, one step at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: Execution | None = None
        self._queued: deque[Execution] = deque()

    def submit(self, cost: StepCost, ended: Callable[[], None] | None = None) -> Execution:
        """Queue a step; it starts when those before it have ended."""
        execution = Execution(cost, ended)
        if self._running is None:
            self._start(execution)
        else:
            self._queued.append(execution)
        return execution

    def interrupt(self, execution: Execution, rest: StepCost | None = None) -> bool:
        """Let `execution` go on as `rest` from its next layer boundary, or end there (at once if it has not begun).

        False when it is past its last boundary and runs to its end.
        """
        if execution.start_s is None:
            if rest is None:
                self._queued.remove(execution)
                execution.leave()
            else:
                execution.cost = rest
            return True
        if execution is not self._running:
            return False
        cost = execution.cost
        into_layers = self._loop.time() - execution.start_s - cost.before_s
        boundary = max(0, -int(-into_layers // cost.layer_s)) if cost.layer_s else 0
        if boundary >= cost.layers:
            return False
        assert execution._timer is not None
        execution._timer.cancel()
        boundary_s = execution.start_s + cost.before_s + boundary * cost.layer_s
        if rest is None:
            execution._timer = self._loop.call_at(boundary_s, self._end, execution, boundary)
            return True
        # From here on the step looks as if it had always been the smaller one: boundaries after this one are its own.
        execution.cost = rest
        execution.start_s = boundary_s - boundary * rest.layer_s - rest.before_s
        execution._timer = self._loop.call_at(execution.start_s + rest.total_s, self._end, execution, cost.layers)
        return True

    def _start(self, execution: Execution) -> None:
        self._running = execution
        execution.start_s = self._loop.time()
        cost = execution.cost
        execution._timer = self._loop.call_at(execution.start_s + cost.total_s, self._end, execution, cost.layers)

    def _end(self, execution: Execution, layers_done: int) -> None:
        execution.layers_done = layers_done
        execution.completed = layers_done == execution.cost.layers
        self._running = None
        if self._queued:
            self._start(self._queued.popleft())
        execution.end()


class CopyEngine:
    """One direction of PCIe: transfers queue up and each takes bytes / bandwidth."""

    def __init__(self, bandwidth: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.bandwidth = bandwidth
        self._free_at = 0.0

    def copy(self, size_bytes: float, not_before: float = 0.0) -> float:
        """Queue a transfer that can begin at `not_before` (s); return the time at which it will have arrived."""
        self._free_at = max(self._free_at, self._loop.time(), not_before) + size_bytes / self.bandwidth
        return self._free_at

    def queued_s(self) -> float:
        """Return the seconds until everything queued has arrived."""
        return max(0.0, self._free_at - self._loop.time())


class VirtualGpu:
    """One modelled GPU, or the `count` GPUs that a replica is split over: facts of one, and three queues.

    GPUs of a replica step together, and the copy engine of each moves an equal share of a transfer. `shared`: steps run
    at the same time on shares of its SMs, and not one after the other.
    """

    def __init__(self, gpu: Gpu, count: int = 1, shared: bool = False) -> None:
        self.facts = gpu
        self.count = count
        self.compute = SharedCompute(gpu) if shared else ComputeQueue()
        self.to_host = CopyEngine(count * gpu.pcie_bandwidth)
        self.to_device = CopyEngine(count * gpu.pcie_bandwidth)
