"""A model that sees, on real CPU execution: our scheduler, loop and requests against stock `LLM.generate`."""

import importlib.util
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from engines.core import vllm_adapter as vllm
from engines.core.stage import Stage
from engines.models import AudioEncoder, Decoder, VisionEncoder
from engines.models.vision import IMAGE, VISION_END, VISION_START, vision_folder

OUTPUT = 12
DECODER = Decoder(
    layers=2,
    hidden=128,
    heads=4,
    kv_heads=2,
    head_dim=32,
    dtype_bytes=4,
    vocab=512,
    ffn=256,
    vision_encoder=VisionEncoder(layers=2, hidden=64, heads=2, ffn=128),
)
STAGE = Stage(
    name="thinker",
    decoder=DECODER,
    gpus=((0,),),
    memory_share=0.3,
    max_num_seqs=8,
    max_num_batched_tokens=64,  # less than a picture: it is prefilled in chunks
    max_model_len=1024,
    max_tokens=64,
    prefix_caching=True,
    block_size=32,
    kv_blocks=128,
)
INSTRUCTION = list(b"Open the clock.")
SIZES = {"square": (280, 280), "wide": (112, 420), "odd": (150, 201)}
"""Height and width in pixels; the last is scaled to whole patches."""


def screenshots() -> dict[str, np.ndarray]:
    """Rectangles of a few colours, uint8 of shape (height, width, 3)."""
    rng, found = np.random.default_rng(0), {}
    for name, (height, width) in SIZES.items():
        coarse = rng.integers(0, 256, (-(-height // 20), -(-width // 20), 3), dtype=np.uint8)
        found[name] = coarse.repeat(20, 0).repeat(20, 1)[:height, :width]
    return found


@dataclass
class Results:
    """Token ids by case: what vLLM's `LLM` gave and what we gave; per case of ours, what the scheduler encoded."""

    stock: dict[str, list[int]] = field(default_factory=dict)
    stock_prompts: dict[str, list[int]] = field(default_factory=dict)
    ours: dict[str, list[int]] = field(default_factory=dict)
    prompts: dict[str, list[int]] = field(default_factory=dict)
    encoded: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    identifiers: list[str] = field(default_factory=list)
    torchvision: bool = False


def measure() -> Results:
    """Both executions, in a process of their own: vLLM keeps much in globals."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    results = Results()
    _ours(results)
    _stock(results)
    results.torchvision = "torchvision" in sys.modules
    return results


def _ours(results: Results) -> None:
    from engines.core.vllm_adapter.execution import ModelExecutor
    from engines.core.vllm_adapter.image_input import ImageProcessor

    executor = ModelExecutor(STAGE)
    seeing = ImageProcessor(executor.config)
    shown = {name: seeing.process(pixels) for name, pixels in screenshots().items()}
    again = seeing.process(screenshots()["square"])
    results.identifiers = [piece.features[0].identifier for piece in (shown["square"], shown["wide"], again)]

    def serve(prompts: dict[str, tuple[list[int], list]]) -> None:
        for name, (ids, features) in prompts.items():
            request = vllm.make_request(name, ids, OUTPUT, 0.0, STAGE.block_size, features=features)
            executor.scheduler.add_request(request)
            results.prompts[name], results.ours[name] = ids, []
            results.encoded[name] = results.steps[name] = 0
        while executor.scheduler.has_unfinished_requests():
            scheduled = executor.scheduler.schedule()
            for name, inputs in scheduled.scheduled_encoder_inputs.items():
                results.encoded[name] += len(inputs)
            for new in scheduled.scheduled_new_reqs:
                results.cached[new.req_id] = new.num_computed_tokens
            for name in scheduled.num_scheduled_tokens:
                results.steps[name] += 1
            for name, tokens, _ in executor.step(scheduled):
                results.ours[name] += tokens
        executor.flush()

    serve({name: (piece.token_ids + INSTRUCTION, piece.features) for name, piece in shown.items()})
    # The next step of an episode: the screen before, what was done, and the screen after.
    before, after = shown["square"], shown["wide"]
    history = before.token_ids + INSTRUCTION + results.ours["square"]
    serve({"next": (history + after.token_ids, [*again.features, *after.at(len(history))])})
    executor.close()


def _stock(results: Results) -> None:
    from PIL.Image import fromarray
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        model=vision_folder(DECODER, STAGE.max_model_len),
        load_format="rehearsal_random",
        dtype="float32",
        enforce_eager=True,
        max_model_len=STAGE.max_model_len,
        max_num_seqs=STAGE.max_num_seqs,
        block_size=STAGE.block_size,
        limit_mm_per_prompt={"video": 0},
    )
    shows = llm.get_tokenizer().encode(VISION_START + IMAGE + VISION_END)
    pictures = {name: fromarray(pixels) for name, pixels in screenshots().items()}
    prompts = {name: (shows + INSTRUCTION, [picture]) for name, picture in pictures.items()}
    history = shows + INSTRUCTION + results.ours["square"]
    prompts["next"] = (history + shows, [pictures["square"], pictures["wide"]])
    for name, (ids, images) in prompts.items():
        prompt = TokensPrompt(prompt_token_ids=ids, multi_modal_data={"image": images})
        params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True, temperature=0.0)
        (output,) = llm.generate([prompt], params, use_tqdm=False)
        results.stock[name] = list(output.outputs[0].token_ids)
        results.stock_prompts[name] = list(output.prompt_token_ids or [])


@pytest.fixture(scope="module")
def results() -> Results:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure).result()


@pytest.mark.slow
@pytest.mark.parametrize("case", [*SIZES, "next"])
def test_tokens_are_those_of_stock_generate(results: Results, case: str):
    assert results.prompts[case] == results.stock_prompts[case]
    assert len(results.ours[case]) == OUTPUT
    assert results.ours[case] == results.stock[case]


@pytest.mark.slow
def test_a_picture_has_a_token_for_each_merged_patch_between_two_marks(results: Results):
    for name, (height, width) in SIZES.items():
        tokens = round(height / 28) * round(width / 28)
        assert len(results.prompts[name]) == tokens + 2 + len(INSTRUCTION)


@pytest.mark.slow
def test_what_is_seen_decides_the_tokens(results: Results):
    assert len({tuple(results.ours[name]) for name in SIZES}) == len(SIZES)
    assert all(len(set(tokens)) > 2 for tokens in results.ours.values())


@pytest.mark.slow
def test_a_screen_seen_before_is_neither_encoded_nor_read_again(results: Results):
    square, wide, again = results.identifiers
    assert square == again != wide
    assert results.cached["next"] >= len(results.prompts["square"]) // STAGE.block_size * STAGE.block_size
    assert results.encoded == {**dict.fromkeys(SIZES, 1), "next": 0}
    assert results.steps["square"] > OUTPUT  # its prompt took more than one step


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is not None, reason="vLLM then loads it for itself"
)
def test_torchvision_is_not_needed(results: Results):
    assert not results.torchvision


@pytest.mark.parametrize(
    "wrong",
    [
        {"vision_encoder": None},
        {"vocab": 200},
        {"experts": 4},
        {"vision_encoder": replace(DECODER.vision_encoder or VisionEncoder(1, 1, 1, 1), ffn=100)},
        {"vision_encoder": None, "audio_encoder": AudioEncoder(1, 64, 2, 64, 16)},
    ],
)
def test_a_decoder_that_cannot_see_is_refused(wrong: dict):
    with pytest.raises(ValueError, match="a model that sees has a vision_encoder"):
        vision_folder(replace(DECODER, **wrong), 1024)
