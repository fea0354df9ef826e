"""A thinker that hears, on real CPU execution: our scheduler, loop and requests against stock `LLM.generate`."""

import importlib.util
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest

from engines.core import vllm_adapter as vllm
from engines.core.stage import Stage
from engines.models import AudioEncoder, Decoder
from engines.models.omni import AUDIO, AUDIO_END, AUDIO_START, omni_folder
from tests.workloads.audio.conftest import SHARED_AUDIO
from workloads.audio.library import open_recording
from workloads.audio.synth import SyntheticClip

pytestmark = pytest.mark.slow

RATE = 16_000
OUTPUT = 12
DECODER = Decoder(
    layers=2,
    hidden=128,
    heads=4,
    kv_heads=2,
    head_dim=32,
    dtype_bytes=4,
    vocab=512,
    experts=4,
    experts_per_token=2,
    expert_ffn=64,
    audio_encoder=AudioEncoder(layers=2, hidden=64, heads=2, ffn=128, channels=16),
)
STAGE = Stage(
    name="thinker",
    decoder=DECODER,
    gpus=((0,),),
    memory_share=0.3,
    max_num_seqs=8,
    max_num_batched_tokens=64,  # less than a clip: sound is prefilled in chunks
    max_model_len=1024,
    max_tokens=64,
    prefix_caching=True,
    block_size=32,
    kv_blocks=128,
)


def speech() -> list[np.ndarray]:
    """Two utterances, float32 at 16 kHz: recorded ones where they are at hand, else synthesised."""
    names = ("single/jfk.flac", "pocketsphinx_cards/001.wav")
    recorded = SHARED_AUDIO.exists()
    clips = (
        [open_recording(SHARED_AUDIO, name) for name in names] if recorded else map(SyntheticClip, range(2))
    )
    return [clip.pcm(RATE).astype(np.float32) / 32768 for clip in clips]


@dataclass
class Results:
    """Token ids by case: what vLLM's `LLM` gave and what we gave; per case of ours, what the scheduler encoded."""

    stock: dict[str, list[int]] = field(default_factory=dict)
    stock_prompts: dict[str, list[int]] = field(default_factory=dict)
    ours: dict[str, list[int]] = field(default_factory=dict)
    prompts: dict[str, list[int]] = field(default_factory=dict)
    encoded: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    identifiers: list[str] = field(default_factory=list)
    cut: list[tuple[list[int], list[tuple[int, int]]]] = field(default_factory=list)
    interrupted: bool = False
    torchvision: bool = False


