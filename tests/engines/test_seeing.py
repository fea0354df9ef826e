"""A model that sees, on real CPU execution: our scheduler, loop and requests against stock `LLM.generate`."""

from dataclasses import replace

import numpy as np
import pytest

from engines.models import AudioEncoder, VisionEncoder
from engines.models.vision import IMAGE, VISION_END, VISION_START, vision_folder
from tests.engines.multimodal import OUTPUT, Results, measured, small_stage, stock_llm

STAGE = small_stage(ffn=256, vision_encoder=VisionEncoder(layers=2, hidden=64, heads=2, ffn=128))
DECODER = STAGE.decoder
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


def _ours(results: Results) -> None:
    from engines.core.vllm_adapter.execution import ModelExecutor
    from engines.core.vllm_adapter.image_input import ImageProcessor

    executor = ModelExecutor(STAGE)
    seeing = ImageProcessor(executor.config)
    shown = {name: seeing.process(pixels) for name, pixels in screenshots().items()}
    again = seeing.process(screenshots()["square"])
    results.identifiers = [piece.features[0].identifier for piece in (shown["square"], shown["wide"], again)]
    prompts = {name: (piece.token_ids + INSTRUCTION, piece.features) for name, piece in shown.items()}
    results.serve(executor, prompts)
    # The next step of an episode: the screen before, what was done, and the screen after.
    before, after = shown["square"], shown["wide"]
    history = before.token_ids + INSTRUCTION + results.ours["square"]
    features = [*again.features, *after.at(len(history))]
    results.serve(executor, {"next": (history + after.token_ids, features)})
    executor.close()


def _stock(results: Results) -> None:
    from PIL.Image import fromarray

    llm = stock_llm(STAGE, vision_folder(DECODER, STAGE.max_model_len), video=0)
    shows = llm.get_tokenizer().encode(VISION_START + IMAGE + VISION_END)
    pictures = {name: fromarray(pixels) for name, pixels in screenshots().items()}
    prompts = {name: (shows + INSTRUCTION, [picture]) for name, picture in pictures.items()}
    history = shows + INSTRUCTION + results.ours["square"]
    prompts["next"] = (history + shows, [pictures["square"], pictures["wide"]])
    results.generate(llm, {name: (ids, {"image": images}) for name, (ids, images) in prompts.items()})


@pytest.fixture(scope="module")
def results() -> Results:
    return measured(_ours, _stock)


@pytest.mark.slow("runs a model on the CPU")
@pytest.mark.parametrize("case", [*SIZES, "next"])
def test_tokens_are_those_of_stock_generate(results: Results, case: str):
    results.check(case)


@pytest.mark.slow("runs a model on the CPU")
def test_a_picture_has_a_token_for_each_merged_patch_between_two_marks(results: Results):
    for name, (height, width) in SIZES.items():
        tokens = round(height / 28) * round(width / 28)
        assert len(results.prompts[name]) == tokens + 2 + len(INSTRUCTION)
    assert len({tuple(results.ours[name]) for name in SIZES}) == len(SIZES)
    assert all(len(set(tokens)) > 2 for tokens in results.ours.values())


@pytest.mark.slow("runs a model on the CPU")
def test_a_screen_seen_before_is_neither_encoded_nor_prefilled_again(results: Results):
    square, wide, again = results.identifiers
    assert square == again != wide
    assert results.cached["next"] >= len(results.prompts["square"]) // STAGE.block_size * STAGE.block_size
    assert results.encoded == {**dict.fromkeys(SIZES, 1), "next": 0}
    assert results.steps["square"] > OUTPUT  # its prompt took more than one step


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
