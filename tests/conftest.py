"""Loaded before any test, so torch keeps to the one thread that engines ask for: it reads this once."""

import atexit
import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import settings

from harness.clocks.ctrl_c import SIGNALS

os.environ.setdefault("OMP_NUM_THREADS", "1")
if "REHEARSAL_CACHE" not in os.environ:  # else a worker of the command that made one
    os.environ["REHEARSAL_CACHE"] = tempfile.mkdtemp(prefix="rehearsal-cache-")
    atexit.register(shutil.rmtree, os.environ["REHEARSAL_CACHE"], ignore_errors=True)
# A shell that runs the suite in the background has it ignore Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = {number: signal.getsignal(number) for number in SIGNALS}
# How long an example takes is the machine's affair.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests of servers and of other programs wait most of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports make millions of objects and drop few: a quarter of the time went into looking for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else libraries complain at the end about what they find left


@pytest.fixture(autouse=True, scope="session")
def _same_users_each_time() -> Iterator[None]:
    """`rehearse live` draws other users for each run; within a test process they are those of one seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.randbelow", lambda below: 0)
        yield


LONGEST = (
    "tests/test_install.py",
    "tests/harness/executors/test_ray.py",
    "tests/examples/test_examples.py",
    "tests/calibration/test_fidelity_gate.py",
    "tests/engines/test_fast_paths.py",
    "tests/cli/test_find.py",
    "tests/cli/test_nightly.py",
    "tests/live/test_locust.py",
    "tests/live/test_foreign.py",
    "tests/reports/test_live.py",
    "tests/cli/test_live.py",
)
"""[chosen] of the files with slow tests: they install a wheel, start other programs, play whole searches, or take more
than 25 s of CPU [measured]."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests begin first, the longest before all: whoever begins one at the end is waited for."""
    place = {file: i for i, file in enumerate(LONGEST)}
    marked = {item: mark for item in items if (mark := item.get_closest_marker("slow"))}
    if unsaid := [item.nodeid for item, mark in marked.items() if not mark.args]:
        raise pytest.UsageError(f'{unsaid[0]}: say why, as in pytest.mark.slow("runs a model on the CPU")')
    slow = {_file(item) for item in marked}
    items.sort(key=lambda item: place.get(_file(item), len(place)) if _file(item) in slow else len(place) + 1)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


Rehearse = Callable[..., tuple[int, str, str]]


_commands = functools.cache(typer.main.get_command)
"""Typer builds them anew for each call, which takes four times as long as to refuse one."""


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Undo what a command in this process does for good: to a later test its handler of signals would be fatal."""
    yield
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture
def rehearse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Rehearse]:
    """Runs a command in an empty directory; returns exit status, stdout and stderr."""
    from reports import cli
    from reports.cli.app import NAMES, build

    for name in NAMES:  # before a test replaces one of the commands
        build((name,))
    monkeypatch.setattr(typer.main, "get_command", _commands)
    monkeypatch.setattr("sys.unraisablehook", sys.unraisablehook)
    monkeypatch.chdir(tmp_path)

    def rehearse(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["rehearse", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        out, err = capsys.readouterr()
        return end.value.code, out, err

    yield rehearse


def render_nothing(patch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn and not rendered, which takes most of the time of a page; their files hold their names."""

    def save(picture: Any, folder: Path, pdf: bool) -> str:
        svg = f'<svg viewBox="0 0 1 1"><desc>{picture.name}</desc></svg>'
        for suffix in ("svg", "pdf") if pdf else ("svg",):
            (folder / f"{picture.name}.{suffix}").write_text(svg)
        return svg

    patch.setattr("reports.figures.svg.save", save)
    patch.setattr("reports.figures.svg.cores", lambda: 1)
    patch.setattr("reports.figures.svg.phone", lambda picture: '<svg viewBox="0 0 1 1"></svg>')


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    render_nothing(monkeypatch)
