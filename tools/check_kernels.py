"""Check the kernels that come with Rehearsal: `python -m tools.check_kernels [GPU ...]` prints findings and a table.

It decides whether a sweep can be read off a stage's grids:
* over batch size and chunk size, if steps at powers of two do not get shorter as requests or tokens are added;
* over GPUs, if steps take between one and 1 / `LEAST_SHARE` of what the data sheet's bandwidth or FLOP/s allow;
* over tensor parallelism, if more GPUs compute no slower, and all-reduces were measured and stay below the link.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from engines.core.device import Row
from engines.devices.hardware import Gpu, hardware_facts, load_gpu
from engines.devices.kernels.choose import shipped, shipped_models
from engines.devices.kernels.grids import StageKernels
from engines.devices.kernels.steps import gpu_s
from engines.devices.kernels.times import LARGEST_FALL, GridTimes, largest_fall
from engines.devices.roofline import Roofline, Work
from engines.models import Decoder, load_model, values

CONTEXT, TOKENS = 1024, 8192
"""Tokens that a decode of the check sees, and new tokens of its prompt."""

LEAST_SHARE, LEAST_OF_EXPERTS = 0.3, 0.25
"""The second for routed experts: tokens spread over them do not fill their tiles."""

LAUNCHES_S = 40e-6
"""Layers whose weights are read faster are bound by the launches of their kernels: no least share holds for them."""

IN_SWITCH = 1.1
"""Most of the link's bandwidth: NVLink's switches add up themselves, which saves traffic (eight H200: 1.03)."""

REACHED = 0.8
"""Share of a link's one-way bandwidth that `hardware.yaml` takes as reached."""


@dataclass(frozen=True)
class Finding:
    check: str
    stage: str
    sentence: str


def peaks(name: str) -> Gpu:
    """Return a GPU with the data sheet's rates, and all-reduces without time."""
    facts = values(hardware_facts())["gpus"][name]
    return replace(
        load_gpu(name),
        bandwidth=facts["bandwidth"],
        flops=facts["bf16_flops"],
        nvlink_bandwidth=math.inf,
        allreduce_s=0.0,
    )


def shares(gpu: Gpu, decoder: Decoder, kernels: StageKernels) -> tuple[float, float, float]:
    """Return the share of the roofline that one decode and one prompt reach, and the seconds at the peaks of one layer
    of the decode."""
    alone, roofline = (GridTimes(kernels.model_copy(update={"allreduce": None})), Roofline(decoder, gpu, kernels.gpus))
    decode, prompt = (Work.of([Row("", *row, True)]) for row in ((1, CONTEXT - 1), (TOKENS, 0)))
    measured = (
        alone.decode_step_ms(1, CONTEXT) + alone.predictor(1),
        alone.prompt_step_ms(TOKENS, 0) + alone.predictor(1),
    )
    return (
        1e3 * gpu_s(roofline, decode) / measured[0],
        1e3 * gpu_s(roofline, prompt) / measured[1],
        roofline.layer_s(decode),
    )


def bus_bandwidth(kernels: StageKernels) -> np.ndarray:
    """Return the bytes/s over each GPU's link, by tokens of the step; empty on one GPU."""
    if kernels.allreduce is None:
        return np.array([])
    hidden, layers = (kernels.decoder[name] for name in ("hidden", "layers"))
    moved = 2 * (kernels.gpus - 1) / kernels.gpus * 2 * hidden * (2 * layers + 1) * np.array(kernels.allreduce.at)
    return 1e3 * moved / np.array(kernels.allreduce.ms)


def findings(name: str) -> Iterator[Finding]:
    gpu, ours = peaks(name), load_gpu(name)
    link = (ours.nvlink_bandwidth or ours.pcie_bandwidth) / REACHED
    for model in shipped_models(name):
        file = shipped(model, name)
        fewer: dict[str, StageKernels] = {}
        for kernels in sorted(file.kernels, key=lambda each: each.gpus) if file is not None else ():
            stage = f"{model} {kernels.stage} on {kernels.gpus}"
            if (by := largest_fall(kernels)) > LARGEST_FALL:
                yield Finding("falls", stage, f"a step takes {by:.0%} less than a smaller one")
            decode, prompt, layer_s = shares(gpu, load_model(model).stages[kernels.stage], kernels)
            least = LEAST_SHARE if kernels.experts is None else LEAST_OF_EXPERTS
            for step, share in (("decode", decode), ("prompt", prompt)):
                if share > 1 or (layer_s > LAUNCHES_S and share < least):
                    yield Finding("roofline", stage, f"a {step} reaches {share:.2f} of the roofline")
            reached = bus_bandwidth(kernels)
            if reached.size and reached.max() > IN_SWITCH * link:
                yield Finding("link", stage, f"all-reduces reach {reached.max() / link:.2f} of the link")
            before = fewer.get(kernels.stage)
            if before is not None:
                two, one = (GridTimes(each.model_copy(update={"allreduce": None})) for each in (kernels, before))
                slower = max(
                    two.decode_step_ms(n, CONTEXT) / one.decode_step_ms(n, CONTEXT) for n in kernels.decodes.requests
                )
                if slower > 1 + LARGEST_FALL:
                    yield Finding("split", stage, f"computes {slower:.2f} times as long as {before.gpus} do")
                pair = bus_bandwidth(kernels), bus_bandwidth(before)
                if pair[1].size and "allreduce" not in kernels.scaled and np.allclose(*pair, rtol=2e-3):
                    yield Finding("scaled", stage, f"all-reduces are those of {before.gpus} GPUs, scaled")
            fewer[kernels.stage] = kernels


def main() -> None:
    checks = ("falls", "roofline", "link", "split", "scaled")
    by_gpu = {}
    for name in sys.argv[1:] or [gpu for gpu in values(hardware_facts())["gpus"] if shipped_models(gpu)]:
        by_gpu[name] = list(findings(name))
    for name, each in by_gpu.items():
        for one in each:
            print(f"{name}: {one.stage}: {one.sentence}")
    print("gpu", *checks, sep=" | ")
    for name, each in by_gpu.items():
        print(name, *(sum(one.check == check for one in each) for check in checks), sep=" | ")


if __name__ == "__main__":
    main()
