"""The SMs of decode next to vision and next to a prefill: equations (1) to (5) of Nova, and its profiler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engines.core.device import Row
from engines.devices.roofline import Work
from engines.devices.sharing import SharedStep, alone_s, partitioned
from engines.devices.stage import VirtualStage

TPC = 2
"""SMs that can only be given away together."""


class SharedTimes(NamedTuple):
    """Seconds by the SMs of decode, with the rest for the other stage: of a pass of the other, and of one decode
    iteration."""

    pass_s: float
    decode_s: float


@dataclass(frozen=True)
class Profile:
    """Measured times of two stages at the same time, by the SMs of decode, and of each stage alone on all SMs."""

    vision: Mapping[int, SharedTimes]
    prefill: Mapping[int, SharedTimes]
    vision_s: float
    prefill_s: float
    decode_s: float

    def end_to_end_s(
        self, vision: int, prefill: int, outputs: float, weighting: Literal["time", "iterations"] = "time"
    ) -> float:
        """Return E[T_e2e] of a request of `outputs` output tokens, without any waiting: equations (1) and (2)."""
        v, p = self.vision[vision], self.prefill[prefill]
        front_s = v.pass_s + p.pass_s
        if weighting == "time":
            rho = v.pass_s / front_s
            each_s = rho * v.decode_s + (1 - rho) * p.decode_s
        else:  # iterations of each in the same time
            each_s = front_s / (v.pass_s / v.decode_s + p.pass_s / p.decode_s)
        return front_s + outputs * each_s

    def throughput(self, vision: int, prefill: int) -> float:
        """Return requests per second through vision and prefill: equation (4)."""
        return 1.0 / (self.vision[vision].pass_s + self.prefill[prefill].pass_s)

    def search(self, outputs: float, weighting: Literal["time", "iterations"] = "time") -> tuple[int, int]:
        """Return the shares (s_v, s_p) of decode with the least E[T_e2e], of equals the smallest: equation (3)."""
        pairs = [(v, p) for v in self.vision for p in self.prefill]
        return min(pairs, key=lambda pair: (round(self.end_to_end_s(*pair, outputs, weighting), 9), pair))

    def frontier(self, outputs: float) -> list[tuple[int, int]]:
        """Return the shares that no others beat in both E[T_e2e] and throughput, from the highest throughput down."""
        pairs = [(v, p) for v in self.vision for p in self.prefill]
        pairs.sort(key=lambda pair: (-self.throughput(*pair), self.end_to_end_s(*pair, outputs)))
        best, kept = float("inf"), []
        for pair in pairs:
            seconds = self.end_to_end_s(*pair, outputs)
            if seconds < best:
                best = seconds
                kept.append(pair)
        return kept


def decode_sms(pending: int, default: int, least: int, alpha: int) -> int:
    """Return N_d(m) = max(N_min, N_default - alpha (m - 1)), with m requests in vision or prefill: equation (5)."""
    return max(least, default - alpha * (max(1, pending) - 1))


IMAGE_TOKENS = 1600
PROMPT_TOKENS = 1700
BATCH = 2
"""[chosen] the timed work: a screenshot of 1,120 x 1,120 pixels with its prompt, and a usual decode batch."""


def profile(device: VirtualStage, least: int) -> Profile:
    """Run Nova's profiler, before anything is served: the times of each stage by itself, and of decode on `least` SMs
    or more next to each of the others, which take the rest."""
    gpu, roofline = device.gpu.facts, device.roofline
    decode = roofline.shared_step(Work.of([Row("", 1, PROMPT_TOKENS, True)] * BATCH))
    prefill = roofline.shared_step(Work.of([Row("", PROMPT_TOKENS, 0, True)]))
    vision = roofline.image_step(IMAGE_TOKENS)
    vision_s, prefill_s, decode_s = (alone_s(gpu, step) for step in (vision, prefill, decode))
    shares = range(-(-least // TPC) * TPC, gpu.sms - TPC + 1, TPC)

    def shared(front: SharedStep, front_s: float) -> dict[int, SharedTimes]:
        times = {}
        for sms in shares:
            slow = _slowdown(device, [front, decode], [gpu.sms - sms, sms])
            times[sms] = SharedTimes(front_s * slow[0], decode_s * slow[1])
        return times

    return Profile(shared(vision, vision_s), shared(prefill, prefill_s), vision_s, prefill_s, decode_s)


def _slowdown(device: VirtualStage, steps: list[SharedStep], sms: list[float]) -> list[float]:
    """Return the factor by which layers of the steps take longer at the same time than alone on all SMs."""
    gpu, layers = device.gpu.facts, [step.layer for step in steps]
    together = partitioned(gpu, layers, sms)
    return [seconds / partitioned(gpu, [layer], [gpu.sms])[0] for seconds, layer in zip(together, layers, strict=True)]
