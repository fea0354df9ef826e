"""Progress of long work: a bar on a terminal, otherwise a plain line for each point or part; and how long a run will go
on, from how long its first points took: points differ by their engine and their users."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.experiments.point import Point
from harness.experiments.run_order import Outcome
from reports.cli.outcomes import announce, outcome_text
from workloads.errors import printable

MINUTES_S = 600
"""Remaining time from which it is shown in minutes. [chosen]"""
SYSTEM = 2.0
"""Time of a system's point over that of a plain engine's point of the same size, until both are known: its policy looks
at every request in every step (bench: 1.8). [chosen]"""

Show = Callable[[Outcome], None]
Watch = Callable[[float], None]
ShowParts = Callable[[str, int, int], None]


class TimeLeft:
    """Estimates the time left of `points` that are to be measured, `jobs` at a time (None: as many as are seen to
    run).
    """

    def __init__(self, points: Iterable[Point], jobs: int | None) -> None:
        self._jobs = jobs
        self._left = {point.id: point for point in points}
        self._middle = median(map(size, self._left.values())) if self._left else 1.0
        self._taken_s: dict[str, float] = defaultdict(float)
        self._sizes: dict[str, float] = defaultdict(float)
        self._weight = 0.0

    def ended(self, outcome: Outcome) -> None:
        """Count a finished point; the time of a failed point does not predict others."""
        point = outcome.point
        self._left.pop(point.id, None)
        if outcome.status == "ok":
            self._taken_s[point.engine] += outcome.wall_s
            self._sizes[point.engine] += self._share(point)
            self._weight += self._share(point) * factor(point.engine)

    def seconds(self, elapsed_s: float, under_way: float = 0.0) -> float | None:
        """Return the time left, s; None before a point was measured. `elapsed_s`: since the run began; `under_way`: the
        share done of the points that run, 1 for a whole one."""
        if not self._weight:
            return None
        expected = [self._expected_s(point) for point in self._left.values()]
        if not expected:
            return 0.0
        at_once = self._jobs or max(1.0, sum(self._taken_s.values()) / elapsed_s)
        share = 1 - min(under_way, len(expected)) / len(expected)
        return share * max(sum(expected) / at_once, max(expected) if under_way == 0 else 0.0)

    def _expected_s(self, point: Point) -> float:
        """Return the expected seconds of a point by its engine's finished points, else by all finished points."""
        if point.engine in self._sizes:
            return self._share(point) * self._taken_s[point.engine] / self._sizes[point.engine]
        return self._share(point) * factor(point.engine) * sum(self._taken_s.values()) / self._weight

    def _share(self, point: Point) -> float:
        """Return the expected time over that of the middle point. [chosen] Any point takes half of the middle point's
        time, however small."""
        return (1 + size(point) / self._middle) / 2


def size(point: Point) -> float:
    """Return the size that a point's time grows with: turns, or seconds of calls without pause; 1 if its parameters
    do not show it."""
    users = next((point.params[name] for name in ("sessions", "requests") if point.params.get(name)), 1)
    each = next((point.params[name] for name in ("turns", "rounds", "duration_s") if point.params.get(name)), 1)
    return float(str(users)) * float(str(each))


def factor(engine: str) -> float:
    """Return the expected time of an engine's point over that of a plain engine's point."""
    from engines.registry import beside_baselines

    return SYSTEM if engine in beside_baselines() else 1.0


@contextmanager
def progress(todo: Sequence[Point], finished: int, jobs: int | None) -> Iterator[tuple[Show, Watch | None]]:
    """Yields a callback for every outcome, and one for the progress of running points if that is shown; an earlier
    run measured `finished` points besides those of `todo`. `jobs`: points at a time; None: unknown."""
    console, total, left = Console(stderr=True), finished + len(todo), TimeLeft(todo, jobs)
    announce(console, finished, total, "once vLLM is loaded")
    if finished == total:
        yield lambda outcome: None, None
    elif console.is_terminal:
        yield from _bar(console, total, finished, left)
    else:
        yield _lines(console, total, finished, left), None


def _bar(console: Console, total: int, finished: int, time_left: TimeLeft) -> Iterator[tuple[Show, Watch]]:
    columns = (
        TextColumn("points"),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.total}"),  # points, while the bar moves within them, too
        TextColumn("{task.fields[failed]} failed, {task.fields[left]} left{task.fields[about]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(
            "points", total=total, completed=finished, done=finished, failed=0, left=total - finished, about=""
        )
        begin, done, failed = time.monotonic(), finished, 0

        def show(outcome: Outcome) -> None:
            nonlocal done, failed
            done += 1
            if outcome.status == "failed":
                failed += 1
                bar.console.print(
                    f"failed: {outcome.point.label}: {printable(outcome.reason)}", style="red", highlight=False
                )
            time_left.ended(outcome)
            bar.update(task, completed=done, done=done, failed=failed, left=total - done)

        def watch(under_way: float) -> None:
            about = _about(time_left.seconds(time.monotonic() - begin, under_way))
            bar.update(task, completed=done + under_way, about=about)

        yield show, watch


def _lines(console: Console, total: int, finished: int, time_left: TimeLeft) -> Show:
    begin, done = time.monotonic(), 0

    def show(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        time_left.ended(outcome)
        left, about = total - finished - done, _about(time_left.seconds(time.monotonic() - begin))
        line = f"[{finished + done}/{total}] {outcome_text(outcome, 1)}; {left} left{about}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    return show


def _about(seconds: float | None) -> str:
    """Return the time left as text, to follow the number of points."""
    if seconds is None:
        return ""
    return f", about {seconds:.0f} s" if seconds < MINUTES_S else f", about {seconds / 60:.0f} min"


@contextmanager
def parts() -> Iterator[ShowParts]:
    """Yields a callback with a part's name, its finished amount and its total: a bar for each part, or a line at its
    begin and end."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last: list[str] = []

        def lines(what: str, done: int, total: int) -> None:
            if last[-1:] != [what] or done == total:
                last.append(what)
                console.print(f"{what}: {done} of {total}", highlight=False)

        yield lines
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, speed_estimate_period=3600) as bar:
        tasks = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield show
