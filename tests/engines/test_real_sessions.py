"""Interaction sessions on real CPU execution: what a session says is what `LLM.generate` says to the same context."""

from collections.abc import Iterable
from typing import Any

import pytest

from engines.frames.session_engine import Chunk
from tests.builders import in_own_process
from tests.engines.frames import frames, serve
from tests.engines.real import stock_tokens

pytestmark = pytest.mark.slow("runs a model on the CPU")

EncodedAudio = tuple[list[Chunk], list[int]]
"""A session's chunks as they were fed, and what it said, over all of them."""


def contexts(sessions: Iterable[EncodedAudio]) -> list[tuple[list[int], list[int]]]:
    """Of each chunk that was answered in full: the context it was answered in, and the answer."""
    pairs = []
    for chunks, said in sessions:
        context: list[int] = []
        begun = 0
        for chunk in chunks:
            answer = said[begun : begun + chunk.max_tokens]
            begun += chunk.max_tokens
            context = context + chunk.prompt
            if len(answer) == chunk.max_tokens:
                pairs.append((context, answer))
            context = context + answer[:-1]  # the last token of an answer is not fed back
    return pairs


def converse() -> tuple[list[EncodedAudio], int, dict[str, Any]]:
    """Calls on real execution, in a process of their own: an engine that closes takes others in its process along."""
    trace = frames(3, 6, outputs=lambda session, frame: 3 + (session + 2 * frame) % 5, frame_s=0.4)
    heard: dict[str, EncodedAudio] = {}

    def arrange(server):
        [engine] = (batcher.engine for batcher in server.gateway.batchers)
        append = engine.append

        def watched(request, chunk):
            chunks, _ = heard.setdefault(request.id, ([], request.output))
            chunks.append(chunk._replace(prompt=list(chunk.prompt)))  # vLLM extends the first one
            append(request, chunk)

        engine.append = watched

    tiny = {"deployment": "llama_tiny"}
    run = serve(trace, device="cpu", formula=False, arrange=arrange, server=tiny, template_tokens=24)
    return list(heard.values()), len(run.ticks), run.replay.proof


def test_a_session_answers_each_chunk_as_llm_generate_does():
    heard, ticks, proof = in_own_process(converse)
    pairs = contexts(heard)
    assert len(pairs) >= 3 * 5
    expected = stock_tokens([context for context, _ in pairs], max(len(answer) for _, answer in pairs))
    assert [answer for _, answer in pairs] == [
        tokens[: len(answer)] for tokens, (_, answer) in zip(expected, pairs, strict=True)
    ]
    assert len({token for _, answer in pairs for token in answer}) > 15, "one word proves nothing"
    assert max(len(context) for context, _ in pairs) > 100
    assert ticks == 6
    assert proof["requests_after"] == proof["kv_blocks_used_after"] == 0
