"""Measuring points from the command line: resume, progress, Ctrl-C, and what to do with the results."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiment import Experiment, Point
    from harness.results import Collection


def measure_points(
    owner: Experiment | Collection,
    points: list[Point],
    out: Path,
    jobs: int,
    timeout_s: float,
    present: Callable[[list[dict[str, Any]]], None],
    order_seed: int | None = None,
) -> bool:
    """Run the points that are not finished in `out`, then `present` the summary; True if any point failed.

    `order_seed`: run them in the order that it gives; None: as they stand.

    UserError without vLLM, which workers need.
    """
    from engines.registry import REAL_DEVICES
    from harness import results
    from harness.measure import measure
    from harness.order import shuffled
    from harness.workers import LocalExecutor
    from reports.cli.progress import progress

    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "a run needs vLLM, which is not installed; run `make` in a checkout, or install rehearsal[cpu]."
        )
    with results.claim(out, owner) as points_dir:
        ids = results.ids(out, points)
        order = shuffled(points, order_seed)
        todo = results.unfinished(points_dir, order.points)
        spawn = any(point.device in REAL_DEVICES for point in points)
        executor = LocalExecutor(
            points_dir, measure, jobs=jobs, timeout_s=timeout_s, order=order, spawn=spawn
        )
        with (
            _stoppable(out, ids, points),
            progress(len(points), len(points) - len(todo)) as show,
            contextlib.closing(executor.run(todo)) as outcomes,
        ):
            for outcome in outcomes:
                show(outcome)
        rows = results.write_summary(out, ids)
        present(rows)
    asked = {point.id for point in points}
    return any(row["status"] == "failed" for row in rows if row["point"] in asked)


@contextlib.contextmanager
def _stoppable(out: Path, ids: list[str], points: list[Point]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run with what is finished kept, and one sentence."""
    from harness import results

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        asked = {point.id for point in points}
        rows = results.write_summary(out, ids)
        finished = sum(row["status"] == "ok" for row in rows if row["point"] in asked)
        sentence = (
            f"Stopped with {finished} of {len(points)} points finished; run the same command again to resume."
        )
        typer.echo(sentence, err=True)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
