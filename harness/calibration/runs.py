"""One trace served for real, in a process of its own, and in virtual time with step times that are handed in."""

import multiprocessing
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from engines.devices.step_time import totals
from engines.models import Decoder
from harness.calibration.agreement import by_turn
from harness.calibration.step_costs import step_costs
from harness.experiments.point import Point
from harness.metrics.request_table import request_table
from harness.worker.isolation import die_with_starter, send_output_to
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

Result = TypeVar("Result")

ENGINE = "vllm_omni"
"""Stock scheduling, on the only stage of a deployment that answers in text."""

CANARY_COLUMNS = ["begin_s", "end_s", "seconds"]


@dataclass(frozen=True)
class Served:
    """A trace and the place where it is served: `workload` with `params` and `seed`, on `deployment`."""

    deployment: str
    params: dict[str, Any]
    seed: int
    workload: str = "poisson"

    def trace(self) -> Trace:
        return make_trace(self.workload, self.params, self.seed)

    def point(self, trace: Trace, device: str = "virtual") -> Point:
        """Where `trace` is served, on its own or with arrivals of another run."""
        return Point.of(trace, ENGINE, server={"deployment": self.deployment}, seed=self.seed, device=device)


@dataclass(frozen=True)
class RealRun:
    """`requests`: `agreement.by_turn`. `late_s`, by session: how much later than scheduled a request was in the
    stage's queue. `steps`: the loop's log; `costs`: `step_costs`. `canaries`: begin_s, end_s, seconds (of the
    kernel). `cost`: of the replay, wall time."""

    requests: pd.DataFrame
    late_s: np.ndarray
    steps: pd.DataFrame
    costs: pd.DataFrame
    canaries: pd.DataFrame
    run_s: float
    cost: dict[str, Any]


@dataclass(frozen=True)
class VirtualRun:
    requests: pd.DataFrame
    steps: int


def serve_real(served: Served, device: str) -> RealRun:
    """Serve it in this process, which should have served nothing before, and watch every step."""
    from engines.devices.watched import Canary, WatchedDevice
    from harness.worker.replay import replay

    watched: list[WatchedDevice] = []

    def watch(server: Any) -> None:
        decoder = _decoder(server)
        for engine in server.engines:
            engine.device = WatchedDevice(engine.device, Canary(decoder.weight_bytes, device))
            watched.append(engine.device)

    trace = served.trace()
    run = replay(served.point(trace, device), trace, arrange=watch)
    (seen,) = watched
    steps = run.steps.to_pandas()
    canaries = pd.DataFrame(seen.canaries, columns=CANARY_COLUMNS)
    held = [{"begin_s": begin, "end_s": end, **asdict(totals(rows))} for begin, end, rows in seen.steps]
    costs = step_costs(steps, pd.DataFrame(held), canaries)
    late_s = _late_s(run.events.to_pandas(), trace)
    return RealRun(_requests(run.events, trace), late_s, steps, costs, canaries, run.run_end_s, run.cost)


def serve_virtual(
    served: Served,
    seconds: Callable[..., float],
    canary_s: Callable[[float], float] | None,
    late_s: np.ndarray | None = None,
) -> VirtualRun:
    """Serve it on the virtual clock, its steps charged by `seconds` (`engines.devices.watched`).

    `late_s`, by session: requests come so much later than scheduled; latencies count from the schedule all the same.
    """
    from engines.devices.watched import ChargedDevice
    from harness.worker.replay import replay

    def charge(server: Any) -> None:
        for engine in server.engines:
            engine.device = ChargedDevice(_decoder(server).vocab, seconds, canary_s)

    trace = served.trace()
    if late_s is not None:
        trace = _later(trace, late_s)
    run = replay(served.point(trace), trace, arrange=charge)
    steps = run.steps.to_pandas()
    return VirtualRun(_requests(run.events, served.trace()), int((steps["requests"] > 0).sum()))


def in_fresh_process(log: Path, work: Callable[..., Result], *arguments: Any) -> Result:
    """`work(*arguments)` in a spawned process; what it prints goes to `log`.

    UserError where it says that the machine cannot do it, RuntimeError with its traceback when it fails.
    """
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    worker = context.Process(
        target=_work, args=(theirs, log, work, arguments), name=f"fidelity {work.__name__}"
    )
    worker.start()
    theirs.close()
    try:
        kind, content = mine.recv()
        worker.join(timeout=60)  # it has still to end
    except EOFError:
        worker.join()
        raise RuntimeError(f"a run ended with status {worker.exitcode} and no result; see {log}") from None
    finally:
        mine.close()
        worker.kill()
        worker.join()
    if kind == "mistake":
        raise UserError(content)
    if kind == "failed":
        raise RuntimeError(f"a run failed:\n{content}")
    return content


def _work(pipe: Connection, log: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    die_with_starter()
    send_output_to(log)
    try:
        pipe.send(("done", work(*arguments)))
    except UserError as error:
        pipe.send(("mistake", str(error)))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))


def _requests(events: Any, trace: Trace) -> pd.DataFrame:
    """`agreement.by_turn`, from the trace's schedule: in the log a typed turn begins when its client gets to it."""
    turns = pd.DataFrame(trace.columns())
    table = request_table(events.to_pandas(), turns)
    table["e2e_s"] += table["turn_end_s"] - np.asarray(turns["arrival_s"])[table["session"]]
    table["ttft_s"] += table["turn_end_s"] - np.asarray(turns["arrival_s"])[table["session"]]
    return by_turn(table)


def _late_s(events: pd.DataFrame, trace: Trace) -> np.ndarray:
    """Seconds, by session, from when its request was due in the stage's queue, by the trace, to when it was there."""
    arrived = events[events["kind"].astype(str) == "arrive"]
    planned = pd.DataFrame(trace.columns())
    due_s = np.asarray(planned["arrival_s"] + planned["network_s"])
    late_s = np.zeros(len(due_s))
    sessions = np.asarray(arrived["session"], int)
    late_s[sessions] = np.maximum(0.0, np.asarray(arrived["t"]) - due_s[sessions])
    return late_s


def _later(trace: Trace, late_s: np.ndarray) -> Trace:
    columns, header = trace.columns(), trace.header
    return Trace.from_columns(
        {**columns, "arrival_s": np.asarray(columns["arrival_s"]) + late_s},
        generator=header.generator,
        params=header.params,
        seed=header.seed,
        notes=[*header.notes, "requests come when they came in a real run"],
    )


def _decoder(server: Any) -> Decoder:
    """Return the decoder of the only stage, which is the one compared."""
    deployment = server.gateway.deployment
    return deployment.stages[deployment.entry].decoder
