"""Facts about accelerators as data, every number with its source: `hardware.yaml`, and a file for each GPU of another
package, in the folder that an entry point of group `rehearsal.gpus` names."""

import math
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engines.models import values, yaml_files
from workloads.errors import UserError, nearest, validate
from workloads.files.yaml_file import read_yaml, shipped_yaml


@dataclass(frozen=True)
class KernelFit:
    """Rates that kernels reach, fitted to measured ones. Those of experts and attention are multiples of the
    `bandwidth` and `flops` of products. `layer_s`, `expert_layer_s`, `decode_s` and `prompt_s` are the least times of
    the kernels of a layer (s)."""

    layer_s: float
    expert_layer_s: float
    expert_bandwidth: float
    expert_flops: float
    decode_s: float
    decode_bandwidth: float
    prompt_s: float
    prompt_flops: float


@dataclass(frozen=True)
class Gpu:
    """One accelerator. Bytes, bytes/s and FLOP/s; `*_bandwidth` and `flops` are rates that kernels reach, not peaks.

    `nvlink_bandwidth` (bytes/s, one way) and `allreduce_s` (latency of one all-reduce, s) tie the GPUs of a replica
    together; 0 without NVLink. `fp8_gain`: the factor by which it multiplies faster in FP8 or INT8 than in bf16; 1 if
    it cannot, and such weights only save bytes. `network_bandwidth` (bytes/s, one way) and `network_s` (latency, s): to
    GPUs of other replicas. `latent_flops`: rate of attention over compressed KV in a decode in lock step. `kernels`:
    None if this kind of GPU was not measured.

    For steps that share it (`engines.devices.sharing`). `sms`: streaming multiprocessors; 0: not to be divided.
    `knee_share`: share of them that keeps the memory busy; `knee_sharpness`: exponent of the bend there.
    `reread_bytes_per_flop`: traffic of large products, including tiles that are read again. `streams_arithmetic`,
    `streams_traffic`: speed of arithmetic and of memory traffic at the same time on plain streams, relative to each
    alone.
    """

    name: str
    memory_bytes: float
    bandwidth: float
    flops: float
    pcie_bandwidth: float
    nvlink_bandwidth: float = 0.0
    allreduce_s: float = 0.0
    fp8_gain: float = 1.0
    network_bandwidth: float = 0.0
    network_s: float = 0.0
    latent_flops: float = math.inf
    kernels: KernelFit | None = None
    sms: int = 0
    knee_share: float = 0.0
    knee_sharpness: float = 1.0
    reread_bytes_per_flop: float = 0.0
    streams_arithmetic: float = 1.0
    streams_traffic: float = 1.0

    @property
    def reread(self) -> float:
        """Seconds of traffic that come with a second of arithmetic."""
        return min(1.0, self.reread_bytes_per_flop * self.flops / self.bandwidth)


def hardware_facts() -> dict[str, Any]:
    """Return the contents of `hardware.yaml`, sources included."""
    return shipped_yaml(files("engines.devices") / "hardware.yaml")


class _Number(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: float = Field(gt=0)
    source: str = Field(min_length=1)


class _Reached(BaseModel):
    model_config = ConfigDict(extra="forbid")

    bandwidth: _Number
    flops: _Number


class GpuFile(BaseModel):
    """The file of a GPU: bytes, bytes/s and FLOP/s of its data sheet. `efficiency`: the shares of its peaks that
    kernels reach, if they are not the usual ones."""

    model_config = ConfigDict(extra="forbid")

    memory_bytes: _Number
    bandwidth: _Number
    bf16_flops: _Number
    pcie_bandwidth: _Number
    sms: _Number | None = None
    fp8_gain: _Number | None = None
    nvlink_bandwidth: _Number | None = None
    allreduce_s: _Number | None = None
    network_bandwidth: _Number | None = None
    efficiency: _Reached | None = None


@cache
def gpu_names() -> list[str]:
    """All GPUs: ours, then those of other packages."""
    return list(hardware_facts()["gpus"] | yaml_files("gpus"))


def gpu_facts(name: str) -> dict[str, Any]:
    """Return what is said about a GPU, sources included. UserError for an unknown one, and a faulty file."""
    ours = hardware_facts()["gpus"]
    if name in ours:
        return ours[name]
    if name not in gpu_names():
        raise UserError(f"unknown GPU '{name}'.{nearest(name, gpu_names())}")
    path = yaml_files("gpus")[name]
    written = read_yaml(path)
    if not isinstance(written, dict):
        raise UserError(f"GPU {name} ({path}): it holds no numbers; give memory_bytes, bandwidth and others.")
    return validate(GpuFile, written, f"GPU {name} ({path})").model_dump(exclude_none=True)


def gpu_called(name: str) -> str | None:
    """Return our name of an accelerator from another, such as `NVIDIA H100 80GB HBM3` or `A100-SXM4-80GB`; None if it
    is none of ours."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    names = sorted(gpu_names(), key=len, reverse=True)  # gb200 before b200
    return next((gpu for gpu in names if gpu.replace("_", "") in letters), None)


@cache
def load_gpu(name: str) -> Gpu:
    """Return a known GPU. UserError for an unknown one, and a faulty file."""
    facts, gpu = values(hardware_facts()), values(gpu_facts(name))
    efficiency, kernels = facts["efficiency"], KernelFit(**facts["kernels"])
    if "efficiency" in gpu:
        efficiency, kernels = gpu["efficiency"], None
    return Gpu(
        name=name,
        memory_bytes=gpu["memory_bytes"],
        bandwidth=gpu["bandwidth"] * efficiency["bandwidth"],
        flops=gpu["bf16_flops"] * efficiency["flops"],
        pcie_bandwidth=gpu["pcie_bandwidth"],
        nvlink_bandwidth=gpu.get("nvlink_bandwidth", 0.0),
        allreduce_s=gpu.get("allreduce_s", 0.0),
        fp8_gain=gpu.get("fp8_gain", 1.0),
        network_bandwidth=gpu.get("network_bandwidth", gpu.get("nvlink_bandwidth", gpu["pcie_bandwidth"])),
        network_s=facts["network"]["latency_s"],
        latent_flops=gpu.get("latent_flops", math.inf),
        kernels=kernels,
        sms=int(gpu.get("sms", 0)),
        **facts["sharing"],
    )
