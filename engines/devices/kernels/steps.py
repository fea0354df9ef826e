"""Step times from measured kernels, instead of a decoder's roofline."""

from dataclasses import dataclass, replace

from engines.devices.hardware import Gpu
from engines.devices.host import FOUR_GPU_ALLREDUCE, MHA_DECODES, OWN_ALLREDUCE_BYTES, PROMPT_STEP
from engines.devices.kernels.grids import Decodes, Line, StageKernels
from engines.devices.kernels.times import GridTimes
from engines.devices.roofline import Roofline, Work
from engines.devices.sharing import SharedStep
from engines.models import Decoder

MS = 1e-3

LOAD_SHAPE = 0.7
"""Shape of the gamma distribution of the load over a layer's experts. [derived] Of 128 experts, 67 then have 90 % of
the load, the first has 5 %, and the entropy is 0.885 of the even spread's. Counted for Qwen3-30B-A3B over prose, code
and mathematics: 65, 4.3 % and 0.889 (handbook of mcp-tool-shop-org/gpu-container)."""


@dataclass(frozen=True)
class WhatIf:
    """Other facts than the measured ones (`scale`): times change as the roofline's do between the two."""

    measured: Roofline
    target: Roofline

    def factor(self, work: Work) -> float:
        return gpu_s(self.target, work) / gpu_s(self.measured, work)


class KernelSteps(Roofline):
    """Steps by kernels that follow one another. Encoders, the vocoder's frames and the host are as in the roofline, and
    so is the shape of a step on shared SMs; its length is the kernels'."""

    def __init__(self, decoder: Decoder, gpu: Gpu, gpus: int, vision_slots: int | None) -> None:
        super().__init__(decoder, gpu, gpus, vision_slots=vision_slots)
        self._plain = Roofline(decoder, gpu, gpus)

    def layer_s(self, work: Work) -> float:
        seconds = self.kernels_s(work)
        return seconds * (1 + PROMPT_STEP * work.prompt_tokens / work.tokens) if work.prompts else seconds

    def kernels_s(self, work: Work) -> float:
        """Return the seconds of a layer's kernels, one by one."""
        raise NotImplementedError

    def shared_step(self, work: Work, factor: float = 1.0, slower: float = 1.0) -> SharedStep:
        over = gpu_s(self, work) / gpu_s(self._plain, work) if work.tokens else 1.0
        return super().shared_step(work, factor, slower * over)


class FittedSteps(KernelSteps):
    """Steps of a decoder without measured kernels: a roofline of each of its operations, with rates that kernels of
    that kind reach on measured GPUs (`Gpu.kernels`)."""

    def __init__(self, decoder: Decoder, gpu: Gpu, gpus: int = 1, vision_slots: int | None = None) -> None:
        super().__init__(decoder, gpu, gpus, vision_slots)
        assert gpu.kernels is not None
        self._fit = gpu.kernels
        self._gain = gpu.fp8_gain if decoder.layer_dtype_bytes == 1 else 1.0
        self._expert_token_flops = (
            2 * decoder.experts_per_token * decoder.expert_params * decoder.expert_layers / self._gain
        )
        self._dense_token_flops = 2 * decoder.dense_params / self._gain
        if decoder.code_predictor is not None:
            self._predictor = FittedSteps(decoder.code_predictor, gpu)

    def active_experts(self, tokens: int) -> float:
        """Return the expected share of a layer's routed experts that tokens reach."""
        return experts_reached(self.decoder, tokens) / (self.decoder.experts or 1)

    def kernels_s(self, work: Work) -> float:
        fit, tokens = self._fit, work.tokens
        moved = self._dense_bytes + self._activation_bytes * tokens
        seconds = fit.layer_s + max(moved / self._bandwidth, self._dense_token_flops * tokens / self._flops)
        if self._expert_bytes:
            read = self._expert_bytes * self.active_experts(tokens) / (self._bandwidth * fit.expert_bandwidth)
            computed = self._expert_token_flops * tokens / (self._flops * fit.expert_flops)
            seconds += fit.expert_layer_s + max(read, computed)
        kv_bandwidth = self._bandwidth * fit.decode_bandwidth
        if work.requests > work.prompts:
            seconds += fit.decode_s + self._kv_bytes * (work.kv_tokens - work.prompt_kv) / kv_bandwidth
        if work.prompts:
            computed = self._pair_flops * work.prompt_pairs / (self._flops * fit.prompt_flops)
            seconds += fit.prompt_s + max(computed, self._kv_bytes * work.prompt_kv / kv_bandwidth)
        return seconds + self._allreduce_s + self._allreduce_s_per_token * tokens


