"""Fit the roofline of `hardware.yaml`, which is used where no kernels were measured, to the shipped grids of kernels.

`python -m tools.fit_kernels` prints the fitted shares, and the error of whole steps for fitted and for other models.
Each kind of kernel has its own roofline: seconds per layer, plus the longer of bytes over a share of the bandwidth and
operations over a share of the peak. The fit minimises the mean of |log(predicted / measured)|.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from engines.core.device import Row
from engines.devices.hardware import hardware_facts, load_gpu
from engines.devices.kernels.choose import shipped, shipped_models
from engines.devices.kernels.grids import StageKernels
from engines.devices.kernels.steps import FittedSteps, experts_reached, gpu_s
from engines.devices.kernels.times import GridTimes, LogLine
from engines.devices.roofline import ACTIVATION_PASSES, Work
from engines.models import Decoder, load_model, values

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DECODES = [(requests, context) for requests in (1, 4, 16, 64, 128) for context in (128, 512, 2048, 8192)]
PROMPTS = [(new, before) for new in (64, 256, 1024, 4096) for before in (0, 512, 2048, 8192)]
FITTED_TO = (
    "llama_3_1_8b",
    "ming_flash_omni_2",
    "minicpm_o_4_5",
    "moshi_7b",
    "qwen2_5_14b",
    "qwen2_5_omni_7b",
    "qwen3_omni_30b_a3b",
)
"""Models whose grids the shares are fitted to; all others show the error of the fit elsewhere."""
LEAST_HIDDEN = 2000
"""Smallest hidden size of a fitted decoder. Smaller layers take launch time only, and would weigh as much as others."""

START = {"products": (0.8, 0.6, 10e-6), "experts": (0.8, 0.3, 20e-6), "decodes": (0.8, 0.6, 10e-6)}
START |= {"prompts": (0.8, 0.5, 15e-6)}


@dataclass(frozen=True)
class Point:
    """One time of a grid. `moved`, `computed`: seconds at the peaks of the data sheet; `measured`: seconds."""

    kind: str
    moved: float
    computed: float
    layers: int
    measured: float


def stages() -> Iterator[tuple[str, str, Decoder, StageKernels]]:
    """Yield model, GPU, decoder and kernels of every grid of one GPU in bf16."""
    for gpu, facts in values(hardware_facts())["gpus"].items():
        if "efficiency" in facts:
            continue
        for model in shipped_models(gpu):
            kernels = shipped(model, gpu)
            for each in kernels.kernels if kernels is not None else ():
                decoder = load_model(model).stages[each.stage]
                if each.gpus == 1 and decoder.layer_dtype_bytes == 2 and decoder.hidden >= LEAST_HIDDEN:
                    yield model, gpu, decoder, each


def points(gpu: str, decoder: Decoder, kernels: StageKernels) -> Iterator[Point]:
    facts, d, times = values(hardware_facts())["gpus"][gpu], decoder, GridTimes(kernels)
    bandwidth, flops, layers = facts["bandwidth"], facts["bf16_flops"], decoder.layers
    products = LogLine(kernels.products)
    experts = LogLine(kernels.experts) if kernels.experts is not None else None
    for tokens in TOKENS:
        moved = layers * d.dtype_bytes * (d.dense_params + ACTIVATION_PASSES * d.hidden * tokens)
        computed = 2 * layers * d.dense_params * tokens
        ms = products.ms(tokens)
        yield Point("products", moved / bandwidth, computed / flops, layers, ms / 1e3)
        if experts is not None:
            moved = layers * d.dtype_bytes * experts_reached(d, tokens) * d.expert_params
            computed = 2 * layers * d.experts_per_token * d.expert_params * tokens
            yield Point("experts", moved / bandwidth, computed / flops, layers, experts.ms(tokens) / 1e3)
    for requests, context in DECODES:
        moved = requests * context * d.kv_bytes_per_token
        yield Point("decodes", moved / bandwidth, 0.0, layers, times.decodes(requests, context) / 1e3)
    for new, before in PROMPTS:
        moved = (new + before) * d.kv_bytes_per_token
        computed = layers * d.pair_flops * new * (before + new / 2)
        yield Point("prompts", moved / bandwidth, computed / flops, layers, times.prompts(1, new, before) / 1e3)


def fit(found: list[Point], start: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Fit a roofline to the points. Return (share of bandwidth, share of peak, s per layer), predicted / measured."""
    moved, computed, layers, measured = (
        np.array([getattr(point, name) for point in found]) for name in ("moved", "computed", "layers", "measured")
    )

    def predicted(x: np.ndarray) -> np.ndarray:
        bandwidth, flops, layer_s = np.exp(x)
        return np.maximum(moved / bandwidth, computed / flops) + layers * layer_s

    def loss(x: np.ndarray) -> float:
        return float(np.abs(np.log(predicted(x) / measured)).mean())

    begun = [np.log(start) * factor for factor in (1.0, 0.9, 1.1)]
    tried = [minimize(loss, x, method="Nelder-Mead", options={"maxiter": 4000}) for x in begun]
    best = min(tried, key=lambda result: result.fun).x
    return np.exp(best), predicted(best) / measured


def whole_steps(gpu: str, decoder: Decoder, kernels: StageKernels) -> np.ndarray:
    """Return times of whole steps by `hardware.yaml` over times by the grids: decode steps, then single prompts."""
    fitted, times = FittedSteps(decoder, load_gpu(gpu)), GridTimes(kernels)
    ratios = []
    for requests, context in DECODES:
        work = Work.of([Row("", 1, context - 1, True)] * requests)
        ratios.append(gpu_s(fitted, work) * 1e3 / times.decode_step_ms(requests, context))
    for new, before in PROMPTS:
        work = Work.of([Row("", new, before, True)])
        layers = decoder.layers * fitted.kernels_s(work) + fitted.sampling_s(1)
        ratios.append(layers * 1e3 / times.prompt_step_ms(new, before))
    return np.array(ratios)


def main() -> None:
    grids = list(stages())
    of_kind: dict[str, list[Point]] = {}
    for model, gpu, decoder, kernels in grids:
        if model in FITTED_TO:
            for point in points(gpu, decoder, kernels):
                of_kind.setdefault(point.kind, []).append(point)
    for kind, found in of_kind.items():
        (bandwidth, flops, layer_s), ratios = fit(found, START[kind])
        errors = np.abs(ratios - 1)
        print(
            f"{kind:9} bandwidth {bandwidth:.3f}  flops {flops:.3f}  {1e6 * layer_s:.1f} us a layer; "
            f"{len(found)} points, error {100 * np.median(errors):.1f} % (P90 {100 * np.quantile(errors, 0.9):.0f} %)"
        )
    print("\nwhole steps by hardware.yaml over the grids: median (lowest to highest)")
    for title, fitted in (("models fitted to", True), ("other models", False)):
        print(title)
        for gpu in dict.fromkeys(gpu for _, gpu, *_ in grids):
            of_gpu = [
                whole_steps(gpu, decoder, kernels)
                for model, on, decoder, kernels in grids
                if on == gpu and (model in FITTED_TO) == fitted
            ]
            ratios = np.concatenate(of_gpu)
            error = np.median(np.abs(ratios - 1))
            print(
                f"  {gpu:13} {np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}); "
                f"median error {100 * error:.0f} %"
            )


if __name__ == "__main__":
    main()
