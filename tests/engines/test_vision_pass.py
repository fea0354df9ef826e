"""Vision as a pass of its own, its layers in slots, on real CPU execution: tokens are those of stock `LLM.generate`."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import pytest
import torch

from rehearsal.engines.core import vllm_adapter as vllm
from rehearsal.engines.core.vllm_adapter.layer_offload import OffloadedLayers, plain_products
from rehearsal.engines.models import VisionEncoder
from tests.engines import test_seeing as seeing

LAYERS, SLOTS = 5, 2
"""Five layers rotate in two slots: after a pass the first lies elsewhere."""
DECODER = replace(seeing.DECODER, vision_encoder=VisionEncoder(layers=LAYERS, hidden=64, heads=2, ffn=128))


@dataclass
class Results:
    """`encoded`: pictures in the pass of vision, and in the decoder's steps after it; `slots` after each pass."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    stock: dict[str, list[int]] = field(default_factory=dict)
    encoded: dict[str, tuple[int, int]] = field(default_factory=dict)
    slots: list[dict[int, int]] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)


def measure() -> Results:
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    from rehearsal.engines.core.vllm_adapter.execution import ModelExecutor
    from rehearsal.engines.core.vllm_adapter.image_input import ImageProcessor
    from rehearsal.engines.core.vllm_adapter.vision_pass import VisionPass

    seeing.DECODER, seeing.STAGE = DECODER, replace(seeing.STAGE, decoder=DECODER)
    results, stage = Results(), seeing.STAGE
    with plain_products():
        executor = ModelExecutor(stage)
    processor = ImageProcessor(executor.config)
    vision = VisionPass(executor)
    ran: list[int] = []
    vision.layers[0].register_forward_hook(lambda *_: ran.append(1))
    offloaded = OffloadedLayers(vision.layers, SLOTS)
    for name, pixels in seeing.screenshots().items():
        piece = processor.process(pixels)
        request = vllm.make_request(
            name, piece.token_ids + seeing.INSTRUCTION, seeing.OUTPUT, 0.0, stage.block_size,
            features=piece.features,
        )  # fmt: skip
        executor.scheduler.add_request(request)
        ran.clear()
        assert vision.run(name) == 1 and vision.run(name) == 0
        before = len(ran)
        results.tokens[name] = []
        while executor.scheduler.has_unfinished_requests():
            for _, tokens, _ in executor.step(executor.scheduler.schedule()):
                results.tokens[name] += tokens
        results.encoded[name] = (before, len(ran) - before)
        results.slots.append(dict(offloaded.where.slot_of))
    offloaded.close()
    results.loaded = offloaded.loaded
    executor.close()
    stock = seeing.Results(ours={"square": results.tokens["square"]})
    seeing._stock(stock)
    results.stock = stock.stock
    return results


@pytest.fixture(scope="module")
def results() -> Results:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure).result()


@pytest.mark.slow
def test_tokens_are_those_of_stock_generate(results: Results):
    for name in seeing.SIZES:
        assert len(results.tokens[name]) == seeing.OUTPUT and results.tokens[name] == results.stock[name]


@pytest.mark.slow
def test_a_picture_is_encoded_before_the_decoder_runs_and_never_again(results: Results):
    assert results.encoded == dict.fromkeys(seeing.SIZES, (1, 0))


@pytest.mark.slow
def test_layers_come_in_turn_and_rotate_through_the_slots(results: Results):
    passes = len(seeing.SIZES)
    assert results.loaded == [n % LAYERS for n in range(passes * LAYERS + SLOTS)]
    assert results.slots == [{0: 1, 1: 0}, {0: 0, 1: 1}, {0: 1, 1: 0}]


def chain(layers: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(layers)))


@pytest.mark.parametrize(("layers", "slots"), [(5, 1), (5, 2), (6, 3), (7, 3), (4, 3)])
def test_a_pass_reads_each_layers_own_weights(layers: int, slots: int):
    model, x = chain(layers), torch.linspace(-1, 1, 16).reshape(2, 8)
    expected = model(x)
    offloaded = OffloadedLayers(torch.nn.ModuleList(model), slots)
    with pytest.raises(ValueError, match="without weights"):
        OffloadedLayers(torch.nn.ModuleList(model), slots)
    assert all(weight.numel() == 0 for weight in model.parameters())
    for _ in range(3):
        assert torch.equal(model(x), expected)
    for weights in offloaded.held[1].values():
        weights.zero_()  # what is read was copied from there
    model(x)
    assert not torch.equal(model(x), expected)
    offloaded.close()
    assert all(weight.numel() for weight in model.parameters())


def test_a_layer_out_of_turn_has_no_weights():
    model = chain(4)
    offloaded = OffloadedLayers(torch.nn.ModuleList(model), 2)
    with pytest.raises(KeyError):
        model[2](torch.ones(1, 8))
    offloaded.close()
