"""Replay one trace against one server and keep everything that happened.

This is what a worker process does, once: build the server, let the users loose, stop at the end of the last session.
On a real device the same coroutines run on the wall clock.
"""

import asyncio
import gc
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from rehearsal.engines.core import vllm_adapter
from rehearsal.engines.devices.step_file import as_step_file
from rehearsal.engines.parts import Parts
from rehearsal.engines.registry import ENGINES
from rehearsal.engines.server import ServerParams
from rehearsal.engines.serving import Serving
from rehearsal.harness import clock, progress, vllm_release
from rehearsal.harness.client.params import ClientParams
from rehearsal.harness.client.population import serve_population
from rehearsal.harness.kinds import kind_of
from rehearsal.harness.kinds.kind import Fronted
from rehearsal.harness.log import EventLog
from rehearsal.workloads.deferred import load_all
from rehearsal.workloads.trace import Trace

load_all()  # no replay is to be timed with its imports

_replays_begun = 0


@dataclass
class Replay:
    """What a replay leaves. `log` as `harness.log` describes it, with its tables; `proof` of a fresh worker; `cost` in
    wall time.

    `said`: session, frame and token ids of answers to workload questions, where a model on a real device heard it.
    """

    log: EventLog
    run_end_s: float
    counters: dict[str, int]
    proof: dict[str, Any]
    cost: dict[str, Any]
    said: Sequence[tuple[int, int, list[int]]] | None = None

    @property
    def events(self) -> pa.Table:
        return self.log.events()

    @property
    def steps(self) -> pa.Table:
        return self.log.steps()


def replay(
    engine: str,
    engine_params: dict[str, Any],
    server_params: dict[str, Any],
    client_params: dict[str, Any],
    trace: Trace,
    seed: int,
    device: str = "virtual",
    arrange: Callable[[Any], None] | None = None,
    profile: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> Replay:
    """Run `trace` against a fresh server of `engine`: in virtual time, or on a real device as long as it takes.
    RuntimeError where the point is to run on another vLLM than this process has loaded.

    `arrange` is called with the server when it is warm and serves nobody yet, to watch its devices or replace them.
    `profile`: content of a profile file, whose step times the virtual device replays with. `folder`: for the log of a
    long run.
    """
    global _replays_begun
    vllm_release.check_loaded(server_params.get("vllm"))
    log = EventLog(folder)
    of_users = int(np.isnan(trace.columns()["pool"]).sum())
    progress.expect(of_users or len(trace))  # what a pool begins nobody knows
    proof = {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "process_started_unix_s": psutil.Process().create_time(),
        "memory_available_before_bytes": psutil.virtual_memory().available,
        "replays_before_in_this_process": _replays_begun,
    }
    _replays_begun += 1
    measured = as_step_file(profile, "the point's profile") if profile is not None else None
    spec, clients = ENGINES[engine], ClientParams(**client_params)
    begun = time.perf_counter()

    async def main() -> tuple[Serving, float]:
        loop = asyncio.get_running_loop()
        vllm_adapter.use_clock(loop.time)
        parts = Parts(ServerParams.of(server_params), log, seed, device, measured, trace)
        server = spec.build(parts, spec.model(engine_params)(**engine_params))
        proof.update(
            requests_before=sum(len(e.scheduler.requests) for e in server.engines),
            kv_blocks_used_before=sum(
                e.scheduler.allocatable_blocks - e.scheduler.free_blocks for e in server.engines
            ),
            prefix_cache_blocks_before=sum(e.scheduler.cached_blocks for e in server.engines),
            host_kv_blocks=sum(e.scheduler.host_blocks for e in server.engines),  # 0: nothing is offloaded
        )
        kind = kind_of(trace)
        if isinstance(kind, Fronted):
            server.gateway = kind.front(server.gateway, server_params, seed)
        cost["build_s"] = time.perf_counter() - begun
        if isinstance(loop, clock.WallClockLoop):
            cost["warm_up_steps"] = server.warm_up()
            cost["warm_up_s"] = time.perf_counter() - begun - cost["build_s"]
        if arrange is not None:
            arrange(server)
        if isinstance(loop, clock.WallClockLoop):
            loop.restart()

        async def population() -> None:
            replicas = kind.replicas(server.gateway.deployment, trace)
            await serve_population(trace, server.gateway, log, clients, replicas)
            await server.settle()

        users = asyncio.create_task(population(), name="users")
        done, serving = await asyncio.wait({users, *server.start()}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # engines serve for ever, so one that is done has failed
        for task in serving:
            task.cancel()
        end_s = loop.time()
        log.event(end_s, "run_end", -1, -1)
        proof.update(server.close())
        return server, end_s

    cost: dict[str, Any] = {}
    gc.collect()
    gc.freeze()
    resident_kb = psutil.Process().memory_info().rss / 1024
    gc.disable()  # the event loop makes no cycles worth collecting; collections would only add noise to the timings
    try:
        server, run_end_s = clock.run(main(), virtual=device == "virtual")
    finally:
        gc.enable()
    cost |= {
        "wall_s": time.perf_counter() - begun,
        "simulated_s": run_end_s,
        "vllm_s": sum(e.vllm_ns for e in server.engines) / 1e9,
        "policy_s": sum(e.policy_ns for e in server.engines) / 1e9,
        "steps": sum(e.steps for e in server.engines),
        "memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident_kb) / 1024,  # kB on Linux
    }
    seconds = np.concatenate([np.asarray(e.scheduler.evictions.seconds) for e in server.engines])
    cost["eviction"] = {
        "calls": seconds.size,
        "mean_ms": 1e3 * float(seconds.mean()) if seconds.size else None,
        "p90_ms": 1e3 * float(np.quantile(seconds, 0.9)) if seconds.size else None,
        "charged": any(e.charge_eviction for e in server.engines),  # then no two runs are the same
    }
    log.close()
    return Replay(log, run_end_s, server.counters(), proof, cost, server.said)
