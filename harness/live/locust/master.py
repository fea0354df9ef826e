"""The Locust master deals a schedule out to its workers, starts them at one instant and gathers what they measured.

Nobody draws anything: sessions and their times stand in the trace, and the workers only read their part of it. What is
sent when stands in `harness.live.locust.worker`.
"""

import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner

from harness.client.client_params import ClientParams
from harness.live.endpoints.target import TargetParams
from harness.live.locust.clock_offset import Offset
from harness.live.point import LivePoint
from harness.live.run.forecast import on_line
from harness.live.run.launch import RunOutput, Show
from harness.live.run.measure_live import FLOOR_S, check, measurement_of, repeat
from harness.live.run.plan import Loss, merge, pack_shard, recordings_of, results_of, write_plan
from harness.live.run.scrape import scraper_of
from harness.live.validity import check_machines
from harness.records.record import LOG, Measurement
from workloads.errors import UserError
from workloads.trace import Trace

PREPARE_S = 300.0
"""A worker that is not ready by then is not coming. [chosen]"""
LEAD_S = 1.0
"""From the word to start to the start, so that it reaches everybody before. [chosen]"""
LOOK_S = 0.1
"""Between two looks at who is ready, done or gone. [chosen]"""


@dataclass
class _Shard:
    """A shard and the latest messages of its worker."""

    index: int
    worker: str
    last_message_s: float
    """Time of its last message, by this host's clock."""
    clocks: list[Offset] = field(default_factory=list)
    floor: dict[str, Any] | None = None
    refused: str = ""
    status: int | None = None
    error: str = ""

    @property
    def prepared(self) -> bool:
        """True where it can start, or has said that it cannot."""
        return bool(self.clocks or self.refused)

    @property
    def clock(self) -> dict[str, Any]:
        """Offset of the master's clock ahead of its worker's, its error, and its change, all s."""
        if not self.clocks:
            return {"worker": self.worker, "offset_s": None, "error_s": None, "drift_s": None}
        first, last = self.clocks[0], self.clocks[-1]
        drift_s = last.offset_s - first.offset_s if len(self.clocks) > 1 else None
        return {"worker": self.worker, "offset_s": first.offset_s, "error_s": first.error_s, "drift_s": drift_s}


