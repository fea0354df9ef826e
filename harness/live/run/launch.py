"""The load generators of one run: processes with one time 0, and their output.

They know nothing of each other. This process starts them, polls the target's metrics and waits. The early end of one
is logged and stops no other.
"""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from harness.live.run.plan import Loss, Merged, Plan, command, merge, results_of
from harness.live.run.run_progress import RunProgress
from harness.live.run.scrape import scraper_of
from harness.records.record import LOG
from workloads.errors import UserError

READY_S = 180.0
"""After which a load generator that is not ready has failed; it encodes all speech first. [chosen]"""
CHECK_S = 0.25
"""Between two looks whether the judged turns have ended, whose states come each second. [chosen]"""
MARGIN_S = 0.5
"""Between the last one's being ready and the first connection. [chosen]"""

Show = Callable[[RunProgress], None]


class GeneratorFailed(RuntimeError):
    """A load generator could not begin."""


@dataclass
class _Shard:
    index: int
    process: asyncio.subprocess.Process
    log: Path
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    done: bool = False
    error: str = ""
    user: bool = False


@dataclass
class _Begin:
    """The begin of a run with `slower` real seconds in each of its own."""

    slower: float
    origin_s: float = float("inf")
    """The time 0 of the run in s of the machine's monotonic clock; infinite until it is known."""

    def passed_s(self) -> float:
        """Return the time of the run, s."""
        return (time.monotonic() - self.origin_s) / self.slower


@dataclass(frozen=True)
class RunOutput:
    """The output of the load generators, and the target's own metrics if asked for."""

    merged: Merged
    scrape: pa.Table | None
    origin_s: float
    """The run's time 0 in s of the machine's monotonic clock."""


async def play_plan(folder: Path, plan: Plan, progress: RunProgress, show: Show | None, timeout_s: float) -> RunOutput:
    """Play the plan in `folder` with a process for each shard.

    A process that takes longer than `timeout_s`, in real seconds, is stopped and counts as lost. UserError and
    GeneratorFailed when a generator cannot begin; none keeps running, however this ends.
    """
    shards = [await _start(folder, index) for index in range(plan.shards)]
    lost: dict[int, Loss] = {}
    begin = _Begin(plan.slower)
    try:
        listening = [
            asyncio.create_task(_listen(shard, progress, show, lost, begin), name=f"shard {shard.index}")
            for shard in shards
        ]
        await _all_ready(shards, listening)
        lead_s = plan.target.connect_lead_s if plan.clients[0].c is None else 0.0
        begin.origin_s = time.monotonic() + (lead_s + MARGIN_S) * plan.slower
        for shard in shards:
            _tell(shard, f"start {begin.origin_s!r}")
        scraper = scraper_of(plan.target, begin.origin_s, plan.slower)
        with scraper or nullcontext():
            await _ended(listening, shards, progress, timeout_s)
            for shard, task in zip(shards, listening, strict=True):
                if not task.done():
                    lost[shard.index] = Loss(begin.passed_s(), f"took longer than {timeout_s:g} s")
                    shard.process.kill()
            await asyncio.gather(*listening)
    finally:
        for shard in shards:
            if shard.process.returncode is None:
                shard.process.kill()
        await asyncio.gather(*(shard.process.wait() for shard in shards))
    merged = merge(folder, lost)
    table = scraper.table() if scraper is not None else None
    return RunOutput(merged, table, begin.origin_s)


async def _ended(
    listening: list[asyncio.Task[None]], shards: list[_Shard], progress: RunProgress, timeout_s: float
) -> None:
    """Wait until all shards have ended, for `timeout_s` at most. Stop them when the turns that are judged have."""

    async def stop() -> None:
        while progress.judged is None or not progress.judged.ended:
            await asyncio.sleep(CHECK_S)
        for shard in shards:
            _tell(shard, "stop")

    stopping = asyncio.create_task(stop(), name="stop")
    try:
        await asyncio.wait(listening, timeout=timeout_s)
    finally:
        stopping.cancel()
        await asyncio.wait([stopping])


def _tell(shard: _Shard, line: str) -> None:
    """Write to a process that may be gone, which its end reports."""
    assert shard.process.stdin is not None
    shard.process.stdin.write(f"{line}\n".encode())


async def _start(folder: Path, index: int) -> _Shard:
    results = results_of(folder, index)
    results.mkdir(parents=True, exist_ok=True)
    with (results / LOG).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command(folder, index),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=2**24,
        )
    return _Shard(index, process, results / LOG)


async def _listen(
    shard: _Shard, progress: RunProgress, show: Show | None, lost: dict[int, Loss], begin: "_Begin"
) -> None:
    """Read the shard's messages to its end. A shard that ends without reporting that it is done is lost."""
    assert shard.process.stdout is not None
    async for text in shard.process.stdout:
        message = json.loads(text)
        if "t" in message:
            shard.done |= message.get("done", False)
            progress.update(shard.index, message)
            if show is not None:
                show(progress)
        elif "error" in message:
            shard.error, shard.user = message["error"], message["user"]
        elif message.get("ready"):
            shard.ready.set()
    status = await shard.process.wait()
    if not shard.done and shard.ready.is_set():
        lost.setdefault(shard.index, Loss(max(0.0, begin.passed_s()), _ending(shard, status)))
        progress.lose(shard.index)


async def _all_ready(shards: list[_Shard], listening: list[asyncio.Task[None]]) -> None:
    """Wait until all are ready. UserError or GeneratorFailed when one ends, or is not ready in time."""
    waiting = [asyncio.create_task(shard.ready.wait()) for shard in shards]
    try:
        async with asyncio.timeout(READY_S):
            for shard, ready, task in zip(shards, waiting, listening, strict=True):
                await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
                if not shard.ready.is_set():
                    await task
                    raise (
                        UserError(shard.error)
                        if shard.user
                        else GeneratorFailed(
                            f"load generator {shard.index} could not begin: "
                            f"{_ending(shard, shard.process.returncode or 0)}"
                        )
                    )
    except TimeoutError:
        raise GeneratorFailed(f"a load generator was not ready after {READY_S:g} s") from None
    finally:
        for ready in waiting:
            ready.cancel()


def _ending(shard: _Shard, status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    if shard.error:
        return f"failed with {shard.error}"
    lines = shard.log.read_text(errors="replace").strip().splitlines()
    return f"ended with status {status}" + (f": {lines[-1]}" if lines else "")
