"""Nova's profiler: two stages side by side on every division of the SMs, timed before anything is served."""

from engines.core.device import Row
from engines.devices.roofline import Work
from engines.devices.sharing import SharedStep, alone_s, partitioned
from engines.devices.stage import VirtualStage
from engines.systems.nova.partition import TPC, Beside, Profile

IMAGE_TOKENS = 1600
PROMPT_TOKENS = 1700
BATCH = 2
"""[chosen] what is timed: a screenshot of 1,120 x 1,120 pixels with its prompt, and a decode batch as is usual."""


def profile(device: VirtualStage, least: int) -> Profile:
    """Each stage by itself, and decode on `least` SMs or more beside each of the others, which take the rest."""
    gpu, roofline = device.gpu.facts, device.roofline
    decode = roofline.shared_step(Work.of([Row("", 1, PROMPT_TOKENS, True)] * BATCH))
    prefill = roofline.shared_step(Work.of([Row("", PROMPT_TOKENS, 0, True)]))
    vision = roofline.image_step(IMAGE_TOKENS)
    vision_s, prefill_s, decode_s = (alone_s(gpu, step) for step in (vision, prefill, decode))
    shares = range(-(-least // TPC) * TPC, gpu.sms - TPC + 1, TPC)

    def beside(front: SharedStep, front_s: float) -> dict[int, Beside]:
        found = {}
        for sms in shares:
            slow = _slowdown(device, [front, decode], [gpu.sms - sms, sms])
            found[sms] = Beside(front_s * slow[0], decode_s * slow[1])
        return found

    return Profile(beside(vision, vision_s), beside(prefill, prefill_s), vision_s, prefill_s, decode_s)


def _slowdown(device: VirtualStage, steps: list[SharedStep], sms: list[float]) -> list[float]:
    """How many times as long layers of the steps take side by side as alone on all SMs."""
    gpu, layers = device.gpu.facts, [step.layer for step in steps]
    together = partitioned(gpu, layers, sms)
    return [
        seconds / partitioned(gpu, [layer], [gpu.sms])[0]
        for seconds, layer in zip(together, layers, strict=True)
    ]
