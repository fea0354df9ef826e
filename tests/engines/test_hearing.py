"""A thinker that hears, on the CPU: our scheduler against vLLM's `LLM.generate`."""

import numpy as np
import pytest

from engines.models import AudioEncoder
from engines.models.omni import AUDIO, AUDIO_END, AUDIO_START, omni_folder
from tests.engines.multimodal import OUTPUT, Results, measured, small_stage, stock_llm
from tests.workloads.audio.conftest import SHARED_AUDIO
from workloads.audio.library import open_recording
from workloads.audio.synth import SyntheticClip

pytestmark = pytest.mark.slow("runs a model on the CPU")

RATE = 16_000
STAGE = small_stage(
    experts=4,
    experts_per_token=2,
    expert_ffn=64,
    audio_encoder=AudioEncoder(layers=2, hidden=64, heads=2, ffn=128, channels=16),
)


def speech() -> list[np.ndarray]:
    """Two utterances, float32 at 16 kHz: recorded ones where they are at hand, else synthesised."""
    names = ("single/jfk.flac", "pocketsphinx_cards/001.wav")
    recorded = SHARED_AUDIO.exists()
    clips = [open_recording(SHARED_AUDIO, name) for name in names] if recorded else map(SyntheticClip, range(2))
    return [clip.pcm(RATE).astype(np.float32) / 32768 for clip in clips]


def _ours(results: Results) -> None:
    from engines.core.vllm_adapter.audio_input import AudioProcessor
    from engines.core.vllm_adapter.execution import ModelExecutor
    from engines.core.vllm_adapter.multimodal import last

    executor, sounds = ModelExecutor(STAGE), speech()
    hearing = AudioProcessor(executor.config)
    first, second, again = (hearing.process(pcm, RATE) for pcm in (*sounds, sounds[0].copy()))
    results.identifiers = [heard.features[0].identifier for heard in (first, second, again)]
    clips = {name: (heard.token_ids, heard.features) for name, heard in (("first", first), ("second", second))}
    results.serve(executor, clips, interrupt="second")
    history = first.token_ids + results.ours["first"]
    features = [*again.features, *second.at(len(history))]
    prompt = history + second.token_ids
    results.serve(executor, {"both": (prompt, features)})
    for room in (len(prompt) - 10, len(prompt)):
        ids, rest = last(prompt, features, room)
        results.cut.append((ids, [(f.mm_position.offset, f.mm_position.length) for f in rest]))
    executor.close()


def _stock(results: Results) -> None:
    llm = stock_llm(STAGE, omni_folder(STAGE.decoder, STAGE.max_model_len), image=0, video=0)
    said = llm.get_tokenizer().encode(AUDIO_START + AUDIO + AUDIO_END)
    first, second = ((pcm, RATE) for pcm in speech())
    both = said + results.ours["first"] + said
    prompts = {"first": (said, [first]), "second": (said, [second]), "both": (both, [first, second])}
    results.generate(llm, {name: (ids, {"audio": heard}) for name, (ids, heard) in prompts.items()})


@pytest.fixture(scope="module")
def results() -> Results:
    return measured(_ours, _stock)


@pytest.mark.parametrize("case", ["first", "second", "both"])
def test_tokens_are_those_of_stock_generate(results: Results, case: str):
    results.check(case)


def test_a_second_of_speech_is_thirteen_tokens_between_two_marks(results: Results):
    for case, pcm in zip(("first", "second"), speech(), strict=True):
        assert len(results.prompts[case]) - 2 == pytest.approx(13 * len(pcm) / RATE, abs=1)
    assert results.ours["first"] != results.ours["second"]
    assert all(len(set(tokens)) > 2 for tokens in results.ours.values())


def test_cached_speech_is_not_encoded_again(results: Results):
    first, second, again = results.identifiers
    assert first == again != second
    assert results.cached["both"] >= len(results.prompts["first"]) // STAGE.block_size * STAGE.block_size
    # The second clip is still in the encoder's cache, although its first prefill was interrupted
    assert results.interrupted and results.encoded == {"first": 1, "second": 1, "both": 0}


def test_a_prompt_cut_to_its_room_loses_whole_clips(results: Results):
    first, both, second = (results.prompts[case] for case in ("first", "both", "second"))
    (ids, places), (everything, all_places) = results.cut
    assert ids == both[len(first) :]
    assert places == [(OUTPUT + 1, len(second) - 2)]
    assert everything == both and [length for _, length in all_places] == [len(first) - 2, len(second) - 2]
