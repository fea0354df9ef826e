"""Replay one trace against one server and keep everything that happened.

This is what a worker process does, once: build the server, let the users loose, stop at the end of the last session.
"""

import asyncio
import gc
import os
import time
from dataclasses import dataclass
from typing import Any

import psutil
import pyarrow as pa

from engines.build import Server, build_server
from engines.core import vllm_adapter
from engines.registry import ENGINES
from engines.server import ServerParams
from harness import clock
from harness.client.params import ClientParams
from harness.client.population import serve_population
from harness.log import EventLog
from workloads.trace import Trace

_replays_begun = 0


@dataclass
class Replay:
    """What a replay leaves. Tables as ``harness.log`` describes; ``proof`` of a fresh worker; ``cost`` in wall time."""

    events: pa.Table
    steps: pa.Table
    run_end_s: float
    counters: dict[str, int]
    proof: dict[str, Any]
    cost: dict[str, Any]


def replay(
    engine: str,
    engine_params: dict[str, Any],
    server_params: dict[str, Any],
    client_params: dict[str, Any],
    trace: Trace,
    seed: int,
) -> Replay:
    """Run ``trace`` in virtual time against a fresh server of ``engine``."""
    global _replays_begun
    log = EventLog()
    proof = {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "process_started_unix_s": psutil.Process().create_time(),
        "replays_before_in_this_process": _replays_begun,
    }
    _replays_begun += 1
    spec, clients = ENGINES[engine], ClientParams(**client_params)
    begun = time.perf_counter()

    async def main() -> tuple[Server, float]:
        loop = asyncio.get_running_loop()
        vllm_adapter.use_clock(loop.time)
        server = build_server(engine, spec.Params(**engine_params), ServerParams(**server_params), log, seed)
        proof.update(
            requests_before=sum(len(e.scheduler.requests) for e in server.engines),
            kv_blocks_used_before=sum(
                e.scheduler.allocatable_blocks - e.scheduler.free_blocks for e in server.engines
            ),
            prefix_cache_blocks_before=sum(e.scheduler.cached_blocks for e in server.engines),
        )
        cost["build_s"] = time.perf_counter() - begun

        async def population() -> None:
            await serve_population(trace, server.gateway, log, clients)
            await server.settle()

        users = asyncio.create_task(population(), name="users")
        done, serving = await asyncio.wait({users, *server.start()}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # engines serve for ever, so one that is done has failed
        for task in serving:
            task.cancel()
        log.event(loop.time(), "run_end", -1, -1)
        return server, loop.time()

    cost: dict[str, Any] = {}
    gc.collect()
    gc.freeze()
    gc.disable()  # the event loop makes no cycles worth collecting; collections would only add noise to the timings
    try:
        server, run_end_s = clock.run(main(), virtual=True)
    finally:
        gc.enable()
    cost |= {
        "wall_s": time.perf_counter() - begun,
        "simulated_s": run_end_s,
        "vllm_s": sum(e.vllm_ns for e in server.engines) / 1e9,
        "policy_s": sum(e.policy_ns for e in server.engines) / 1e9,
        "steps": sum(e.steps for e in server.engines),
    }
    return Replay(log.events(), log.steps(), run_end_s, server.counters(), proof, cost)
