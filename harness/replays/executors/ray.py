"""Points on the nodes of a Ray cluster: an actor for each point at a time, which has a fork server of its own.

Nothing but Ray is shared with the nodes: each has its own installation, whose code must be the same, and records come
home through Ray. The point of a node that is lost is measured again on another.
"""

import logging
import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from harness.experiments.run_order import Order, Outcome
from harness.replays.executors import WATCH_S, WorkerExecutor
from harness.replays.executors.node import Ended, Task, give_up, receive
from harness.replays.point import ReplayPoint
from workloads.errors import UserError
from workloads.optional import optional

_log = logging.getLogger(__name__)
CHANCES = 3
"""[chosen] machines that a point may be lost with until it is taken for what ends them."""
STOP_S = 10
"""[chosen] that actors are given to end their workers; then they are killed."""
CONNECT_S = 10
"""[chosen] that a cluster is given to answer at all."""
CONNECTS = 3
"""[chosen] times that a client server is asked: it forks a process for each client, and some die at once
(https://github.com/ray-project/ray/issues/63202: 7 %; 2 of 40 seen)."""


@dataclass(eq=False)
class _Slot:
    """Our view of an actor: its state and its point."""

    actor: Any
    node: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    point: ReplayPoint | None = None
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    share: float = 0.0


@dataclass(eq=False, kw_only=True)
class RayExecutor(WorkerExecutor):
    """Runs points while `connected`. `jobs`: points at a time; None: one for each processor of the cluster. The other
    parameters are as in `LocalExecutor`. UserError when a node has other code, no node remains, or there is no room for
    a record."""

    jobs: int | None

    def run(self, points: Sequence[ReplayPoint]) -> Generator[Outcome, None, None]:
        if not points:
            return
        order = self.order or Order(tuple(points))
        task = Task(self.work, order, self.timeout_s, self.preload)
        yield from _Run(self, task).outcomes(deque(points))


