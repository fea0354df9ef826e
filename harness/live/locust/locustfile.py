"""Many hosts: Locust's master and workers play the schedule of a live run. On one host, from a results directory:

    rehearse live URL --sessions 300 --out results/mine --dry-run
    locust -f harness/live/locust/locustfile.py --master --expect-workers 3 --rehearsal results/mine

on each of the others, with `rehearsal-bench[live,locust]`, the token or key in its environment, and nothing else:

    locust -f harness/live/locust/locustfile.py --worker --master-host HOST

and Start on the master's page at port 8089; with `--headless` it starts and ends by itself. All points of the directory
that are not finished are measured one after the other, and `rehearse report results/mine` shows them. Locust's own page
has the times to first packet, the complete replies and the failures as they come, and concurrent sessions as its users.
"""

import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
from locust import User, events, task
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from harness.exit_status import BAD_INPUT, FAULT
from harness.experiments.experiment import load_experiment
from harness.experiments.run_order import Order
from harness.live.expand import expand
from harness.live.locust.master import Master
from harness.live.locust.worker import Worker
from harness.live.point import LivePoint
from harness.live.run.live_executor import LiveExecutor
from harness.records import results
from harness.records.record import status_of
from workloads.errors import UserError

log = logging.getLogger(__name__)


class Session(User):
    """A user class, without which Locust runs nothing; the calls are in the shard's process."""

    @task
    def idle(self) -> None:
        gevent.sleep(1.0)


class Run:
    """The master's work from one Start to the end of all points."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._environment = environment
        self._master = Master(environment)
        self._folder = folder
        self._working: Any = None

    def start(self, **_: Any) -> None:
        if not self._working:
            self._working = gevent.spawn(self._measure)

    def stop(self, **_: Any) -> None:
        """Stop, by a person or because no worker remains: the results so far are written, then Locust goes on."""
        if self._working and gevent.getcurrent() is not self._working:
            self._master.stop()
            self._working.join()

    def _measure(self) -> None:
        status = FAULT
        try:
            experiment = load_experiment(self._folder / results.EXPERIMENT)
            points = expand(experiment)
            with results.claim(self._folder, experiment) as points_dir:
                executor = LiveExecutor(
                    points_dir, timeout_s=experiment.timeout_s, order=Order(tuple(points)), measure=self._master.measure
                )
                todo = results.unfinished(points_dir, points)
                if not todo:  # what was measured then says nothing about the server now
                    raise UserError(f"{self._folder} is finished; write a new plan to measure again.")
                failures = self._points(executor, todo)
                results.write_summary(self._folder, [point.id for point in points])
            status = status_of(failures)
        except UserError as error:
            log.error(error)
            status = BAD_INPUT
        finally:
            self._end(status)

    def _points(self, executor: LiveExecutor, todo: Sequence[LivePoint]) -> list[str]:
        """Measure them; return the reasons of the failed ones."""
        failures: list[str] = []
        with closing(executor.run(todo)) as outcomes:
            for outcome in outcomes:
                if outcome.status == "failed":
                    failures.append(outcome.reason)
                log.info("%s: %s %s", outcome.point.label, outcome.status, outcome.reason)
                if self._master.stopped:
                    break
        return failures

    def _end(self, status: int) -> None:
        environment, runner = self._environment, self._environment.runner
        assert runner is not None
        environment.process_exit_code = status
        options: Any = environment.parsed_options
        if options.headless:
            gevent.spawn(runner.quit)  # not from here: it waits for what this greenlet may be stopped by
        elif not self._master.stopped:
            runner.stop()


@events.init_command_line_parser.add_listener
def _options(parser: Any, **_: Any) -> None:
    parser.add_argument(
        "--rehearsal",
        metavar="DIR",
        include_in_web_ui=False,
        help="master: results directory of rehearse live --dry-run",
    )


@events.init.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    runner = environment.runner
    if isinstance(runner, WorkerRunner):
        worker = Worker(environment)
        environment.events.test_stop.add_listener(lambda **_: worker.stop())
        environment.events.quitting.add_listener(lambda **_: worker.stop())
        environment.events.report_to_master.add_listener(
            lambda data, **_: data.update(user_classes_count={Session.__name__: worker.on_line})
        )
    elif isinstance(runner, MasterRunner):
        options: Any = environment.parsed_options
        if options.rehearsal is None:
            log.error("the master needs --rehearsal DIR, which `rehearse live URL --out DIR --dry-run` writes.")
            sys.exit(BAD_INPUT)
        run = Run(environment, Path(options.rehearsal))
        environment.events.test_start.add_listener(run.start)
        environment.events.test_stopping.add_listener(run.stop)
    else:
        log.error("start it with --master or --worker; one process alone is `rehearse live URL`.")
        sys.exit(BAD_INPUT)
