"""Several steps at once on one modelled GPU, each on a share of its SMs.

A step's remaining work proceeds at a rate that its share and the others' traffic decide, and that is found anew
whenever a step begins, ends or gets another share: processor sharing. Arithmetic speeds up with SMs, in whole waves of
thread blocks. Memory traffic needs only as many SMs as keep the memory busy: below that knee it slows down with them,
beyond it hardly (Nova, sections II and III-C). All steps share one bandwidth: if they would move more than it carries
they are slowed alike, except steps that are bound by arithmetic and still get their traffic.

Without shares, as on plain streams, the thread blocks of large products fill the GPU and leave little to the others;
each one's part is then a constant of the GPU.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from engines.devices.hardware import Gpu

TILE = (128, 256)
"""Rows and columns of a product that one thread block computes: Nova's Table IV has 3,000 blocks for 6,400 x 15,360."""
LEAST = (16, 128)
"""The smallest tile, (rows, columns). A kernel halves the rows for few rows, and the columns if the tiles would leave
SMs idle."""

ALIKE_S = 1e-12
"""Ends within this time are one instant: the clock's own rounding, s."""

SETTLED = 1e-9
"""Relative error at which an iteration ends."""


@dataclass(frozen=True, slots=True)
class Part:
    """Equal kernels. `compute_s`: their arithmetic on all SMs; `memory_s`: their traffic at the whole bandwidth;
    `fixed_s`: time that no SM changes, such as links and the host. `blocks`: thread blocks of one kernel; 0: enough to
    ignore waves."""

    compute_s: float = 0.0
    memory_s: float = 0.0
    fixed_s: float = 0.0
    blocks: int = 0

    def times(self, count: int) -> Part:
        return Part(self.compute_s * count, self.memory_s * count, self.fixed_s * count, self.blocks)


Parts = tuple[Part, ...]
"""Parts one after the other."""


@dataclass(frozen=True, slots=True)
class SharedStep:
    """The parts of one step: `before`, then `layers` equal layers of the parts `layer`, then `after`."""

    before: Parts
    layer: Parts
    layers: int
    after: Parts

    def phase(self, index: int) -> Parts:
        return (self.before, self.layer, self.after)[index]

    def repeats(self, index: int) -> int:
        return self.layers if index == 1 else 1


