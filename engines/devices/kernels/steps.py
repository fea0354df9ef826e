"""Step times from measured kernels, in the place of a decoder's roofline."""

from __future__ import annotations

from dataclasses import dataclass

from engines.devices.hardware import Gpu
from engines.devices.kernels.grids import StageKernels
from engines.devices.kernels.times import GridTimes
from engines.devices.roofline import Roofline, Work
from engines.devices.sharing import SharedStep
from engines.models import Decoder

MS = 1e-3


@dataclass(frozen=True)
class WhatIf:
    """Other facts than those that were measured (`scale`): times change as the roofline's do from the first to the
    second."""

    measured: Roofline
    asked: Roofline

    def factor(self, work: Work) -> float:
        return gpu_s(self.asked, work) / gpu_s(self.measured, work)


class MeasuredSteps(Roofline):
    """Steps of one decoder, of which measured kernels say how long its layers, output head and code predictor take.

    Encoders, the vocoder's frames and the host are as in the roofline, and so is the shape of a step on shared SMs,
    whose length is the measured one. `what_if`: see there.
    """

    def __init__(
        self,
        decoder: Decoder,
        gpu: Gpu,
        kernels: StageKernels,
        what_if: WhatIf | None = None,
        vision_slots: int | None = None,
    ) -> None:
        super().__init__(decoder, gpu, kernels.gpus, vision_slots=vision_slots)
        self._plain = Roofline(decoder, gpu, kernels.gpus)
        self._times = GridTimes(kernels)
        self._what_if = what_if

    def layer_s(self, work: Work) -> float:
        times, decodes = self._times, work.requests - work.prompts
        ms = times.over_tokens(work.tokens)
        if decodes:
            ms += times.decodes(decodes, (work.kv_tokens - work.prompt_kv) / decodes)
        if work.prompts:
            tokens = work.prompt_tokens
            # Prompts of unlike lengths count as so many of the length that a token finds its prompt to have.
            new = work.prompt_squares / tokens
            ms += times.prompts(max(1.0, tokens / new), new, max(0.0, work.prompt_pairs / tokens - new / 2))
        factor = MS if self._what_if is None else MS * self._what_if.factor(work)
        return ms * factor / self.decoder.layers

    def sampling_s(self, samples: int) -> float:
        return MS * (self._times.head(samples) + self._times.predictor(samples))

    def shared_step(self, work: Work, factor: float = 1.0, slower: float = 1.0) -> SharedStep:
        measured = gpu_s(self, work) / gpu_s(self._plain, work) if work.tokens else 1.0
        return super().shared_step(work, factor, slower * measured)


def gpu_s(steps: Roofline, work: Work) -> float:
    """Seconds of a step's layers and what samples behind them, without host, encoders and audio."""
    return steps.decoder.layers * steps.layer_s(work) + (
        steps.sampling_s(work.samples) if work.samples else 0.0
    )
