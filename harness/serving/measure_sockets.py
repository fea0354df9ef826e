"""A point of device sockets: a server of ours starts for it, and a live run calls that server."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from engines.registry import ENGINES
from engines.stock.omni.omni_params import OmniParams
from harness.live.endpoints.target import TargetParams
from harness.live.kinds import named
from harness.live.point import LivePoint, LiveSetup
from harness.live.run.measure_live import measure_target
from harness.live.validity import check_own_server
from harness.records.record import Measurement
from harness.replays.point import ReplayPoint
from harness.request_tables.frame_table import Beat
from harness.serving import ServeConfig, ServerProcess
from harness.serving.listener import address_of, bound
from harness.serving.omni_server import OmniServer

BUSY = 0.8
"""[chosen] share of the cores from which on processes of a real runtime wait for one another."""


def measure_sockets(point: ReplayPoint) -> Measurement:
    """Measure a point of device sockets: the engines of virtual time behind real sockets. Raises as `measure_live`.

    It starts a server for `point`, plays its users against it, and stops it. The server is a process of its own with
    the modelled devices on the wall clock. Users reach it in dialect rehearsal, which states the length of each reply.
    Clients add the trace's network delays, as in virtual time.
    """
    setup, served = point.setup, point.setup.server
    if served.params.runtime == "vllm-omni":
        return measure_omni(point)
    trace = point.trace()
    timing = setup.kind.timing(setup.system, setup.client, served.deployment, trace)
    # Users who hang up are gone a moment later than the next ones come.
    most = 2 * (setup.client.c or len(trace.sessions)) + 8
    config = ServeConfig.model_validate(
        {
            "engine": point.engine,
            "settings": {**point.server_params, **point.engine_params},
            "profile": point.profile,
            "seed": point.seed,
            "limits": {"max_sessions": most},
            **({"frame_s": timing.budget_s} if isinstance(timing, Beat) else {}),
        }
    )
    with ServerProcess(config) as server:
        fields = {"url": server.url, "dialect": "rehearsal", "scrape": server.metrics_url}
        target = TargetParams.model_validate(fields)
        measurement = measure_target(live_point(point, target), target, timing=timing, slower=served.params.slower)
    check_own_server(measurement, target.send_delay_limit_ms)
    return measurement


def live_point(point: ReplayPoint, target: TargetParams) -> LivePoint:
    """Return the point as a live run of the same users against `target` takes it."""
    setup = point.setup
    live = LiveSetup(named(setup.kind.name), setup.workload, setup.client, target)
    return LivePoint(**point.model_dump(), setup=live)


class CpuUse:
    """Use of the processors from now on: by the processes of `pids`, and by the whole machine."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._begun_s = time.monotonic()
        self._before = self._seconds()
        psutil.cpu_percent()  # the next call tells the mean since this one

    def share(self) -> dict[str, float]:
        """Return shares of all cores, 0 to 1: `server`, of the processes; `machine`, of everything that runs."""
        wall_s = (time.monotonic() - self._begun_s) * (os.cpu_count() or 1)
        return {"server": (self._seconds() - self._before) / wall_s, "machine": psutil.cpu_percent() / 100}

    def _seconds(self) -> float:
        total = 0.0
        for pid in self._pids():
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total


def measure_omni(point: ReplayPoint) -> Measurement:
    """Measure a point of device sockets with vLLM-Omni's own runtime: its processes start for `point` and end with it.
    Clients speak its duplex protocol, and state reply lengths where only the modelled stages read them."""
    setup, trace = point.setup, point.trace()
    served, server = setup.server, setup.server.params
    timing = setup.kind.timing(setup.system, setup.client, served.deployment, trace)
    asked = {"engine": point.engine, "engine_params": changed(point), "deployment": server.deployment}
    more = {"slower": server.slower, "active_stream_window": server.active_stream_window, "seed": point.seed}
    with bound("127.0.0.1", 0) as free:
        port = int(address_of(free).rsplit(":", 1)[1])
    with OmniServer(OmniParams.model_validate({**asked, **more}), port) as omni:
        usage = CpuUse(lambda: [process.pid for process in omni.processes])
        target = TargetParams.model_validate({"url": omni.url, "dialect": omni.dialect, "hint": True})
        measurement = measure_target(live_point(point, target), target, timing=timing, slower=server.slower)
        taken = measurement.proof["cpu"] = usage.share()
        measurement.more["runtime_steps"] = omni.steps(measurement.proof["origin_s"])
    if taken["machine"] > BUSY:
        print(
            f"{taken['machine']:.0%} of this machine's cores were taken, {taken['server']:.0%} by the server: steps "
            "may have ended late; set slower=4, or leave the machine to the run."
        )
    return measurement


def changed(point: ReplayPoint) -> dict[str, Any]:
    """Return the parameters of the point's engine that differ from its defaults."""
    system = ENGINES[point.engine]
    defaults = system.stored(system.read({}))
    return {name: value for name, value in point.engine_params.items() if defaults.get(name) != value}
