"""The quality probes from end to end, on a small checkpoint with random weights."""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import in_own_process
from tests.builders import settings as chosen_settings

pytest.importorskip("soundfile", reason="needs the extra audio")

from engines.core import vllm_adapter as vllm
from engines.models import AudioEncoder
from engines.models.checkpoint import read_checkpoint
from engines.server import ServerParams, resolve
from harness.records.record import load_record
from reports import cli
from reports.cards import card as cards
from reports.cards import unmeasured
from reports.cards.card import Figure
from reports.cards.group import load_group
from reports.claims.grading import INCONCLUSIVE, NOT_MEASURED
from reports.figures.style import style
from tests.engines.omni_checkpoint import HIDDEN, ID, LAYERS, VOCAB, write_omni_checkpoint
from tests.workloads.test_questions import CARDS, LAST, write
from workloads.audio.synth import SyntheticClip

pytestmark = pytest.mark.slow("runs a model on the CPU")

RATE = 16_000
FRAMES, OUTPUT = 3, 6
SMALL = {"deployment": "qwen3_omni_pro6000", "block_size": 32, "kv_pool_blocks": 1100}
"""A pool of 36 MB for so small a model; 32 is what vLLM's CPU attention takes."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_omni_checkpoint(tmp_path_factory.mktemp("small-omni"))


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise for recordings: with random weights an answer is as right to any sound."""
    return write(tmp_path_factory.mktemp("questions"), CARDS + LAST)


def test_the_facts_of_the_thinker_are_those_of_its_configuration(checkpoint: Path):
    decoder = read_checkpoint(str(checkpoint))
    assert (decoder.layers, decoder.hidden, decoder.vocab, decoder.dtype_bytes) == (LAYERS, HIDDEN, VOCAB, 4)
    assert (decoder.experts, decoder.experts_per_token, decoder.expert_ffn) == (4, 2, 32)
    assert decoder.audio_encoder == AudioEncoder(layers=2, hidden=32, heads=2, ffn=64, channels=16)
    served = resolve(ServerParams.model_validate({**SMALL, "checkpoint": str(checkpoint)}))
    assert served.hears and served.stages["thinker"].decoder == decoder


def test_fp8_weights_are_read_as_one_byte(checkpoint: Path, tmp_path: Path):
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {"quantization_config": {"quant_method": "fp8"}, "dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_checkpoint(str(tmp_path))
    assert found == replace(read_checkpoint(str(checkpoint)), dtype_bytes=2, weight_dtype_bytes=1)


@dataclass
class EncodedAudio:
    """What sessions said to frames of real sound, ours and transformers'; the context that the last frame had."""

    ours: list[list[int]] = field(default_factory=list)
    theirs: list[list[int]] = field(default_factory=list)
    contexts: list[list[int]] = field(default_factory=list)
    ended: list[list[int]] = field(default_factory=list)


def hear(checkpoint: str) -> EncodedAudio:
    """Frames of one session, each a chunk of it, against transformers on the whole context so far."""
    from engines.core.vllm_adapter.audio_input import AudioProcessor
    from engines.core.vllm_adapter.execution import ModelExecutor

    stage = resolve(ServerParams.model_validate({**SMALL, "checkpoint": checkpoint})).stages["thinker"]
    executor = ModelExecutor(stage)
    hearing, results = AudioProcessor(executor.config), EncodedAudio()
    text = hearing.read("<|im_start|>user\n")
    assert text[0] == ID["<|im_start|>"]
    sounds = [
        SyntheticClip(place).pcm(RATE)[: 2 * RATE].astype(np.float32) / np.float32(32768) for place in range(FRAMES)
    ]

    def session(name: str, end: int | None) -> list[list[int]]:
        answers = []
        for pcm in sounds:
            heard = hearing.process(pcm, RATE)
            prompt, features = text + heard.token_ids + text, heard.at(len(text))
            executor.scheduler.add_request(
                vllm.make_chunk(name, prompt, OUTPUT, 0.0, stage.block_size, 0, features, end)
            )
            if name == "whole":
                kept = results.contexts[-1] + answers[-1][:-1] if answers else []
                results.contexts.append(kept + prompt)
            answers.append([])
            while not executor.scheduler.num_waiting_for_streaming_input:
                for _, tokens, _ in executor.step(executor.scheduler.schedule()):
                    answers[-1] += tokens
        executor.scheduler.abort([name])
        executor.flush()
        return answers

    results.ours = session("whole", None)
    results.ended = session("ended", results.ours[0][2])
    executor.close()
    results.theirs = _transformers(checkpoint, results.contexts, sounds)
    return results


def _transformers(checkpoint: str, contexts: list[list[int]], sounds: list[np.ndarray]) -> list[list[int]]:
    import torch
    from transformers import Qwen3OmniMoeThinkerForConditionalGeneration, WhisperFeatureExtractor, logging

    logging.set_verbosity_error()  # or it lists the talker's weights as unexpected
    model = Qwen3OmniMoeThinkerForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)
    extract = WhisperFeatureExtractor.from_pretrained(checkpoint)
    return [_answer(model, extract, context, sounds[: n + 1]) for n, context in enumerate(contexts)]


