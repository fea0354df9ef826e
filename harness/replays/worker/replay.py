"""Replay one trace against one server and keep everything that happened.

This is what a worker process does, once: build the server, let the users loose, stop at the end of the last session.
On a real device the same coroutines run on the wall clock.
"""

import asyncio
import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from engines.builder import Parts, Serving
from engines.core import vllm_adapter
from engines.registry import ENGINES
from harness.clocks import clock
from harness.events import point_progress
from harness.events.log import EventLog
from harness.replays.kinds.kind import Fronted
from harness.replays.point import ReplayPoint, ReplaySetup
from harness.replays.worker import vllm_release
from workloads.deferred import load_all
from workloads.trace import Trace

load_all()  # no replay is to be timed with its imports

_REPLAYS = count()
"""Counts the replays of this process in the order in which they begin."""


@dataclass
class Replay:
    """The results of a replay. `log` as `harness.events.log` describes it, with its tables; `proof` of a fresh worker;
    `cost` in wall time. `answers`: session, frame and token ids of answers to workload questions, if a model on a real
    device heard them."""

    log: EventLog
    run_end_s: float
    counters: dict[str, int]
    proof: dict[str, Any]
    cost: dict[str, Any]
    answers: Sequence[tuple[int, int, list[int]]] | None = None

    @property
    def events(self) -> pa.Table:
        return self.log.events()

    @property
    def steps(self) -> pa.Table:
        return self.log.steps()


def replay(
    point: ReplayPoint, trace: Trace, arrange: Callable[[Any], None] | None = None, folder: Path | None = None
) -> Replay:
    """Play `trace`, which is the point's own, against a fresh server: in virtual time, or on a real device as long as
    it takes. RuntimeError where the point needs another vLLM than the loaded one.

    `arrange` is called with the server when it is warm and serves nothing yet, to watch its devices or replace them.
    `folder`: for the log of a long run.
    """
    setup = point.setup
    kind, served = setup.kind, setup.server
    vllm_release.check_loaded(served.params.vllm)
    log = EventLog(folder)
    of_users = int(np.isnan(trace.columns()["backlog"]).sum())
    point_progress.expect(of_users or len(trace))  # nobody knows how many turns of a backlog begin
    proof = _of_process()
    cost: dict[str, Any] = {}
    begun = time.perf_counter()

    async def main() -> tuple[Serving, float]:
        loop = asyncio.get_running_loop()
        vllm_adapter.use_clock(loop.time)
        parts = Parts(served, log, point.seed, point.device, setup.step_file, trace)
        server = ENGINES[point.engine].build(parts, setup.system)
        proof.update(_before(server))
        if isinstance(kind, Fronted):
            server.gateway = kind.front(server.gateway, served.params, point.seed)
        cost["build_s"] = time.perf_counter() - begun
        if isinstance(loop, clock.WallClockLoop):
            cost["warm_up_steps"] = server.warm_up()
            cost["warm_up_s"] = time.perf_counter() - begun - cost["build_s"]
        if arrange is not None:
            arrange(server)
        if isinstance(loop, clock.WallClockLoop):
            loop.restart()
        end_s = await _serve(server, setup, trace, log)
        proof.update(server.close())
        return server, end_s

    with _without_collections():
        resident_kb = psutil.Process().memory_info().rss / 1024
        server, run_end_s = clock.run(main(), virtual=point.device == "virtual")
    cost["wall_s"] = time.perf_counter() - begun
    cost |= _cost(server, run_end_s, resident_kb)
    log.close()
    return Replay(log, run_end_s, server.counters(), proof, cost, server.answers)


async def _serve(server: Serving, setup: ReplaySetup, trace: Trace, log: EventLog) -> float:
    """Serve until the last user has gone; return when that was, s. Raises the exception of an engine or a user."""

    async def population() -> None:
        replicas = setup.kind.replicas(server.gateway.deployment, trace)
        await setup.kind.play(trace, server.gateway, log, setup.client, replicas)
        await server.settle()

    users = asyncio.create_task(population(), name="users")
    done, serving = await asyncio.wait({users, *server.start()}, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # engines serve for ever, so one that is done has failed
    for task in serving:
        task.cancel()
    end_s = asyncio.get_running_loop().time()
    log.event(end_s, "run_end", -1, -1)
    return end_s


@contextmanager
def _without_collections() -> Iterator[None]:
    """Stop garbage collection: the event loop makes no cycles worth collecting, and collections would add noise to the
    timings."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _of_process() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "process_started_unix_s": psutil.Process().create_time(),
        "memory_available_before_bytes": psutil.virtual_memory().available,
        "replays_before_in_this_process": next(_REPLAYS),
    }


def _before(server: Serving) -> dict[str, int]:
    """Return the state of a server before its first request: requests, KV blocks and cached blocks."""
    schedulers = [engine.scheduler for engine in server.engines]
    return {
        "requests_before": sum(len(each.requests) for each in schedulers),
        "kv_blocks_used_before": sum(each.allocatable_blocks - each.free_blocks for each in schedulers),
        "prefix_cache_blocks_before": sum(each.cached_blocks for each in schedulers),
        "host_kv_blocks": sum(each.host_blocks for each in schedulers),  # 0: nothing is offloaded
    }


def _cost(server: Serving, run_end_s: float, resident_kb: float) -> dict[str, Any]:
    """Return the cost of the run. `resident_kb`: memory of the process before."""
    seconds = np.concatenate([np.asarray(e.scheduler.evictions.seconds) for e in server.engines])
    return {
        "simulated_s": run_end_s,
        "vllm_s": sum(e.vllm_ns for e in server.engines) / 1e9,
        "policy_s": sum(e.policy_ns for e in server.engines) / 1e9,
        # SchedulerPath and BlockPool are vLLM's own, which take longer and give the same results.
        "paths": {
            e.stage: [type(each).__name__ for each in (e.path, e.scheduler.kv_cache_manager.block_pool)]
            for e in server.engines
        },
        "steps": sum(e.steps for e in server.engines),
        "memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident_kb) / 1024,  # kB on Linux
        "eviction": {
            "calls": seconds.size,
            "mean_ms": 1e3 * float(seconds.mean()) if seconds.size else None,
            "p90_ms": 1e3 * float(np.quantile(seconds, 0.9)) if seconds.size else None,
            "charged": any(e.charge_eviction for e in server.engines),  # then no two runs are the same
        },
    }
