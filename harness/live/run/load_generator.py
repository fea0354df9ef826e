"""One load generator: a fresh process that plays its part of a plan, and only that.

    python -m harness.live.run.load_generator PLAN INDEX

It prepares, says that it is ready, waits for `start T` on its standard input, T being time 0 of the run in s of this
host's CLOCK_MONOTONIC, and plays its sessions. It ends with its starter. When more comes on its standard input, it cuts
the sessions under way and ends. On standard output a line of JSON each:

    {"ready": true}                 after which it waits
    {"error": "...", "user": bool}  instead; user: the user can fix it
    {"t": ...}                      each second, see `harness.live.run.run_progress`
    {"done": true, "t": ...}        last

and in PLAN/shard-INDEX, written piece by piece (`harness.live.run.plan`): events.arrows, sends.arrows,
failures.arrows, and at the end done.json; and the sound of the first calls, where it is asked for.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import harness.client.turns  # noqa: F401  (no user is to wait for it)
from harness.clocks import clock
from harness.events.log import EventLog
from harness.live.endpoints.duplex_endpoint import DuplexEndpoint
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.kinds import named
from harness.live.run.plan import DONE, SUFFIX, ArrowStream, read_plan, results_of, shard_trace
from harness.live.run.run_progress import ShardProgress, telling
from workloads.errors import UserError

FLUSH_S = 0.25
"""Between two pieces. Small ones, as writing holds up the senders: 0.2 ms for 5,000 rows. [measured]"""
STATUS_S = 1.0
"""Between two lines of status. [chosen]"""
BURST = 100
"""Events counted at a time for the status: some 0.2 ms. [measured]"""

Say = Callable[[dict[str, Any]], None]
_PR_SET_PDEATHSIG = 1


class _Tables:
    """The three logs and how far each of them is on disk."""

    def __init__(self, folder: Path) -> None:
        self.log, self.sends, self.failures = EventLog(), SendLog(), FailureLog()
        self._streams = {name: ArrowStream(folder / f"{name}{SUFFIX}") for name in ("events", "sends", "failures")}
        self.unseen: deque[pa.Table] = deque()
        """For the status, `BURST` rows each."""
        self._written = dict.fromkeys(self._streams, 0)

    def flush(self) -> None:
        """Write the new rows; its events are `unseen`."""
        tables = {"events": self.log.events, "sends": self.sends.table, "failures": self.failures.table}
        for name, table in tables.items():
            piece = table(self._written[name])
            self._streams[name].append(piece)
            self._written[name] += piece.num_rows
            if name == "events":
                rows = telling(piece)
                self.unseen.extend(rows.slice(i, BURST) for i in range(0, rows.num_rows, BURST))

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


async def play(folder: Path, index: int, start: Callable[[], Awaitable[float]], say: Say) -> None:
    """Play shard `index` of the plan in `folder`, from `start()` on. UserError when its endpoint cannot be used."""
    plan, trace, out = read_plan(folder), shard_trace(folder, index), results_of(folder, index)
    out.mkdir(parents=True, exist_ok=True)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, clock.WallClockLoop)
    tables = _Tables(out)
    kind = named(plan.kind)
    endpoint = kind.endpoint(trace, plan.target, tables.log, tables.sends, tables.failures)
    await endpoint.prepare()
    tables.flush()
    gc.collect()
    gc.freeze()
    gc.disable()  # as in a replay: an event loop makes no cycles worth the pauses
    say({"ready": True})
    loop.restart(await start(), plan.slower)
    endpoint.expect(plan.clients[index])
    cpu_s, begun = time.process_time(), time.monotonic()
    progress = ShardProgress(trace)
    client = plan.clients[index]
    users = asyncio.create_task(kind.play(trace, endpoint, tables.log, client, 1), name="users")
    writing = asyncio.create_task(_write(tables, progress, say), name="write")
    beside = {writing, asyncio.create_task(_stop_requested(), name="stop")}
    try:
        done, _ = await asyncio.wait({users, *beside}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # writing never ends, so if it is done it has failed
        end_s = loop.time()
        users.cancel()
        await asyncio.wait({users})
        await endpoint.aclose()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        tables.flush()
        tables.close()
    for events in tables.unseen:
        progress.update(events)
    if isinstance(endpoint, DuplexEndpoint):
        endpoint.save(out)
    facts = {
        "end_s": end_s,
        "cpu_s": time.process_time() - cpu_s,
        "wall_s": time.monotonic() - begun,
        "sessions": len(trace.sessions),
        "dialect": endpoint.target.dialect,
    }
    (out / DONE).write_text(json.dumps(facts) + "\n")
    say({**progress.status(loop.time(), tables.sends.recent()), "done": True})


async def _stop_requested() -> None:
    """Wait for anything more on standard input, its end included."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    try:
        await stop.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())


async def _write(tables: _Tables, progress: ShardProgress, say: Say) -> None:
    """Write until cancelled, between two pieces and never within one."""
    loop = asyncio.get_running_loop()
    due_s = max(0.0, loop.time())
    while True:
        said_s = due_s + STATUS_S
        while due_s < said_s:
            due_s += FLUSH_S
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            tables.flush()
            while tables.unseen:
                progress.update(tables.unseen.popleft())
                await asyncio.sleep(0)  # sockets and timers first
        say(progress.status(loop.time(), tables.sends.recent()))


def main() -> None:
    """Run one load generator. Exit status: 0 done, 1 an error of ours, 2 the user can fix it."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.live.run.load_generator", description="One load generator of a plan."
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("index", type=int)
    chosen = parser.parse_args()
    # The kernel ends this process with its parent, and only the parent handles Ctrl-C, which reaches the whole group.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    async def start() -> float:
        line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        if not line:
            os._exit(1)  # the starter is gone
        return float(line.split()[1])

    try:
        clock.run(play(chosen.plan, chosen.index, start, say), virtual=False)
    except UserError as error:
        say({"error": str(error), "user": True})
        sys.exit(2)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}", "user": False})
        raise


if __name__ == "__main__":
    main()
