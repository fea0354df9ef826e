"""Progress of long work: a bar on a terminal, otherwise a plain line for each point or part."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.executors import Outcome
from harness.experiments.experiment import Point
from reports.cli.time_left import TimeLeft

MINUTES_S = 600
"""From which on what is left is told in minutes. [chosen]"""

Show = Callable[[Outcome], None]
Watch = Callable[[float], None]
ShowParts = Callable[[str, int, int], None]


@contextmanager
def progress(todo: Sequence[Point], finished: int, jobs: int | None) -> Iterator[tuple[Show, Watch | None]]:
    """Yields what to call with every outcome, and with how much is done of the points that run, where that is shown;
    an earlier run measured `finished` points beside those of `todo`. `jobs`: of them at a time, None: not known."""
    console, total, left = Console(stderr=True), finished + len(todo), TimeLeft(todo, jobs)
    if finished:
        console.print(f"{finished} of {total} points are finished already", highlight=False)
    if finished < total:
        console.print(f"measuring {total - finished} points, once vLLM is loaded", highlight=False)
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
            "points",
            total=total,
            completed=finished,
            done=finished,
            failed=0,
            left=total - finished,
            about="",
        )
        begin, done, failed = time.monotonic(), finished, 0

        def show(outcome: Outcome) -> None:
            nonlocal done, failed
            done += 1
            if outcome.status == "failed":
                failed += 1
                bar.console.print(
                    f"failed: {outcome.point.label}: {outcome.reason}", style="red", highlight=False
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
        what = f"failed ({outcome.reason})" if outcome.status == "failed" else f"ok in {outcome.wall_s:.1f} s"
        line = f"[{finished + done}/{total}] {outcome.point.label}: {what}; {left} left{about}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    return show


def _about(seconds: float | None) -> str:
    """What is left, to follow how many points are."""
    if seconds is None:
        return ""
    return f", about {seconds:.0f} s" if seconds < MINUTES_S else f", about {seconds / 60:.0f} min"


@contextmanager
def parts() -> Iterator[ShowParts]:
    """Yields what to call with a part's name, how much of it is done and how much there is: a bar for each part, or a
    line where one begins and where it ends."""
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