class _Run:
    """One run on a cluster: its actors, and the last request to each that is still unanswered."""

    def __init__(self, of: RayExecutor, task: Task) -> None:
        self._ray = ray = optional("ray", "ray")
        self._of = of
        self._order = task.order
        self._task = ray.cloudpickle.dumps(task)
        self._actor = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(_actor(ray))
        self._asked: dict[Any, _Slot] = {}
        self._idle: list[_Slot] = []
        self._lost: Counter[str] = Counter()

    def outcomes(self, waiting: deque[ReplayPoint]) -> Generator[Outcome, None, None]:
        jobs = self._of.jobs or self._processors()
        if not jobs:
            raise UserError("the Ray cluster has no processors; add nodes, or give --jobs if it adds them itself.")
        try:
            for _ in range(min(jobs, len(waiting))):
                self._open()
            while waiting or any(slot.point for slot in self._asked.values()):
                while waiting and self._idle:
                    self._begin(self._idle.pop(), waiting.popleft())
                ready, _ = self._ray.wait([*self._asked], timeout=WATCH_S)
                for ref in ready:
                    yield from self._answered(self._asked.pop(ref), ref, waiting)
                if self._of.watch:
                    self._of.watch(sum(slot.share for slot in self._asked.values()))
        finally:
            self._stop()

    def _processors(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def _open(self) -> None:
        slot = _Slot(self._actor.remote())
        self._asked[slot.actor.open.remote(self._task)] = slot

    def _begin(self, slot: _Slot, point: ReplayPoint) -> None:
        slot.point, slot.begun = point, datetime.now(UTC)
        self._asked[slot.actor.measure.remote(point)] = slot

    def _answered(self, slot: _Slot, ref: Any, waiting: deque[ReplayPoint]) -> Iterator[Outcome]:
        try:
            answer = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError:
            raise  # our own code's
        except self._ray.exceptions.RayError as error:
            yield from self._without(slot, error, waiting)
            return
        if isinstance(answer, str):
            raise UserError(f"node {slot.node}: {answer}")
        if not slot.node:
            slot.node, slot.environment = self._welcome(*answer)
        elif isinstance(answer, Ended):
            slot.point, slot.share = None, 0.0
            yield receive(answer, self._of.points_dir)
        else:
            slot.share = answer
        if slot.point is None:
            self._idle.append(slot)
        else:
            self._asked[slot.actor.measure.remote(None)] = slot

    def _welcome(self, id: str, refusal: str, environment: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        node = next(node for node in self._ray.nodes() if node["NodeID"] == id)
        name = f"{node['NodeName']} ({node['NodeManagerHostname']})"
        if refusal:
            raise UserError(f"node {name} of the Ray cluster {refusal}; install the same Rehearsal on every node.")
        return name, environment

    def _without(self, slot: _Slot, error: Exception, waiting: deque[ReplayPoint]) -> Iterator[Outcome]:
        """Go on without an actor: it was lost, alone or with its node, or cannot be reached, or its answer was lost."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(slot.actor)  # one that lives on would keep its processor
        point, id = slot.point, slot.point.id if slot.point else ""
        self._lost[id] += 1
        if self._lost[id] < CHANCES:
            if point is None:
                _log.warning("a worker was lost; it had not begun.")
            else:
                _log.warning("node %s or its worker was lost; %s is measured again.", slot.node, point.label)
                waiting.appendleft(point)
        elif point is None:
            raise UserError(f"the Ray cluster starts no workers: {str(error).splitlines()[0]}")
        else:
            reason = f"its worker was lost {CHANCES} times, the last time on node {slot.node} (out of memory?)"
            environment = {**self._order.facts(point), **slot.environment}
            yield give_up(point, reason, environment, slot.begun, self._of.points_dir)
        if not self._processors() and self._of.jobs is None:
            raise UserError("the Ray cluster has lost all its nodes; run the same command again: finished points stay.")
        if waiting:
            self._open()

    def _stop(self) -> None:
        """Let the actors end their workers, and end them. An actor that has not answered by then is killed."""
        slots = [*self._asked.values(), *self._idle]
        with suppress(self._ray.exceptions.RayError):
            stops = [slot.actor.stop.remote() for slot in slots if slot.node]
            self._ray.wait(stops, num_returns=len(stops), timeout=STOP_S) if stops else None
            for slot in slots:
                self._ray.kill(slot.actor)


def _actor(ray: Any) -> type:
    """Return the class of the actors. It is made inside this function so that it travels by value, also to nodes
    without our package."""

    class Slot:
        def open(self, task: bytes) -> tuple[str, str, dict[str, Any]]:
            """Return the node's id, why it is refused (or nothing), and its environment as records have it."""
            import os
            import pickle
            import sys

            # Ray lets the asker's directory come first; what is looked at here is to be what the fork server imports.
            os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
            node = ray.get_runtime_context().get_node_id()
            try:
                from harness.replays.executors import node as ours

                node_task = pickle.loads(task)
            except ImportError as error:
                return node, f"has no Rehearsal that could be imported ({error})", {}
            self.slot = ours.Slot(node_task)
            return node, node_task.refusal(), self.slot.environment()

        def measure(self, point: ReplayPoint | None) -> Ended | float | str:
            """Implements `harness.replays.executors.node.Slot`; a string when the run has to end."""
            import os

            from harness.replays.executors.node import Lost
            from workloads.errors import UserError

            try:
                return self.slot.measure(point)
            except UserError as error:
                return str(error)
            except Lost:
                os._exit(1)

        def stop(self) -> None:
            self.slot.stop()

    return Slot


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to the cluster at `address`: `ray://HOST:PORT` of its client server; `auto` is the one that this process
    is connected to already, that of RAY_ADDRESS, or one of this machine. UserError when there is none."""
    ray = optional("ray", "ray")
    if address == "auto" and ray.is_initialized():
        yield
        return
    try:
        cluster = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
        at = urlsplit(f"//{cluster.rpartition('//')[2]}")
        if at.hostname and at.port:  # Ray would try for a minute
            socket.create_connection((at.hostname, at.port), CONNECT_S).close()
        with _signals_kept():
            _connect(ray, address)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"--executor {address}: there is no usable Ray cluster ({_said(error)}); give the address of "
            "a running one, as ray://HOST:10001, or start one with `ray start --head`."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    for left in reversed(range(CONNECTS)):
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            return
        except ConnectionAbortedError as error:
            if not left:
                raise
            _log.warning("the Ray cluster did not take this client (%s); asked again.", _said(error))


def _said(error: Exception) -> str:
    """Return on one line what failed and, for a traceback from the cluster, why."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(dict.fromkeys([lines[0].strip(), lines[-1].strip()])).rstrip(".")


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep our handler of SIGTERM, which stops a run: Ray installs its own."""
    mine = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, mine)