class MeasuredSteps(KernelSteps):
    """Steps of one decoder with measured times of its layers, output head and code predictor. `what_if`: see
    `WhatIf`."""

    def __init__(
        self,
        decoder: Decoder,
        gpu: Gpu,
        kernels: StageKernels,
        what_if: WhatIf | None = None,
        vision_slots: int | None = None,
    ) -> None:
        # Over PCIe without NVLink: times of all-reduces were measured there as well.
        linked = replace(gpu, nvlink_bandwidth=gpu.nvlink_bandwidth or gpu.pcie_bandwidth)
        super().__init__(decoder, linked, kernels.gpus, vision_slots)
        self._times = GridTimes(_as_served(kernels))
        self._what_if = what_if
        self._sampling_s: dict[int, float] = {}

    def kernels_s(self, work: Work) -> float:
        times, decodes = self._times, work.requests - work.prompts
        ms = times.over_tokens(work.tokens)
        if decodes:
            ms += times.decodes(decodes, (work.kv_tokens - work.prompt_kv) / decodes)
        if work.prompts:
            tokens = work.prompt_tokens
            # Prompts of unlike lengths count as equal ones, of the mean length over tokens (not over prompts).
            new = work.prompt_squares / tokens
            ms += times.prompts(max(1.0, tokens / new), new, max(0.0, work.prompt_pairs / tokens - new / 2))
        factor = MS if self._what_if is None else MS * self._what_if.factor(work)
        return ms * factor / self.decoder.layers

    def sampling_s(self, samples: int) -> float:
        seconds = self._sampling_s.get(samples)
        if seconds is None:
            seconds = MS * (self._times.head(samples) + self._times.predictor(samples))
            self._sampling_s[samples] = seconds
        return seconds


def _as_served(kernels: StageKernels) -> StageKernels:
    """Return times as servers of known load have them, if these contradict kernels that were measured one by one."""
    served: dict[str, Line | Decodes] = {}
    if kernels.gpus == 4 and kernels.allreduce is not None:
        line, token_bytes = kernels.allreduce, 2 * kernels.decoder["hidden"]
        custom = [at * token_bytes < OWN_ALLREDUCE_BYTES for at in line.at]
        ms = [FOUR_GPU_ALLREDUCE * t if own else t for t, own in zip(line.ms, custom, strict=True)]
        served["allreduce"] = Line(at=line.at, ms=ms)
    if kernels.decoder["heads"] == kernels.decoder["kv_heads"]:
        ms = [[MHA_DECODES * each for each in row] for row in kernels.decodes.ms]
        served["decodes"] = kernels.decodes.model_copy(update={"ms": ms})
    return kernels.model_copy(update=served)


def experts_reached(d: Decoder, tokens: int) -> float:
    """Return the expected number of a layer's experts that `tokens` tokens reach, at loads by `LOAD_SHAPE`."""
    k, experts = d.experts_per_token, d.experts
    if not experts or not tokens:
        return 0.0
    missed = (1 + (tokens - 1) * k / (experts * LOAD_SHAPE)) ** -LOAD_SHAPE
    return k + (experts - k) * (1 - missed)


def gpu_s(steps: Roofline, work: Work) -> float:
    """Return the seconds of a step's layers and sampling, without host, encoders and audio."""
    return steps.decoder.layers * steps.layer_s(work) + (steps.sampling_s(work.samples) if work.samples else 0.0)
