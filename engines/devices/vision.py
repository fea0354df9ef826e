"""How long a vision encoder takes: a roofline of its layers and of the adapter behind them.

An image is one sequence without causality, so that every patch sees every other one of its window.
"""

from engines.devices.hardware import Gpu
from engines.devices.sharing import Part, SharedStep, tiled
from engines.models import VisionEncoder

ACTIVATION_PASSES = 4
"""Reads and writes of the hidden state per layer, as in a decoder; those within the feed-forward come on top."""


def image_step(encoder: VisionEncoder, gpu: Gpu, tokens: int, factor: float = 1.0) -> SharedStep:
    """What encoding one image of so many tokens computes and moves."""
    patches = encoder.patches(tokens)
    wide = ACTIVATION_PASSES * encoder.hidden + 2 * encoder.ffn
    blocks, idle = tiled(patches, encoder.ffn, gpu.sms) if gpu.sms else (0, 1.0)
    moved = encoder.layer_bytes + wide * patches * encoder.dtype_bytes
    products = _part(gpu, 2 * encoder.layer_params * patches, moved, factor, blocks, idle)
    attention = _part(gpu, 4 * encoder.hidden * _pairs(encoder, patches), 0.0, factor)
    behind = encoder.adapter_params
    adapter = _part(gpu, 2 * behind * tokens, behind * encoder.dtype_bytes, factor)
    return SharedStep((), (products, attention), encoder.layers, (adapter,))


def _pairs(encoder: VisionEncoder, patches: int) -> float:
    """Patches times those that each sees, on average over the layers."""
    if not encoder.window:
        return float(patches) ** 2
    full = encoder.full_layers / encoder.layers
    return patches * (full * patches + (1 - full) * min(encoder.window, patches))


def _part(gpu: Gpu, flops: float, moved: float, factor: float, blocks: int = 0, idle: float = 1.0) -> Part:
    compute_s = flops / gpu.flops
    memory_s = max(moved / gpu.bandwidth, gpu.reread * compute_s)
    return Part(compute_s * idle * factor, memory_s * factor, blocks=blocks)
