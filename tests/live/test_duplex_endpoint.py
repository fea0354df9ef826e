"""Calls on open microphones at servers that do not listen, or refuse; and what the command line makes of them."""

import json
import math
from typing import Any

import pytest

from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.target import TargetParams
from tests.live.open_microphone import PACKET_S, Agent, open_call, play


async def silent(agent: Agent) -> None:
    """Says nothing."""


def test_a_server_that_never_answers_fails_the_turn_and_the_call_ends(monkeypatch: Any) -> None:
    heard = play(monkeypatch, open_call({}, {}), silent)
    kinds = heard.events["kind"].tolist()
    assert kinds.count("turn_failed") == 1 and kinds.count("turn_start") == 1 and "session_end" in kinds
    assert heard.metrics["end_of_turn_delay_p50"].value == math.inf
    assert len(heard.call.pcm) * PACKET_S > 5  # the microphone was open to the end


def target(**settings: Any) -> TargetParams:
    return TargetParams.model_validate({"url": "ws://127.0.0.1:9/v1/realtime", "dialect": "rehearsal", **settings})


def test_settings_of_turn_taking_reach_the_server_or_are_refused() -> None:
    def session(**settings: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Its turn detection, and what is ours."""
        [message] = dialect_of(target(**settings)).hello()
        session = json.loads(message)["session"]
        return session["audio"]["input"]["turn_detection"], session.get("rehearsal")

    detection, ours = session(turn_detection="server", silence_duration_ms=300, min_duration_s=0.5, min_words=2)
    assert detection["silence_duration_ms"] == 300
    assert ours == {"interruption": {"min_duration_ms": 500, "min_words": 2}}
    detection, ours = session(turn_detection="semantic", eagerness="high")
    assert detection["eagerness"] == "high" and ours is None
    for dialect in ("openai", "vllm_omni"):
        assert "min_words" in (dialect_of(target(dialect=dialect, min_words=2)).cannot(typed=False) or "")


@pytest.mark.parametrize("kind", ("failed", "garbage", "closed"))
def test_a_call_that_is_lost_is_written_down(monkeypatch: Any, kind: str) -> None:
    async def script(agent: Agent) -> None:
        await agent.reply("r0", 1.6, 0.4)
        if kind == "failed":
            await agent.peer.done("r0", "failed")
        elif kind == "garbage":
            await agent.peer.say("response.output_audio.delta", response_id="r0", delta="?A=", item_id="i")
        else:
            await agent.peer.socket.close()

    heard = play(monkeypatch, open_call({}, {}), script)
    assert len(heard.failures) == 1 and "turn_failed" in heard.events["kind"].tolist()
