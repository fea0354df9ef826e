"""The steps of a modelled stage that runs in its own process, in a file that the harness reads after the run."""

import os
import time
from pathlib import Path

from engines.devices.roofline import Work
from engines.stock.omni.shared_gpu import FOLDER

SUFFIX = ".steps.csv"
FIELDS = ("submitted_s", "begin_s", "end_s", "woke_s", "requests", "tokens", "prefill_tokens")
"""Columns of the file, without a header. Times are s of the machine's monotonic clock: when the executor got the step,
when the modelled GPU began and ended it, and when the executor returned its result, which a busy machine delays."""


class StepFile:
    """Appends a line for each step."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def add(self, submitted_s: float, begin_s: float, end_s: float, work: Work) -> None:
        times = f"{submitted_s:.6f},{begin_s:.6f},{end_s:.6f},{time.monotonic():.6f}"
        self._file.write(f"{times},{work.requests},{work.tokens},{work.prompt_tokens}\n")


def step_file(stage: str) -> StepFile | None:
    """Return the file of a stage in the server's folder; None if the server has none."""
    folder = os.environ.get(FOLDER)
    return StepFile(Path(folder) / f"{stage}{SUFFIX}") if folder else None
