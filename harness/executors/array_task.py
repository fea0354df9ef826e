"""A task of Slurm's job array: it claims points in the folder of the array, which all tasks share, one after the other.

    task.pickle         what every task is told
    claims/ID           who has the point: the number of a task
    tasks/NUMBER.json   how the task's points ended, how much of the current one is done, and where it runs

A task that Slurm begins again elsewhere, as its node was lost, goes on with the point that it had.
"""

import pickle
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from harness.executors.node import Task
from harness.experiments.experiment import Point
from harness.experiments.order import load_average
from harness.records.record import write_json
from workloads.errors import UserError

TOLD, CLAIMS, TASKS = "task.pickle", "claims", "tasks"


@dataclass(frozen=True)
class Array:
    """What a task reads: `points` are those to be measured, into `points_dir`."""

    task: Task
    points: Sequence[Point]
    points_dir: Path


class State(BaseModel):
    """What a task says of itself. `refused`: why the run has to end."""

    node: str = ""
    environment: dict[str, Any] = {}
    ended: list[tuple[str, Literal["ok", "failed"], float, str]] = []
    """Id of the point, status, wall_s, reason."""
    current: str = ""
    share: float = 0.0
    refused: str = ""


def write_array(folder: Path, array: Array) -> None:
    for name in (CLAIMS, TASKS):
        (folder / name).mkdir(parents=True)
    (folder / TOLD).write_bytes(pickle.dumps(array))


def read_state(folder: Path, number: int) -> State:
    """Reads a task's state, which is empty where it has not begun."""
    try:
        return State.model_validate_json((folder / TASKS / f"{number}.json").read_bytes())
    except FileNotFoundError:
        return State()


def measure_claimed(folder: Path, number: int) -> None:
    """Entry of a task."""
    # submitit ignores SIGTERM, and ends on SIGUSR2, which comes before the time is up: neither is of use here.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    state = read_state(folder, number).model_copy(update={"node": socket.gethostname(), "share": 0.0})
    told: Array = pickle.loads((folder / TOLD).read_bytes())

    def say(**changes: Any) -> None:
        nonlocal state
        state = state.model_copy(update=changes)
        write_json(folder / TASKS / f"{number}.json", state.model_dump())

    local = told.task.executor(told.points_dir, lambda share: say(share=share))
    refusal = told.task.refusal()
    if refusal:
        say(refused=f"node {state.node} {refusal}; install the same Rehearsal on every node.")
        return
    say(environment={**local.environment, "load_average": load_average()})
    over = {id for id, *_ in state.ended}
    for point in told.points:
        if point.id in over or not _claimed(folder, point, number):
            continue
        say(current=point.id)
        try:
            (outcome,) = local.run([point])
        except UserError as error:
            say(refused=str(error))
            return
        end = (point.id, outcome.status, outcome.wall_s, outcome.reason)
        say(ended=[*state.ended, end], current="", share=0.0)


@dataclass(frozen=True)
class Claim:
    """By the task of this number, at that time."""

    task: int
    since: datetime


def claim_of(folder: Path, point: Point) -> Claim | None:
    """Whose `point` is, or was."""
    path = folder / CLAIMS / point.id
    with suppress(FileNotFoundError, ValueError):  # the latter while it is being written
        return Claim(int(path.read_text()), datetime.fromtimestamp(path.stat().st_mtime, UTC))
    return None


def _claimed(folder: Path, point: Point, number: int) -> bool:
    try:
        with (folder / CLAIMS / point.id).open("x") as file:  # one of all tasks succeeds, also over NFS
            file.write(str(number))
    except FileExistsError:
        claim = claim_of(folder, point)
        return claim is not None and claim.task == number
    return True