def measure() -> Results:
    """Both executions, in a process of their own: vLLM keeps much in globals."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }

    results, sounds = Results(), speech()
    _ours(results, sounds)
    _stock(results, sounds)
    results.torchvision = "torchvision" in sys.modules
    return results


def _ours(results: Results, sounds: list[np.ndarray]) -> None:
    from engines.core.vllm_adapter.audio_input import AudioProcessor
    from engines.core.vllm_adapter.execution import ModelExecutor
    from engines.core.vllm_adapter.multimodal import last

    executor = ModelExecutor(STAGE)
    hearing = AudioProcessor(executor.config)

    def serve(prompts: dict[str, tuple[list[int], list]], interrupt: str = "") -> None:
        for name, (ids, features) in prompts.items():
            request = vllm.make_request(name, ids, OUTPUT, 0.0, STAGE.block_size, features=features)
            executor.scheduler.add_request(request)
            results.prompts[name], results.ours[name], results.encoded[name] = ids, [], 0
        while executor.scheduler.has_unfinished_requests():
            scheduled = executor.scheduler.schedule()
            for name, inputs in scheduled.scheduled_encoder_inputs.items():
                results.encoded[name] += len(inputs)
            for new in scheduled.scheduled_new_reqs:
                results.cached[new.req_id] = new.num_computed_tokens
            executor.interruption.begin()
            if interrupt in scheduled.scheduled_encoder_inputs and not results.interrupted:
                executor.interruption.ask(frozenset({interrupt}))
                results.interrupted = True
            for name, tokens, _ in executor.step(scheduled):
                results.ours[name] += tokens
        executor.flush()

    first, second, again = (hearing.process(pcm, RATE) for pcm in (*sounds, sounds[0].copy()))
    results.identifiers = [heard.features[0].identifier for heard in (first, second, again)]
    serve(
        {"first": (first.token_ids, first.features), "second": (second.token_ids, second.features)},
        interrupt="second",
    )
    history = first.token_ids + results.ours["first"]
    features = [*again.features, *second.at(len(history))]
    serve({"both": (history + second.token_ids, features)})
    prompt = history + second.token_ids
    for room in (len(prompt) - 10, len(prompt)):
        ids, rest = last(prompt, features, room)
        results.cut.append((ids, [(f.mm_position.offset, f.mm_position.length) for f in rest]))
    executor.close()


def _stock(results: Results, sounds: list[np.ndarray]) -> None:
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        model=omni_folder(DECODER, STAGE.max_model_len),
        load_format="rehearsal_random",
        dtype="float32",
        enforce_eager=True,
        max_model_len=STAGE.max_model_len,
        max_num_seqs=STAGE.max_num_seqs,
        block_size=STAGE.block_size,
        limit_mm_per_prompt={"image": 0, "video": 0},
    )
    said = llm.get_tokenizer().encode(AUDIO_START + AUDIO + AUDIO_END)
    first, second = ((pcm, RATE) for pcm in sounds)
    prompts = {
        "first": (said, [first]),
        "second": (said, [second]),
        "both": (said + results.ours["first"] + said, [first, second]),
    }
    for name, (ids, sound) in prompts.items():
        prompt = TokensPrompt(prompt_token_ids=ids, multi_modal_data={"audio": sound})
        params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True, temperature=0.0)
        (output,) = llm.generate([prompt], params, use_tqdm=False)
        results.stock[name] = list(output.outputs[0].token_ids)
        results.stock_prompts[name] = list(output.prompt_token_ids or [])


@pytest.fixture(scope="module")
def results() -> Results:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure).result()


@pytest.mark.parametrize("case", ["first", "second", "both"])
def test_tokens_are_those_of_stock_generate(results: Results, case: str):
    assert results.prompts[case] == results.stock_prompts[case]
    assert len(results.ours[case]) == OUTPUT
    assert results.ours[case] == results.stock[case]


def test_a_second_of_speech_is_thirteen_tokens_between_two_marks(results: Results):
    for case, pcm in zip(("first", "second"), speech(), strict=True):
        assert len(results.prompts[case]) - 2 == pytest.approx(13 * len(pcm) / RATE, abs=1)


def test_other_sound_other_tokens(results: Results):
    assert results.ours["first"] != results.ours["second"]
    assert all(len(set(tokens)) > 2 for tokens in results.ours.values())


def test_equal_sound_has_the_same_identifier_and_other_sound_another(results: Results):
    first, second, again = results.identifiers
    assert first == again != second


def test_a_history_is_found_in_the_prefix_cache_and_not_encoded_again(results: Results):
    assert results.cached["both"] >= len(results.prompts["first"]) // STAGE.block_size * STAGE.block_size
    # The second clip is still in the encoder's cache
    assert results.encoded == {"first": 1, "second": 1, "both": 0}


def test_an_interrupted_prefill_of_sound_runs_again(results: Results):
    assert results.interrupted
    assert results.ours["second"] == results.stock["second"]


def test_a_prompt_cut_to_its_room_loses_the_whole_of_a_clip_at_the_cut(results: Results):
    first, both, second = (results.prompts[case] for case in ("first", "both", "second"))
    (ids, places), (everything, all_places) = results.cut
    assert ids == both[len(first) :]
    assert places == [(OUTPUT + 1, len(second) - 2)]
    assert everything == both and [length for _, length in all_places] == [len(first) - 2, len(second) - 2]


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is not None, reason="vLLM then loads it for itself"
)
def test_torchvision_is_not_needed(results: Results):
    assert not results.torchvision
