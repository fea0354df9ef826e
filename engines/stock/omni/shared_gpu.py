"""A modelled GPU that stages in several processes share. Their steps run one after the other, in the order in which
they are submitted, as in a replay."""

import fcntl
import mmap
import os
import struct
from pathlib import Path

from engines.core.stage import Stage
from engines.deployments import Deployment

FOLDER = "REHEARSAL_MODELLED_GPUS"
"""Environment variable: the folder of the files that the processes of one server share."""
_TIME = struct.Struct("d")


class SharedGpu:
    """The time until which a GPU is taken, in s of the machine's monotonic clock, in a file that processes map and
    lock."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._file, _TIME.size)
        self._map = mmap.mmap(self._file, _TIME.size)

    def ends_s(self, submitted_s: float, step_s: float) -> float:
        """Return when a step of `step_s` seconds ends. It begins when it is submitted or when the GPU is free."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            (free_s,) = _TIME.unpack(self._map[:])
            end_s = max(submitted_s, free_s) + step_s
            self._map[:] = _TIME.pack(end_s)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return end_s


def shared_gpu(deployment: Deployment, stage: Stage) -> SharedGpu | None:
    """The stage's GPU if another stage is on it and the server has a folder for it; None: the stage is alone."""
    folder, gpus = os.environ.get(FOLDER), stage.gpus[0]
    shared = [other for other in deployment.stages.values() if other.name != stage.name and gpus in other.gpus]
    return SharedGpu(Path(folder) / f"gpu{gpus[0]}") if folder and shared else None
