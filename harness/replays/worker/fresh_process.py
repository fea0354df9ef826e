"""Work in a process of its own that has done nothing before and ends with its starter."""

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from harness.replays.worker.isolation import die_with_starter, send_output_to
from workloads.errors import UserError

Result = TypeVar("Result")
Show = Callable[[str, int, int], None]
"""Called with what is being done, and how many of how many parts are done."""


class FreshProcessFailed(RuntimeError):
    """A failure of the work that is not the user's mistake. The message is its traceback, or how its process ended."""


def in_fresh_process(log: Path, work: Callable[..., Result], *arguments: Any, show: Show | None = None) -> Result:
    """Run `work(*arguments)` in a spawned process; its output goes to `log`.

    With `show`, `work` gets a `Show` as its last argument, for progress. UserError where it says that the machine
    cannot do it, else FreshProcessFailed.
    """
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(theirs, log, work, arguments, show is not None), name=work.__name__)
    worker.start()
    theirs.close()
    try:
        while (message := mine.recv())[0] == "part":
            assert show is not None
            show(*message[1])
        worker.join(timeout=60)  # it has still to end
    except EOFError:
        worker.join()
        last = log.read_text().strip().splitlines()[-1:] if log.exists() else []
        ended = f"it ended with status {worker.exitcode} and no result"
        raise FreshProcessFailed(": ".join([ended, *last])) from None
    finally:
        mine.close()
        worker.kill()
        worker.join()
    kind, content = message
    if kind == "mistake":
        raise UserError(content)
    if kind == "failed":
        raise FreshProcessFailed(content)
    return content


def _work(pipe: Connection, log: Path, work: Callable[..., Any], arguments: tuple[Any, ...], shows: bool) -> None:
    die_with_starter()
    send_output_to(log)

    def show(*part: Any) -> None:
        pipe.send(("part", part))

    try:
        pipe.send(("done", work(*arguments, *([show] if shows else []))))
    except UserError as error:
        pipe.send(("mistake", str(error)))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
