"""Points in one job array of Slurm, by submitit: a task imports vLLM once and takes one point after the other.

The results directory is on a file system that the nodes share, as Slurm has them do: tasks publish their records there,
and say in the folder `slurm` beside them how far they are (`harness.executors.array_task`). It is removed at the end,
unless a task was lost, of which it has the logs.
"""

import shutil
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.executors import WATCH_S, Outcome, WorkerExecutor
from harness.executors.array_task import Array, State, claim_of, measure_claimed, read_state, write_array
from harness.executors.node import Task, give_up
from harness.experiments.experiment import Point
from harness.experiments.order import Order
from harness.records.record import MANIFEST, failed
from workloads.atomic_file import TEMPORARY
from workloads.errors import UserError
from workloads.optional import optional

MOST_TASKS = 64
"""[chosen] unless --jobs says otherwise: each loads vLLM."""
LOOK_S = 5.0
"""[chosen] between two questions to Slurm, whose controller serves everybody."""
STOP_S = 15.0
"""[chosen] that Slurm is given to end tasks."""
FOLDER, JOB = "slurm", "job"


def check(options: Mapping[str, str]) -> None:
    """UserError without submitit or Slurm, or when Slurm would not take a job with these options of sbatch."""
    optional("submitit", "slurm")
    if shutil.which("sbatch") is None:
        raise UserError(
            "--executor slurm: there is no sbatch on the PATH; run the command on a machine that submits to Slurm."
        )
    flags = [f"--{name}={value}" for name, value in options.items()]
    asked = _slurm("sbatch", "--test-only", *flags, "--wrap", "true")
    if asked.returncode != 0:
        raise UserError(
            f"--executor slurm: Slurm would not take the job ({_said(asked.stderr)}); mend its options."
        )


@dataclass(eq=False, kw_only=True)
class SlurmExecutor(WorkerExecutor):
    """Implements `Executor`. `options`: of sbatch, by their long names. `jobs`: tasks of the array, each with one
    point at a time; None: `MOST_TASKS` at most. The rest as of `LocalExecutor`.

    UserError when Slurm refuses the array or ends it early, a node has other code, or there is no room for a record.
    """

    options: Mapping[str, str]
    jobs: int | None

    def __post_init__(self) -> None:
        self.points_dir = self.points_dir.absolute()
        self._folder = self.points_dir.parent / FOLDER

    def run(self, points: Sequence[Point]) -> Generator[Outcome, None, None]:
        if not points:
            return
        self._end_left()
        order = self.order or Order(tuple(points))
        task = Task(self.work, order, self.timeout_s, self.preload)
        write_array(self._folder, Array(task, points, self.points_dir))
        tasks = self._submit(min(len(points), self.jobs or MOST_TASKS))
        waiting = {point.id: point for point in points}
        over = False
        try:
            yield from self._finished(waiting, tasks)
            over = True
            yield from self._lost(waiting, tasks, order)
        finally:
            self._end(tasks[0].job_id)
            if not (over and waiting):
                shutil.rmtree(self._folder, ignore_errors=True)

    def _submit(self, count: int) -> list[Any]:
        """Submitit's jobs, the tasks of one array; of a single task there is no array."""
        submitit = optional("submitit", "slurm")
        executor = submitit.SlurmExecutor(self._folder / "submitted", max_num_timeout=0)
        # No time unless the user gives one: the partition's own.
        executor.update_parameters(
            job_name="rehearsal", time=None, array_parallelism=count, additional_parameters=dict(self.options)
        )
        try:
            jobs = executor.map_array(measure_claimed, [self._folder] * count, range(count))
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            raise UserError(f"Slurm took no job array: {_said(str(error))}; mend the options.") from None
        (self._folder / JOB).write_text(_array(jobs[0].job_id))
        return jobs

    def _finished(self, waiting: dict[str, Point], tasks: list[Any]) -> Iterator[Outcome]:
        """What the tasks say has ended, removed from `waiting`; until that is empty, or no task is left."""
        looked, over = time.monotonic(), False
        while waiting:
            states = self._states(tasks)
            for state in states:
                if state.refused:
                    raise UserError(state.refused)
                for id, status, wall_s, reason in state.ended:
                    folder = self.points_dir / id if status == "ok" else failed(self.points_dir, id)
                    if id in waiting and (folder / MANIFEST).exists():  # it may become visible here later
                        yield Outcome(waiting.pop(id), status, folder, wall_s, reason)
            if self.watch:
                self.watch(sum(state.share for state in states if state.current in waiting))
            if over:
                return
            if time.monotonic() - looked > LOOK_S:
                over, looked = not _left(tasks[0].job_id), time.monotonic()
            time.sleep(WATCH_S)

    def _states(self, tasks: list[Any]) -> list[State]:
        return [read_state(self._folder, number) for number in range(len(tasks))]

    def _lost(self, waiting: dict[str, Point], tasks: list[Any], order: Order) -> Iterator[Outcome]:
        """What the array has left when it is over: points whose task was ended are failed, and kept in `waiting`."""
        states, begun = self._states(tasks), 0
        for point in waiting.values():
            claim = claim_of(self._folder, point)
            if claim is None:
                continue
            begun += 1
            task, state = tasks[claim.task], states[claim.task]
            reason = f"its job {task.job_id} on node {state.node} was ended: {_said(task.stderr())}"
            environment = {**order.facts(point), **state.environment}
            yield give_up(point, reason, environment, claim.since, self.points_dir)
        if begun < len(waiting):
            said = _said(next((text for task in tasks if (text := task.stderr())), None))
            raise UserError(
                f"Slurm ended the job array {_array(tasks[0].job_id)} before {len(waiting) - begun} points were begun "
                f"({said}); its logs are in {self._folder}, and what is finished stays."
            )

    def _end_left(self) -> None:
        """End the array of a run that was killed, and forget it."""
        if (self._folder / JOB).exists():
            self._end((self._folder / JOB).read_text())
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, job_id: str) -> None:
        """Have nothing left that runs or waits, or of a point that did."""
        limit = time.monotonic() + STOP_S
        if _left(job_id):
            _slurm("scancel", _array(job_id))
            while _left(job_id) and time.monotonic() < limit:
                time.sleep(WATCH_S)
        for draft in self.points_dir.glob(f"{TEMPORARY}*"):
            shutil.rmtree(draft, ignore_errors=True)


def _array(job_id: str) -> str:
    return job_id.partition("_")[0]


def _left(job_id: str) -> bool:
    """Whether Slurm still has a task of the array that runs or waits; if it does not answer, yes."""
    asked = _slurm("squeue", "--noheader", "--array", "--jobs", _array(job_id), "--format", "%i")
    return bool(asked.stdout.strip()) or (asked.returncode != 0 and "Invalid job id" not in asked.stderr)


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True)


def _said(text: str | None) -> str:
    """What Slurm says became of a job, or else the last error or line in it, without who says it."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    for mark in ("***", "error: ", ""):
        if chosen := [line for line in lines if mark in line]:
            return chosen[-1].rpartition("error: ")[2].strip("* .")
    return "nothing was said"
