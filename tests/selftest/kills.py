"""Commands that are disturbed: a table of what each leaves in its folder, and of its bytes once it is run again.

    python -m tests.selftest.kills FOLDER                  every row
    python -m tests.selftest.kills FOLDER --only "kill -9"  the rows with these words
    python -m tests.selftest.kills FOLDER --random 30       a sweep that is killed at 30 random moments

Each command is let through once. Then it is disturbed at a moment that its folder shows, such as the first finished
point, so that the speed of the machine does not matter, and run again. A row is good if no process was left after
`LEAVE_S`, if what was finished is kept as it was, and if the end has the same bytes; the exit status is 1 if a row is
not.

The full disk and the read-only folder need root, for a file system of their own. The clock needs a C compiler.
"""

from __future__ import annotations

import contextlib
import random as draws
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer

from harness.live.null_server.null_server import NullServer
from tests.selftest.commands import Command, Started, commands, files, of_clock, running

LEAVE_S = 1.0
"""Within which every process is to be gone: [chosen]."""
_POLL_S = 0.01
_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    const char *file = getenv("SET_BACK");
    if (!failed && id == CLOCK_REALTIME && file && !access(file, F_OK)) at->tv_sec -= 3600;
    return failed;
}
"""
"""The wall clock, an hour back once a file is there. libfaketime would also move timers on the monotonic clock."""
_DISK = "64m"
HEAD = ("what happens", "when", "command", "status", "left in the folder", "run again", "bytes")

Moment = Callable[[Started], bool]


def there(pattern: str) -> Moment:
    """The moment at which the folder has such a file."""
    return lambda started: next(started.out.glob(pattern), None) is not None


def busy(seconds: float) -> Moment:
    """The moment at which the command has used the processor for so long."""
    return lambda started: started.busy_s >= seconds


LOADING, RUNNING, FINISHED, REPORTING = (
    ("vLLM loads", there("**/experiment.json")),
    ("a point runs", there("**/points/.tmp-*")),
    ("a point is finished", there("**/points/[!.]*")),
    ("figures are written", there("**/figures/*")),
)
STARTING = ("after 0.5 s of its processor", busy(0.5))


class NotRun(Exception):
    """A row that this machine cannot do, and why."""


@dataclass
class Case:
    """A disturbed command: `act` has its way with it and returns its status. `around`: what holds from before its start
    until it is run again. `resumed`: whether it is run again."""

    what: str
    when: tuple[str, Moment]
    command: str
    act: Callable[[Started], int]
    around: Callable[[Path], contextlib.AbstractContextManager[Disk]] | None = None
    environment: Callable[[Path], dict[str, str]] = lambda out: {}
    resumed: bool = True

    @property
    def title(self) -> str:
        return f"{self.what} | {self.when[0]} | {self.command}"


@dataclass
class Whole:
    """What an undisturbed run of a command ended with."""

    status: int
    result: dict[str, bytes]
    files: dict[str, bytes]


@dataclass
class Table:
    """The rows, each printed as it comes."""

    folder: Path
    commands: dict[str, Command]
    whole: dict[str, Whole] = field(default_factory=dict)
    good: int = 0
    rows: int = 0

    def undisturbed(self, name: str) -> Whole:
        if name not in self.whole:
            command, out = self.commands[name], self.folder / name
            for source in command.inputs.values():
                self.undisturbed(str(source.relative_to(self.folder)))
            command.prepare(out)
            started = command.start(out)
            status = started.end()
            if command.virtual and status != 0:
                raise RuntimeError(f"{name} ended with status {status}: {started.said}")
            self.whole[name] = Whole(status, command.result(started), files(out))
        return self.whole[name]

    def row(self, case: Case) -> None:
        command, whole = self.commands[case.command], self.undisturbed(case.command)
        out = self.folder / case.command
        command.prepare(out)
        self.rows += 1
        try:
            with case.around(out) if case.around else contextlib.nullcontext(Disk()) as disk:
                started = command.start(out, environment=case.environment(out))
                status = case.act(started)
                left = gone(started.process.pid)
                said, before, what = started.said, files(out), inside(out)
                disk.mend()
                if case.resumed:
                    started = command.start(out, resume=True)
                    again = started.end()
                else:
                    again = status
                result, now = command.result(started), files(out)
                halves = [name for name in now if ".tmp-" in name]
        except NotRun as reason:
            print(f"| {case.title} | not run: {reason} | | | |", flush=True)
            return
        differing = sorted(
            name for name in whole.result.keys() | result.keys() if whole.result.get(name) != result.get(name)
        )
        lost = [name for name, data in before.items() if finished(name) and now.get(name) != data]
        same_end = again == whole.status if command.virtual else again in (0, 1, 3)
        self.good += not (left or differing or lost or halves) and same_end
        both = [name for name in now if of_clock(name) and name in whole.files]
        clock = sorted({Path(name).name for name in both if now[name] != whole.files[name]})
        text = f"{len(whole.result) - len(differing)} of {len(whole.result)} the same"
        text += f"; with times: {' '.join(clock)}" if clock else ""
        for fault, names in (("differs", differing), ("lost", lost), ("half", halves)):
            text += "".join(f"; {fault}: {name}" for name in names[:3])
        processes = f"; {len(left)} PROCESSES LEFT" if left else ""
        last = said.strip().splitlines()[-1][:90] if said.strip() and status not in (-9, 0) else ""
        shown = f"{status}{processes}" + (f": {last}" if last else "")
        print(f"| {case.title} | {shown} | {what} | {again if case.resumed else '–'} | {text} |", flush=True)


def finished(name: str) -> bool:
    """Whether a file belongs to a finished point."""
    parts = Path(name).parts
    if "points" not in parts[:-2]:
        return False
    point = parts[parts.index("points") + 1]
    return not point.startswith(".") and not point.endswith(".failed")


def inside(out: Path) -> str:
    """What a folder of results holds, in words."""
    points = [path.name for path in out.glob("**/points/*")]
    half = sum(name.startswith(".") for name in points)
    failed = sum(name.endswith(".failed") for name in points)
    counts = {"finished": len(points) - half - failed, "failed": failed, "begun": half}
    told = [f"{count} {word}" for word, count in counts.items() if count]
    names = ("summary.json", "search.json", "verdict.json", "report.html")
    told += [name for name in names if next(out.glob(f"**/{name}"), None)]
    return ", ".join(told) or ("nothing" if not files(out) else "no point")


def gone(session: int) -> set[int]:
    """The processes of a command that are still there `LEAVE_S` after its end."""
    begin = time.monotonic()
    left = running(session)
    while left and time.monotonic() < begin + LEAVE_S:
        time.sleep(_POLL_S)
        left = running(session)
    return left


# What happens to a command.


def at(moment: tuple[str, Moment], do: Callable[[Started], None]) -> Callable[[Started], int]:
    """Do it at the moment, and return the status that the command ends with."""

    def act(started: Started) -> int:
        try:
            if not started.until(moment[1]):
                raise NotRun(f"it ended before: {started.said[-200:]}")
            do(started)
            return started.end()
        finally:
            if started.process.poll() is None:
                started.process.kill()
                started.process.wait()

    return act


def kill(started: Started) -> None:
    started.process.kill()


def interrupt_twice(started: Started) -> None:
    """As a held key does, and as a second thought."""
    started.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    if started.process.poll() is None:
        started.process.send_signal(signal.SIGINT)


def fork_server(started: Started) -> psutil.Process:
    """The process that workers are forked from."""
    for child in psutil.Process(started.process.pid).children():
        if any("forkserver" in word for word in child.cmdline()):
            return child
    raise NotRun("no process that workers are forked from")


def kill_worker(started: Started) -> None:
    """As the kernel does when memory is out."""
    workers = fork_server(started).children()
    if not workers:
        raise NotRun("the point was quicker")
    workers[0].kill()


def starve_worker(started: Started) -> None:
    """A worker that gets no more memory."""
    workers = fork_server(started).children()
    if not workers:
        raise NotRun("the point was quicker")
    had = workers[0].memory_info().vms
    workers[0].rlimit(psutil.RLIMIT_AS, (had, had))


def kill_fork_server(started: Started) -> None:
    fork_server(started).kill()


def to_its_end(started: Started) -> int:
    return started.end()


def set_back(started: Started) -> None:
    """The wall clock, by an hour; as where it is adjusted, not the monotonic clock."""
    _clock_file(started.out).touch()


def _clock_file(out: Path) -> Path:
    return out.with_name("set-back")


def adjustable(out: Path) -> dict[str, str]:
    """The environment of a command whose clock can be set back."""
    source, library = out.with_name("clock.c"), out.with_name("clock.so")
    source.write_text(_CLOCK)
    if shutil.which("cc") is None:
        raise NotRun("no C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    _clock_file(out).unlink(missing_ok=True)
    return {"LD_PRELOAD": str(library), "SET_BACK": str(_clock_file(out))}


@dataclass
class Disk:
    """A file system of its own under a folder, if there is one."""

    path: Path | None = None

    def mend(self) -> None:
        """Room again, for the user to write to."""
        if self.path is not None:
            _mount("-o", f"remount,rw,size={_DISK}", self.path)


@contextlib.contextmanager
def disk(out: Path, options: str) -> Iterator[Disk]:
    out.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", options, "tmpfs", out)
    try:
        yield Disk(out)
    finally:
        subprocess.run(["umount", "--lazy", out], check=True)
        out.rmdir()


def _mount(*words: str | Path) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    if done.returncode:
        raise NotRun(done.stderr.strip())


def cases(table: Table) -> Iterable[Case]:
    """The rows in their order."""
    moments = [
        *(("sweep", when) for when in (LOADING, RUNNING, FINISHED, REPORTING)),
        *(("find", when) for when in (FINISHED, REPORTING)),
        *(("live", when) for when in (RUNNING, FINISHED)),
        ("report", REPORTING),
        ("claims", STARTING),
        ("compare", STARTING),
        ("nightly", FINISHED),
    ]
    for command, when in moments:
        yield Case("kill -9", when, command, at(when, kill))
    for command in ("sweep", "live"):
        yield Case("SIGINT twice", RUNNING, command, at(RUNNING, interrupt_twice))

    def second(started: Started) -> None:
        """Another run of the same command in the folder, which is to be refused."""
        other = table.commands["sweep"].start(started.out, log="second")
        status = other.end()
        if status != 2 or "another run" not in other.said:
            raise RuntimeError(f"the second run ended with status {status}: {other.said}")

    yield Case("a second run (status 2)", RUNNING, "sweep", at(RUNNING, second), resumed=False)
    start = ("from its start", lambda started: True)
    yield Case("a read-only folder", start, "sweep", to_its_end, around=lambda out: disk(out, f"ro,size={_DISK}"))

    def too_small(out: Path) -> contextlib.AbstractContextManager[Disk]:
        whole = table.undisturbed("sweep").files
        pages = sum(-(-len(data) // 4096) for name, data in whole.items() if name.startswith("points"))
        return disk(out, f"size={pages * 3}k")  # three quarters

    yield Case("a full disk", ("at the second point", start[1]), "sweep", to_its_end, around=too_small)
    for command, when in (("sweep", FINISHED), ("live", FINISHED)):
        yield Case("the clock goes back 1 h", when, command, at(when, set_back), environment=adjustable, resumed=False)
    yield Case("a worker is killed (memory)", RUNNING, "sweep", at(RUNNING, kill_worker))
    yield Case("a worker gets no more memory", RUNNING, "sweep", at(RUNNING, starve_worker))
    yield Case("what forks workers is killed", RUNNING, "sweep", at(RUNNING, kill_fork_server))


def random_moments(table: Table, kills: int, seed: int) -> None:
    """A sweep that is killed at moments drawn from the time that the undisturbed one took."""
    begin, draw = time.monotonic(), draws.Random(seed)
    table.undisturbed("sweep")
    lasts_s = time.monotonic() - begin
    for _ in range(kills):
        moment_s = draw.uniform(0, lasts_s)
        when = (f"after {moment_s:.1f} s", lambda started, s=moment_s: time.monotonic() > started.begin + s)
        table.row(Case("kill -9", when, "sweep", at(when, kill)))


def main(
    folder: Path,
    only: Annotated[list[str] | None, typer.Option(help="Rows with these words; may be given again.")] = None,
    random: Annotated[int, typer.Option(help="Kill a sweep at so many random moments instead.")] = 0,
    seed: Annotated[int, typer.Option(help="Draws the moments.")] = 0,
) -> None:
    """Disturb commands in FOLDER, and run each again to its end."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with NullServer("voice", folder) as server:
        table = Table(folder, commands(folder, server.url))
        print("|".join(["", *(f" {head} " for head in HEAD), ""]))
        print("|---" * len(HEAD) + "|", flush=True)
        if random:
            random_moments(table, random, seed)
        for words in () if random else only or [""]:
            for case in cases(table):
                if words in case.title:
                    table.row(case)
    print(f"{table.good} of {table.rows} rows are good, after {(time.monotonic() - begin) / 60:.0f} minutes")
    raise typer.Exit(0 if table.good == table.rows else 1)


if __name__ == "__main__":
    typer.run(main)
