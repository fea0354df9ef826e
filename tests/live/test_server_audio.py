"""Speech from a caller reaches a real thinker on the CPU, and its tokenizer makes the text."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.endpoint.audio_store import AudioStore
from engines.endpoint.detokenizer import CONTEXT, CheckpointDetokenizer, detokenizer_of
from tests.builders import in_own_process
from tests.engines.omni_checkpoint import write_omni_checkpoint, write_tokenizer
from tests.live.calls import Caller
from tests.waiting import until
from workloads.trace import Turn

RATE = 24_000


def tone(seconds: float, hz: float = 440.0) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE)).astype(np.int16)


def turn_of(session: int, turn: int) -> Turn:
    return Turn(session, turn, 0.0, "audio", 1, 1.0, 1, None, None, None, None, 0.0)


def test_the_audio_store_resamples_a_turn_once_and_forgets_it_with_its_session() -> None:
    audio_store = AudioStore(kept=True)
    for session, turn in ((0, 0), (0, 1), (1, 0)):
        audio_store.put(turn_of(session, turn), tone(1.0).tobytes(), RATE)
    heard = audio_store(turn_of(0, 0), 16_000)
    assert heard.dtype == np.float32 and len(heard) == 16_000
    at = np.fft.rfft(heard)
    assert int(np.abs(at).argmax()) == 440 and np.abs(heard).max() == pytest.approx(8000 / 32768, rel=0.02)
    assert audio_store.waiting == 2
    audio_store.forget(0)
    assert audio_store.waiting == 1 and not audio_store(turn_of(0, 1), 16_000).any()
    deaf = AudioStore(kept=False)
    deaf.put(turn_of(0, 0), b"\0\0", RATE)
    assert not deaf.waiting


def test_text_is_the_same_however_its_tokens_are_grouped(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    write_tokenizer(tmp_path)
    detokenizer = detokenizer_of(str(tmp_path))
    assert isinstance(detokenizer, CheckpointDetokenizer)
    assert detokenizer_of(None).kind == detokenizer_of("nowhere").kind == "syllables"
    text = "Grüße, 你好!"  # a byte-level tokenizer: characters of several tokens
    ids = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True).encode(text)
    assert len(ids) > len(text)
    for step in (1, 2, 3, 5):
        cuts = [*range(0, len(ids), step), len(ids)]
        pieces = [detokenizer.text(0, a, ids[max(0, a - CONTEXT) : b], b - a) for a, b in pairwise(cuts)]
        assert "".join(pieces) == text, step


def serve(checkpoint: str) -> dict[str, Any]:
    """Two callers of a real thinker on the processor: one is answered, the other vanishes while it is heard."""
    from engines.core import vllm_adapter
    from engines.endpoint.server_sessions import build_sessions
    from engines.registry import ENGINES
    from engines.server import ResolvedServer, ServerParams
    from harness.clocks import clock

    async def main() -> dict[str, Any]:
        vllm_adapter.use_clock(asyncio.get_running_loop().time)
        server = ResolvedServer.of(ServerParams.model_validate({"deployment": "omni_tiny", "checkpoint": checkpoint}))
        sessions = build_sessions("vllm_omni", ENGINES["vllm_omni"].read({}), server, 7, device="cpu")
        sessions.server.warm_up()
        tasks = sessions.server.start()
        caller, lost = Caller(sessions), Caller(sessions)
        longest_s = sessions.context.longest_s
        for answers, seconds in enumerate((0.1, 1.5, longest_s, longest_s)):
            for each in (caller, lost):
                say(each, seconds)
            lost.connection.end()
            await until(lambda n=answers: len(caller.done()) > n or any(task.done() for task in tasks), 120)
            assert not [task.exception() for task in tasks if task.done()]
        caller.append(tone(longest_s))
        caller.append(tone(0.1))
        await caller.leave()
        for task in tasks:
            task.cancel()
        return {
            "done": caller.done(),
            "errors": caller.errors(),
            "about": caller.events[0]["session"]["rehearsal"],
            "counters": sessions.server.counters(),
            "waiting": sessions.context.audio_store.waiting,
            "audio": caller.audio(),
            "held": sessions.server.close(),
            "longest_s": longest_s,
        }

    return clock.run(main(), virtual=False)


def say(caller: Caller, seconds: float) -> None:
    caller.say("session.update", session={"audio": {"input": {"turn_detection": None}}})
    caller.append(tone(seconds))
    caller.say("input_audio_buffer.commit")
    hint = '{"output_tokens": 6, "reply_audio_s": 0.4}'
    caller.say("response.create", response={"metadata": {"rehearsal": hint}})


@pytest.mark.slow("runs a model on the CPU")
def test_a_real_thinker_counts_the_audio_tokens_of_each_caller(tmp_path: Path) -> None:
    write_omni_checkpoint(tmp_path)
    served = in_own_process(serve, str(tmp_path))
    done = served["done"]
    assert [each["status"] for each in done] == ["completed"] * 4 and served["errors"] == ["buffer_full"]
    assert served["about"]["text"] == "tokenizer" and served["about"]["device"] == "cpu"
    first, second = (each["usage"]["input_tokens"] for each in done[:2])
    # 13 tokens/s between two marks, and before the second sound what was said and answered before it.
    assert first == 2 + 2 and second == first + 6 + 2 + 20
    assert served["longest_s"] > 10 and len(served["audio"]) == 4 * 5 * 1920
    assert served["counters"]["sounds_heard"] in (4, 5)  # the other's sound may have been under way already
    assert served["waiting"] == 0 and served["held"]["requests_after"] == 0
