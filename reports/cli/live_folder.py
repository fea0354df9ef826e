"""Folders of live runs: one for each run, named by its time, and a link to the latest one."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reports.cli.measuring import recorded
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment

OUT = Path("results/live")
LATEST = "latest"
TIME = "%Y-%m-%dT%H-%M-%SZ"
"""UTC; names sort by it."""


def of_target(url: str) -> Path:
    """The folder with all runs of one server."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme in ("wss", "https") else 80)
    return OUT / re.sub(r"[^A-Za-z0-9._-]", "-", f"{parts.hostname or 'server'}-{port}")


def earlier(url: str, out: Path | None) -> tuple[Path, Experiment]:
    """Return the run that `--resume` continues; UserError if there is none."""
    from harness.experiments.experiment import load_experiment
    from harness.records.results import EXPERIMENT

    folder = out
    if folder is None:
        link = of_target(url) / LATEST
        name = os.readlink(link) if link.is_symlink() else ""
        if not name or Path(name).name != name:  # a link that leads elsewhere is not ours
            raise UserError(f"there is no run of {url} in {link.parent} to resume; leave --resume out.")
        folder = link.parent / name
    if not (folder / EXPERIMENT).is_file():
        raise UserError(f"there is no run in {folder} to resume; leave --resume out.")
    return folder, load_experiment(folder / EXPERIMENT)


def check_same(folder: Path, stored: Experiment, asked: Experiment, search: bool) -> None:
    """UserError where a command asks for something else than the run that it is to resume. A search may go on to other
    loads, and any run may get more repeats."""
    from harness.live.live_experiment import asked as words
    from harness.live.live_experiment import ends, of_the_load

    def settled(experiment: Experiment) -> tuple[object, ...]:
        settings = {name: experiment.set[name] for name in experiment.set.keys() - of_the_load(experiment)}
        load = () if search else (experiment.grid, ends(experiment))
        return (experiment.workload, experiment.label, settings, *load)

    if settled(stored) != settled(asked) or not {*stored.seeds} <= {*asked.seeds}:
        raise UserError(
            f"{folder} was measured with {words(stored)}{f' --label {stored.label}' if stored.label else ''}; "
            "resume it with the same options, or leave --resume out to measure again."
        )


@contextlib.contextmanager
def new_folder(url: str) -> Iterator[Path]:
    """A folder of its own for a run, to which `latest` leads from now on. It goes if nothing can be measured."""
    parent = of_target(url)
    link = parent / LATEST
    before = os.readlink(link) if link.is_symlink() else None
    folder = _made(parent)
    _lead(link, folder.name)
    try:
        yield folder
    except UserError:
        if not recorded(folder):
            shutil.rmtree(folder, ignore_errors=True)
            if before is None:
                link.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # other runs are there
                    parent.rmdir()
                    OUT.rmdir()
            else:
                _lead(link, before)
        raise


def _made(parent: Path) -> Path:
    """UserError where it cannot be written."""
    from workloads.atomic_file import cannot_write

    name = datetime.now(UTC).strftime(TIME)
    for again in range(100):  # several in one second
        folder = parent / (f"{name}-{again + 1}" if again else name)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not parent.is_dir():
                raise UserError(f"{parent} is a file; give another folder with --out.") from None
            continue
        except OSError as error:
            raise cannot_write(folder, error) from None
        return folder
    raise UserError(f"{parent} has 100 runs of this second; give another folder with --out.")


def _lead(link: Path, name: str) -> None:
    """Replace the link in one step: readers see the old run or the new one."""
    if link.exists() and not link.is_symlink():
        raise UserError(f"{link} is not a link to a run; move it away, or give another folder with --out.")
    draft = link.with_name(f".{LATEST}-{secrets.token_hex(8)}")
    os.symlink(name, draft)
    os.replace(draft, link)
