"""Progress of long work: a bar on a terminal, otherwise a plain line for each point or part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rehearsal.harness.executors import Outcome

Show = Callable[[Outcome], None]
Watch = Callable[[float], None]
ShowParts = Callable[[str, int, int], None]


@contextmanager
def progress(total: int, finished: int) -> Iterator[tuple[Show, Watch | None]]:
    """Yields what to call with every outcome, and with how much is done of the points that run, where that is shown; an
    earlier run measured `finished` of `total` points."""
    console = Console(stderr=True)
    if finished:
        console.print(f"{finished} of {total} points are finished already", highlight=False)
    if finished < total:
        console.print(f"measuring {total - finished} points, once vLLM is loaded", highlight=False)
    if finished == total:
        yield lambda outcome: None, None
    elif console.is_terminal:
        yield from _bar(console, total, finished)
    else:
        yield _lines(console, total, finished), None


def _bar(console: Console, total: int, finished: int) -> Iterator[tuple[Show, Watch]]:
    columns = (
        TextColumn("points"),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.total}"),  # points, while the bar moves within them, too
        TextColumn("{task.fields[failed]} failed, {task.fields[left]} left,"),
        TimeRemainingColumn(),
        TextColumn("to go"),
    )
    # Points can take minutes, and the default looks back half a minute only.
    with Progress(*columns, console=console, speed_estimate_period=3600) as bar:
        task = bar.add_task(
            "points", total=total, completed=finished, done=finished, failed=0, left=total - finished
        )
        done, failed = finished, 0

        def show(outcome: Outcome) -> None:
            nonlocal done, failed
            done += 1
            if outcome.status == "failed":
                failed += 1
                bar.console.print(
                    f"failed: {outcome.point.label}: {outcome.reason}", style="red", highlight=False
                )
            bar.update(task, completed=done, done=done, failed=failed, left=total - done)

        def watch(under_way: float) -> None:
            bar.update(task, completed=done + under_way)

        yield show, watch


def _lines(console: Console, total: int, finished: int) -> Show:
    begin, done = time.monotonic(), 0

    def show(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        left = total - finished - done
        left_s = (time.monotonic() - begin) / done * left
        what = f"failed ({outcome.reason})" if outcome.status == "failed" else f"ok in {outcome.wall_s:.1f} s"
        line = f"[{finished + done}/{total}] {outcome.point.label}: {what}; {left} left, about {left_s:.0f} s"
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    return show


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