def _answer(model, extract, context: list[int], sounds: list[np.ndarray]) -> list[int]:
    import torch

    made = extract(
        sounds, sampling_rate=RATE, return_tensors="pt", truncation=False, padding=True, return_attention_mask=True
    )
    said = model.generate(
        torch.tensor([context]),
        input_features=made["input_features"],
        feature_attention_mask=made["attention_mask"],
        max_new_tokens=OUTPUT,
        min_new_tokens=OUTPUT,
        do_sample=False,
        pad_token_id=0,
    )
    return said[0, len(context) :].tolist()


@pytest.fixture(scope="module")
def heard(checkpoint: Path) -> EncodedAudio:
    os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return in_own_process(hear, str(checkpoint))


def test_a_session_answers_each_frame_as_transformers_answers_its_whole_context(heard: EncodedAudio):
    assert [len(answer) for answer in heard.ours] == [OUTPUT] * FRAMES
    assert heard.ours == heard.theirs
    assert len({token for answer in heard.ours for token in answer}) > 3


def test_an_answer_ends_with_its_last_token(heard: EncodedAudio):
    first, *_ = heard.ended
    assert first == heard.ours[0][: heard.ours[0].index(heard.ours[0][2]) + 1]
    assert len(heard.ended) == FRAMES


def small(name: str, panels: list[str], engines: list[str]) -> Figure:
    """A shipped card with some of its panels and engines."""
    card = cards.figures()[name]
    chosen = {panel: card.experiments[panel].model_copy(update={"engines": engines}) for panel in panels}
    return replace(card, experiments=chosen)


@pytest.fixture(scope="module")
def measured(checkpoint: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both cards, each run by itself on the processor: two sessions, some seconds."""
    folder = tmp_path_factory.mktemp("results")
    free = cards.figures()["metronome-table2-quality"]
    chosen = [
        replace(free, experiments={row: free.experiments[row] for row in ("unbounded", "1024, 16")}),
        small("metronome-turn-based", ["turns"], ["metronome"]),
    ]
    given = {"checkpoint": checkpoint, "questions": questions, "sessions": 2, "frame_s": 0.5, "segment_s": 1}
    given |= {"tokens_per_frame": 4, "turn_send_delay_limit_s": 5, "block_size": 32, "kv_pool_blocks": 1100}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cards, "figures", lambda: {card.name: card for card in chosen})
        patch.setattr(unmeasured, "check_claims", lambda card: None)  # some are of rows that are left out here
        for card in chosen:
            segments = 4 if card is chosen[0] else 1
            settings = [f"{name}={value}" for name, value in {**given, "segments": segments}.items()]
            words = ["rehearse", "run", card.name, "--device", "cpu", "--out", str(folder), *chosen_settings(*settings)]
            patch.setattr("sys.argv", words)
            with pytest.raises(SystemExit) as end:
                cli.main()
            assert end.value.code == 0, [p.read_text() for p in folder.glob("points/*.failed/error.txt")]
    return folder


def test_the_cards_score_and_draw_the_answers(measured: Path):
    shown = {card.figure.name: card for card in load_group(measured).cards}
    free, turns = shown["metronome-table2-quality"], shown["metronome-turn-based"]
    values = {found.claim.id: found.spread.median for card in (free, turns) for found in card.claims if found.values}
    free_ids = {f"table2-quality-{kind}-{row}" for kind in ("mid", "fresh") for row in ("unbounded", "1024-16")}
    assert values.keys() == free_ids | {"turn-based-answer-stated-metronome", "turn-based-frames-right-metronome"}
    assert all(value is not None and 0 <= value <= 0.5 for value in values.values())
    assert {found.outcome for card in (free, turns) for found in card.claims} == {INCONCLUSIVE, NOT_MEASURED}
    assert free.figure.draw is not None
    with style():
        drawn: Any = free.figure.draw(free.panels)
    assert all(axes.has_data() for axes in drawn.figure.axes)


def test_the_record_holds_the_answer_to_each_frame(measured: Path):
    for point in (measured / "points").iterdir():
        record = load_record(point)
        params: Any = record.point.workload_params
        outputs, answers = record.table("outputs"), record.table("answers")
        frames = 8 if params["mode"] == "free" else 2
        assert outputs.groupby("session")["frame"].apply(list).to_list() == [list(range(frames))] * 2
        assert outputs["tokens"].map(len).between(1, 4).all()
        assert len(answers) == 2 * params["segments"]
        assert record.counters["sounds_heard"] == 2 * frames
        if record.point.engine == "metronome" and record.point.engine_params["sinks"]:
            assert record.counters["thinker.pinned_blocks"] > 0