def tiled(rows: int, columns: int, sms: int) -> tuple[int, float]:
    """Return the thread blocks of a product with this number of rows and columns, and the factor on its arithmetic:
    tiles are computed whole, and the last wave of blocks leaves SMs idle."""
    height, width = TILE
    while height > LEAST[0] and rows <= height // 2:
        height //= 2
    while width > LEAST[1] and -(-rows // height) * -(-columns // width) < sms:
        width //= 2
    blocks = -(-rows // height) * -(-columns // width)
    return blocks, -(-blocks // sms) * sms * height * width / (rows * columns)


class SharedExecution:
    """One step under way, to be awaited; then `layers_done` counts its layers, and `completed` is True if it ran to the
    end.

    `sms`: its share; None: decided by the streams.
    """

    __slots__ = (
        "_done", "completed", "ends_s", "index", "layers_done", "left", "rest", "seconds", "sms",
        "start_s", "step", "stop",
    )  # fmt: skip

    def __init__(self, step: SharedStep, sms: float | None, start_s: float, done: asyncio.Future[None]) -> None:
        self.step = step
        self.sms = sms
        self.start_s = start_s
        self.completed = False
        self.layers_done = 0
        self.index = 0
        self.left = 1.0
        """Remaining repeats of the present phase, or until it is to stop."""
        self.stop: int | None = None
        """Layers after which it ends, or goes on as `rest`."""
        self.rest: SharedStep | None = None
        self.seconds = 0.0
        """Seconds of one repeat at the present share of the GPU."""
        self.ends_s = 0.0
        self._done = done

    def __await__(self) -> Generator[Any, None, None]:
        return self._done.__await__()


class SharedCompute:
    """The SMs and the bandwidth of one GPU (or of the GPUs of a replica, which step together)."""

    def __init__(self, gpu: Gpu) -> None:
        if not gpu.sms:
            raise ValueError(f"{gpu.name} has no sms, so nobody can have a share of them")
        self.facts = gpu
        self._loop = asyncio.get_running_loop()
        self._running: list[SharedExecution] = []
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, step: SharedStep, sms: float | None = None) -> SharedExecution:
        """Begin a step on `sms` SMs; SMs that another step has too are divided."""
        if sms is not None and not 0 < sms <= self.facts.sms:
            raise ValueError(f"a share of {sms:g} SMs is none of {self.facts.sms}")
        self._advance()
        execution = SharedExecution(step, sms, self._loop.time(), self._loop.create_future())
        self._running.append(execution)
        self._reprice()
        return execution

    def interrupt(self, execution: SharedExecution, rest: SharedStep | None = None) -> bool:
        """Let `execution` go on as `rest` from its next layer boundary, or end there. False when it is past its last
        one and runs to its end."""
        if execution not in self._running or execution.index > 1:
            return False
        self._advance()
        boundary = 0
        if execution.index == 1:
            end = execution.step.layers if execution.stop is None else execution.stop
            boundary = math.ceil(end - execution.left - SETTLED * end)
            if boundary >= execution.step.layers:
                self._reprice()
                return False
            execution.left = boundary - (end - execution.left)
        execution.stop, execution.rest = boundary, rest
        self._reprice()
        return True

    def _advance(self) -> None:
        """Count the work done since the rates were last found."""
        now = self._loop.time()
        elapsed_s, self._since_s = now - self._since_s, now
        if elapsed_s > 0:
            for execution in self._running:
                if execution.seconds > 0:
                    execution.left = max(0.0, execution.left - elapsed_s / execution.seconds)

    def _reprice(self) -> None:
        """Find every step's rate, and the time when the first of them ends a phase."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._running:
            return
        now = self._loop.time()
        for execution, seconds in zip(self._running, self.seconds(self._running), strict=True):
            execution.seconds = seconds
            execution.ends_s = now + execution.left * seconds
        self._timer = self._loop.call_at(min(execution.ends_s for execution in self._running), self._end)

    def _end(self) -> None:
        self._timer = None
        self._advance()
        now = self._loop.time()
        ended = [execution for execution in self._running if execution.ends_s <= now + ALIKE_S]
        for execution in ended:
            self._next(execution)
        self._reprice()

    def _next(self, execution: SharedExecution) -> None:
        """Go to the next phase, or stop at the boundary where the step was to stop."""
        if execution.stop is not None:
            boundary, execution.stop = execution.stop, None
            if execution.rest is None:
                self._finish(execution, boundary)
                return
            execution.step, execution.rest, execution.index = execution.rest, None, 1
            execution.left = float(execution.step.layers - boundary)
            return
        execution.index += 1
        if execution.index > 2:
            self._finish(execution, execution.step.layers)
        else:
            execution.left = float(execution.step.repeats(execution.index))

    def _finish(self, execution: SharedExecution, layers_done: int) -> None:
        execution.layers_done = layers_done
        execution.completed = layers_done == execution.step.layers
        self._running.remove(execution)
        if not execution._done.done():
            execution._done.set_result(None)

    def seconds(self, running: list[SharedExecution]) -> list[float]:
        """Return the seconds of one repeat of each one's phase, with all of them under way."""
        phases = [each.step.phase(each.index) for each in running]
        if len(running) > 1 and any(each.sms is None for each in running):
            return on_streams(self.facts, phases)
        return partitioned(self.facts, phases, [self.facts.sms if each.sms is None else each.sms for each in running])


def arithmetic(gpu: Gpu, sms: float, blocks: int) -> float:
    """Return the speed of arithmetic on `sms` SMs, as a share of that on all: whole waves of thread blocks, one on each
    SM."""
    if not blocks:
        return sms / gpu.sms
    return math.ceil(blocks / gpu.sms) / math.ceil(blocks / sms - 1e-9)


def traffic(gpu: Gpu, sms: float) -> float:
    """Return the bandwidth that `sms` SMs can ask for, as a share of that which all reach: a line up to the knee, and
    flat behind.

    1 / (1 + (s0 / s)^q)^(1/q), with s0 the knee and q its sharpness.
    """
    q, knee = gpu.knee_sharpness, gpu.knee_share * gpu.sms

    def slowness(s: float) -> float:
        return (1.0 + (knee / s) ** q) ** (1.0 / q)

    return slowness(gpu.sms) / slowness(sms)


def partitioned(gpu: Gpu, phases: list[Parts], sms: list[float]) -> list[float]:
    """Return the seconds of each phase at the same time, each on its own SMs.

    If their traffic exceeds the bandwidth, it is stretched by the common factor with which it just fits. SMs of several
    phases are divided in proportion.
    """
    crowd = max(1.0, sum(sms) / gpu.sms)
    bound: list[list[tuple[float, float]]] = []
    fixed = []
    for parts, share in zip(phases, sms, strict=True):
        reach, part_times = traffic(gpu, share / crowd), []
        for part in parts:
            compute_s = part.compute_s / arithmetic(gpu, share / crowd, part.blocks) if part.compute_s else 0.0
            part_times.append((compute_s, part.memory_s / reach))
        bound.append(part_times)
        fixed.append(sum([part.fixed_s for part in parts]))
    moved = [sum([part.memory_s for part in parts]) for parts in phases]
    stretch = 1.0
    while True:
        seconds = [
            constant + sum([max(compute, stretch * memory) for compute, memory in part_times])
            for constant, part_times in zip(fixed, bound, strict=True)
        ]
        demand = sum([m / s for m, s in zip(moved, seconds, strict=True) if s > 0])
        if len(phases) == 1 or demand <= 1.0 + SETTLED:
            return seconds
        stretch *= demand


def on_streams(gpu: Gpu, phases: list[Parts]) -> list[float]:
    """Return the seconds of each phase at the same time without shares: large products fill the SMs block by block,
    divide their part among themselves, and leave the rest to phases bound by memory."""
    alone = partitioned_alone(gpu, phases)
    heavy = [sum([p.compute_s for p in parts]) > sum([p.memory_s for p in parts]) for parts in phases]
    both = any(heavy) and not all(heavy)
    shares = {
        True: (gpu.streams_arithmetic if both else 1.0) / max(1, sum(heavy)),
        False: (gpu.streams_traffic if both else 1.0) / max(1, len(heavy) - sum(heavy)),
    }
    return [seconds / shares[kind] for seconds, kind in zip(alone, heavy, strict=True)]


def partitioned_alone(gpu: Gpu, phases: list[Parts]) -> list[float]:
    """Return the seconds of each phase by itself on all SMs."""
    return [partitioned(gpu, [parts], [float(gpu.sms)])[0] for parts in phases]


def alone_s(gpu: Gpu, step: SharedStep, sms: float | None = None) -> float:
    """Return the seconds of a whole step alone on the GPU."""
    share = float(gpu.sms if sms is None else sms)
    return sum(step.repeats(i) * partitioned(gpu, [step.phase(i)], [share])[0] for i in range(3))