class Master:
    """The master's side of a run. `harness.live.run.live_executor` calls `measure` for a point."""

    def __init__(self, environment: Environment) -> None:
        assert isinstance(environment.runner, MasterRunner)
        self._runner = environment.runner
        self._run = ""
        self._folder = Path()
        self._shards: list[_Shard] = []
        self.stopped = False
        handlers = {
            "ask": self._ask,
            "ready": self._ready,
            "refused": self._refused,
            "piece": self._piece,
            "done": self._done,
        }
        for kind, handler in handlers.items():
            self._runner.register_message(f"rehearsal_{kind}", handler)

    def measure(self, point: LivePoint, show: Show | None, timeout_s: float, say: Callable[[str], None]) -> Measurement:
        """Measure as `harness.live.run.measure_live.measure_live` does, from the hosts of all workers."""
        del show  # Locust shows it
        begun = time.perf_counter()
        setup, trace = point.setup, point.trace()
        target, client, kind = setup.target, setup.client, setup.kind
        with tempfile.TemporaryDirectory(prefix="rehearsal-locust-") as name:
            folder = Path(name)
            output = self._play(folder, kind.floor(target), trace, target, client, timeout_s)
            for shard in self._shards:
                repeat(results_of(folder, shard.index) / LOG, f"worker {shard.worker}", say)
        merged = output.merged
        turns = target.stop_after_turns
        timing = kind.target_timing(trace, client, turns)
        measurement = measurement_of(kind, trace, target, output, self._floor(), timing)
        measurement.cost["hosts"] = [shard.clock for shard in self._shards]
        measurement.cost["wall_s"] = time.perf_counter() - begun
        check_machines(measurement, merged, target)
        return check(kind, measurement)

    def _play(
        self, folder: Path, floor: str, trace: Trace, target: TargetParams, client: ClientParams, timeout_s: float
    ) -> RunOutput:
        """Play the run. `floor`: the load on the null server. UserError when a worker cannot play its part, or goes
        away before the start."""
        self._deal(folder, floor, trace, target, client)
        try:
            self._wait(lambda shard: shard.prepared, PREPARE_S)
            self._check_ready()
            start_s = time.monotonic() + LEAD_S + (target.connect_lead_s if client.c is None else 0.0)
            for shard in self._shards:
                self._send("start", shard.worker, at_s=start_s)
            scraper = scraper_of(target, start_s)
            with scraper or nullcontext():
                self._wait(lambda shard: shard.status is not None, start_s - time.monotonic() + timeout_s)
        finally:
            for shard in self._shards:
                self._send("stop", shard.worker)
        lost = {
            shard.index: Loss(max(0.0, shard.last_message_s - start_s), reason)
            for shard in self._shards
            if (reason := self._why_lost(shard))
        }
        return RunOutput(merge(folder, lost), scraper.table() if scraper is not None else None, start_s)

    def _deal(self, folder: Path, load: str, trace: Trace, target: TargetParams, client: ClientParams) -> None:
        workers = [id for id in sorted(self._runner.clients, key=self._runner.get_worker_index) if not self._gone(id)]
        if not workers:
            raise UserError("no Locust worker is connected; start some with: locust -f FILE --worker.")
        plan = write_plan(folder, trace, target.model_copy(update={"shards": len(workers)}), client)
        self._run, self._folder, self.stopped = uuid.uuid4().hex, folder, False
        now_s = time.monotonic()
        self._shards = [_Shard(index, worker, now_s) for index, worker in enumerate(workers[: plan.shards])]
        recorded = recordings_of(trace)
        sessions = -(-(client.c or on_line(trace)) // plan.shards)
        floor = {
            "kind": load,
            "sessions": sessions,
            "shards": 1,
            "seconds": FLOOR_S,
            "params": {"chunk_ms": target.chunk_ms},
        }
        for shard in self._shards:
            results_of(folder, shard.index).mkdir(parents=True, exist_ok=True)
            self._send("part", shard.worker, floor=floor, **pack_shard(folder, shard.index, recorded))

    def _floor(self) -> dict[str, Any]:
        """Return the floor of the host that adds most delay. Each host has measured its own, with its present number of
        sessions."""
        floors = [shard.floor for shard in self._shards if shard.floor is not None]
        return max(floors, key=lambda floor: floor["send_delay_p99_s"] or 0.0, default={})

    def stop(self) -> None:
        """End the current run: unfinished shards are lost."""
        self.stopped = True

    def _wait(self, there: Callable[[_Shard], bool], limit_s: float) -> None:
        until_s = time.monotonic() + limit_s
        while time.monotonic() < until_s and not self.stopped:
            if all(there(shard) or self._gone(shard.worker) for shard in self._shards):
                return
            gevent.sleep(LOOK_S)

    def _check_ready(self) -> None:
        if self.stopped:
            raise UserError("stopped before the first call; start the run again.")
        for shard in self._shards:
            if shard.refused:
                raise UserError(f"worker {shard.worker}: {shard.refused}")
            if not shard.prepared or self._gone(shard.worker):
                raise UserError(
                    f"worker {shard.worker} was not ready to play its part; see its log, and start the run again."
                )

    def _why_lost(self, shard: _Shard) -> str:
        if shard.status == 0:
            return ""
        if shard.status is not None:
            return shard.error or f"ended with status {shard.status}"
        if self._gone(shard.worker):
            return f"went with its Locust worker {shard.worker}"
        return "was stopped" if self.stopped else "took too long"

    def _gone(self, worker: str) -> bool:
        node = self._runner.clients.get(worker)
        return node is None or node.state == STATE_MISSING

    def _send(self, kind: str, worker: str, **data: Any) -> None:
        self._runner.send_message(f"rehearsal_{kind}", {"run": self._run, **data}, client_id=worker)

    def _of(self, msg: Any) -> _Shard | None:
        """Return the shard of a message; None when it is of an earlier run."""
        for shard in self._shards:
            if shard.worker == msg.node_id and msg.data["run"] == self._run:
                shard.last_message_s = time.monotonic()
                return shard
        return None

    def _ask(self, msg: Any, **_: Any) -> None:
        self._send("tell", msg.node_id, n=msg.data["n"], at_s=time.monotonic())

    def _ready(self, msg: Any, **_: Any) -> None:
        if (shard := self._of(msg)) is not None:
            self._take_clock(shard, msg)
            shard.floor = msg.data["floor"]

    def _refused(self, msg: Any, **_: Any) -> None:
        if (shard := self._of(msg)) is not None:
            shard.refused = msg.data["error"]

    def _piece(self, msg: Any, **_: Any) -> None:
        if (shard := self._of(msg)) is not None:
            path = results_of(self._folder, shard.index) / Path(msg.data["name"]).name
            with path.open("r+b" if path.exists() else "wb") as file:
                file.seek(msg.data["at"])
                file.write(msg.data["data"])

    def _done(self, msg: Any, **_: Any) -> None:
        if (shard := self._of(msg)) is not None:
            shard.status, shard.error = msg.data["status"], msg.data["error"]
            self._take_clock(shard, msg)

    @staticmethod
    def _take_clock(shard: _Shard, msg: Any) -> None:
        if msg.data["clock"] is not None:
            shard.clocks.append(Offset(*msg.data["clock"]))
