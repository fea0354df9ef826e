"""Live points, one after the other, in this process: the load generators are processes of their own already."""

import os
import shutil
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.experiments import provenance
from harness.experiments.run_order import Order, Outcome
from harness.live.point import LivePoint
from harness.live.run.launch import Show
from harness.live.run.measure_live import measure_live
from harness.live.validity import FailedPoint
from harness.records.record import (
    INVALID,
    LOG,
    InvalidPoint,
    Measurement,
    failed,
    publish,
    temporary,
    write_failure,
    write_record,
)
from workloads.atomic_file import is_full
from workloads.errors import UserError

Measure = Callable[[LivePoint, Show | None, float, Callable[[str], None]], Measurement]


@dataclass(eq=False)
class LiveExecutor:
    """Runs points as the executors of `harness.replays.executors` do, one after the other.

    `show` gets the state of the run at each change. An endpoint that cannot be used at all is the user's mistake
    (UserError) until a point has been measured; later it is that point's failure.
    """

    points_dir: Path
    timeout_s: float
    order: Order | None = None
    show: Show | None = None
    measure: Measure | None = None

    def __post_init__(self) -> None:
        self._environment = provenance.environment()
        self._measured = False

    def run(self, points: Sequence[LivePoint]) -> Generator[Outcome, None, None]:
        order = self.order or Order(tuple(points))
        for point in points:
            folder = temporary(self.points_dir, point.id, os.getpid())
            try:
                folder.mkdir(parents=True)
                outcome = self._one(point, folder, order)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            yield outcome

    def _one(self, point: LivePoint, folder: Path, order: Order) -> Outcome:
        environment = {**self._environment, **order.facts(point)}
        started, begun = datetime.now(UTC), time.monotonic()
        record, failure = self.points_dir / point.id, failed(self.points_dir, point.id)
        reason, kept = "", None
        with (folder / LOG).open("a") as log:
            try:
                measure = self.measure or measure_live
                measurement = measure(point, self.show, self.timeout_s, log.write)  # type: ignore[arg-type]
                write_record(folder, point, measurement, measurement.proof, environment, started)
            except InvalidPoint as error:
                reason, kept = f"{INVALID}: {error}", error.measurement
            except FailedPoint as error:
                reason, kept = str(error), error.measurement
            except UserError as error:
                if not self._measured:
                    raise
                reason = str(error)
            except Exception as error:
                if is_full(error):  # no fault of the point's, and none of the others would fare better
                    raise
                traceback.print_exc(file=log)
                # The server is not to blame, so that it is no FAIL.
                reason = f"{INVALID}: {type(error).__name__}: {error}".splitlines()[0]
        if failure.exists():
            shutil.rmtree(failure)
        wall_s = time.monotonic() - begun
        if not reason:
            self._measured = True
            publish(folder, record)
            return Outcome(point, "ok", record, wall_s)
        self._measured |= kept is not None
        write_failure(folder, point, reason, environment, started, kept)
        publish(folder, failure)
        return Outcome(point, "failed", failure, wall_s, reason)
