"""Checks that have to load torch and vLLM: run by `harness.doctor` in a process of their own.

    python -m harness.doctor.probe STEP ...    one JSON object a line, in this order

A line is written as soon as its step is done, so a step that kills the process (an instruction that the processor
lacks, a library that does not fit) is the first one without a line.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

TRAPS = ("torchvision", "torchaudio", "torchcodec")
"""Their usual builds want a CUDA torch, and vLLM imports those that it finds."""


def _forkserver() -> dict[str, Any]:
    """A process forked from a server, as every point of a run is."""
    process = multiprocessing.get_context("forkserver").Process(target=os.getpid)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"a process from it ended with status {process.exitcode}")
    return {}


def _torch() -> dict[str, Any]:
    import torch

    return {
        "version": torch.__version__,
        "cuda_build": torch.version.cuda,
        "cuda_available": torch.cuda.is_available(),
    }


def _beside() -> dict[str, Any]:
    for name in filter(find_spec, TRAPS):
        import_module(name)
    return {}


def _engine() -> dict[str, Any]:
    """Import the parts of vLLM that a run in virtual time needs."""
    from engines.core.vllm_adapter import StageScheduler, make_scheduler  # noqa: F401

    return {}


STEPS: dict[str, Callable[[], dict[str, Any]]] = {
    "forkserver": _forkserver,
    "torch": _torch,
    "beside": _beside,
    "engine": _engine,
}
LONGEST = "engine"


def main(*steps: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for name in steps:
        begin = time.monotonic()
        try:
            answer = {"error": None, **STEPS[name]()}
        except Exception as error:
            lines = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"}
        print(json.dumps({"step": name, **answer, "s": time.monotonic() - begin}), file=answers, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
