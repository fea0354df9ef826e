"""Conversations on real execution, under each engine's own policy: the thinker says what `LLM.generate` says."""

from dataclasses import replace

import pytest

from engines.registry import ENGINES
from tests.builders import in_own_process

pytestmark = pytest.mark.slow("runs a model on the CPU")

HOLDING = {
    "lead_cap_s": 0.2,
    "pacing": "always",
    "talker_safe_s": 0.1,
    "delivered_safe_s": 0.0,
    "telemetry_timeout_s": 86_400.0,
}
"""With which LiveServe holds talker requests: a first packet of 0.96 s is a longer lead than it allows, and plays until
the next one, of 25 frames, has come, where a step takes less than 38 ms."""


SERVER = {"deployment": "speech_tiny", "abort_at": "layer", "first_chunk_frames": 12}

NO_SPEECH = {"nova", "pf_limit", "multi_stream", "distserve_p"}
"""They refuse a deployment of thinker and talker, each in a sentence that its own tests hold."""


def converse(engine: str) -> list[tuple[list[int], list[int], int, bool]]:
    """Three calls with barge-ins on thinker and talker. Of each reply: its prompt, its tokens, how many it was to have,
    and whether it was cut.

    All three speak and end at once, so that their first replies, which nobody cuts, are at the talker together; the
    second ones are cut with their first audio, before they can be complete on any machine.
    """
    from engines.server import ServerParams
    from harness.client.client_params import ClientParams
    from tests.engines.real import served
    from workloads.registry import make_trace
    from workloads.trace import Trace

    params = ServerParams.model_validate(SERVER)
    calls = {"sessions": 3, "turns": 3, "reply_tokens": 60, "utterance_s": 0.4, "think_s": 0.2, "p": 0}
    turns = [turn for session in make_trace("voice", calls, seed=1).sessions for turn in session.turns]
    first = {"arrival_s": 0.0, "audio_s": 0.4, "input_tokens": 6, "reply_audio_s": 3.2}
    cuts = {0: None, 1: 1e-3}
    trace = Trace.from_turns(
        replace(turn, network_s=0.0, barge_in_after_s=cuts.get(turn.turn, 0.3), **({} if turn.turn else first))
        for turn in turns
    )
    chosen = HOLDING if engine == "liveserve" else {}
    server, replies, log = served(engine, chosen, params, trace, ClientParams.model_validate({"ack_s": 0.05}))
    events = log.events().to_pandas()
    assert (events["kind"] == "abort").sum() > 0, "nobody was interrupted"
    assert sum(len(reply.text_ids) for reply in replies) > 50
    assert any(len(reply.prompt) > reply.user_tokens for reply in replies), "no history came back"
    counters = server.counters()
    assert engine != "liveserve" or counters["talker.u2_deferred"] > 0, "the policy held nobody"
    return [(reply.prompt, reply.text_ids, reply.text_total, reply.cancelled) for reply in replies]


def compare(engines: list[str]) -> dict[str, str]:
    """Errors by engine, empty for a right one; in a process of its own, which loads vLLM once."""
    from engines.server import ServerParams, resolve
    from tests.engines.real import OfflineEngine

    stock = OfflineEngine(resolve(ServerParams.model_validate(SERVER)).stages["thinker"])
    wrong = dict.fromkeys(engines, "")
    for engine in engines:
        try:
            replies = converse(engine)
            expected = stock.generate([reply[0] for reply in replies], [reply[2] for reply in replies])
            for (_, tokens, total, cut), stock_tokens in zip(replies, expected, strict=True):
                assert tokens == stock_tokens[: len(tokens)]
                assert len(tokens) == total or cut
        except Exception as error:
            wrong[engine] = f"{type(error).__name__}: {error}"
    return wrong


def test_a_policy_changes_no_token():
    engines = [name for name, spec in ENGINES.items() if spec.kind == "turns" and name not in NO_SPEECH]
    assert not {engine: error for engine, error in in_own_process(compare, engines).items() if error}
