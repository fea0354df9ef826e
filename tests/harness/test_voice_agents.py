"""A voice agent's gap in parts that sum, from what Pipecat and LiveKit write."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.voice_agents.gap import Gap, Part, as_heard, owners_of, rows_of
from harness.voice_agents.livekit import of_items
from harness.voice_agents.read import read_gaps
from workloads.errors import UserError

LOG = """
2026-11-25 10:00:00.000 | INFO     | bot:on_latency:41 -  0.200s  endpointing wait     [config: VAD stop_secs]
2026-11-25 10:00:00.000 | INFO     | bot:on_latency:41 -  0.125s  transcription        [DeepgramSTTService#0]
2026-11-25 10:00:00.000 | DEBUG    | pipecat:x:1 - something else [that is no part]
2026-11-25 10:00:00.000 | INFO     | bot:on_latency:41 -  0.336s  LLM inference        [OpenAILLMService#0]
2026-11-25 10:00:00.000 | INFO     | bot:on_latency:41 -  0.359s  speech synthesis     [CartesiaTTSService#0]
2026-11-25 10:00:00.000 | INFO     | bot:on_latency:41 -  0.030s  first request        [bot]
2026-11-25 10:00:00.000 | INFO     | bot:on_latency:41 -  0.010s  pipeline             [pipecat]
2026-11-25 10:00:00.000 | INFO     | bot:on_latency:41 -  1.060s  TOTAL
2026-11-25 10:00:05.000 | INFO     | bot:on_latency:41 -  0.900s  first request        [bot]
2026-11-25 10:00:05.000 | INFO     | bot:on_latency:41 -  0.900s  TOTAL (from client connected)
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log"
    path.write_text(text)
    return path


def test_pipecat_s_log(tmp_path: Path) -> None:
    agent, [gap] = read_gaps(written(tmp_path, LOG))
    assert agent == "Pipecat" and gap.total_s == 1.06, "a greeting follows no turn"
    assert owners_of(rows_of([gap])) == pytest.approx(
        {"service": 0.82, "setting": 0.2, "bot": 0.03, "pipeline": 0.01}
    )


def breakdown(**more: object) -> dict:
    parts = [
        ("llm_inference", "LLM inference", "LLM#0", "service", 0.5),
        ("pipeline", "pipeline", "pipecat", "pipeline", 0.1),
    ]
    names = ("key", "label", "owner", "owner_kind", "duration_secs")
    told = [{**dict(zip(names, part, strict=True)), "start_time": 1.0} for part in parts]
    return {"contributions": told, "measured_from": "user_silence", "total_secs": 0.6, "ttfb": [], **more}


def test_pipecat_s_breakdowns(tmp_path: Path) -> None:
    greeting = breakdown(measured_from="client_connected")
    text = "\n".join(["started", json.dumps(breakdown()), json.dumps(greeting), json.dumps(breakdown())])
    agent, gaps = read_gaps(written(tmp_path, text))
    assert agent == "Pipecat" and [gap.total_s for gap in gaps] == [0.6, 0.6]
    with pytest.raises(UserError, match=r"its parts sum to 0.600 s and not to 0.700 s; give the file as"):
        read_gaps(written(tmp_path, json.dumps(breakdown(total_secs=0.7))))


def answer(**metrics: float) -> dict:
    return {"type": "message", "role": "assistant", "content": ["a"], "metrics": metrics}


def question(**metrics: float) -> dict:
    return {"type": "message", "role": "user", "content": ["q"], "metrics": metrics}


HISTORY = [
    answer(llm_node_ttft=0.2),
    question(transcription_delay=0.15, end_of_turn_delay=0.55, on_user_turn_completed_delay=0.02),
    {"type": "function_call", "name": "f"},
    answer(llm_node_ttft=0.3, llm_node_ttfs=0.4, tts_node_ttfb=0.25, e2e_latency=1.2, playback_latency=0.01),
    question(transcription_delay=0.1, end_of_turn_delay=0.5),
    answer(llm_node_ttft=0.4, tts_node_ttfb=0.2, e2e_latency=0.8),
]


def test_livekit_s_history(tmp_path: Path) -> None:
    agent, gaps = read_gaps(written(tmp_path, json.dumps({"chat_history": {"items": HISTORY}})))
    assert agent == "LiveKit" and [gap.total_s for gap in gaps] == [1.2, 0.8]
    first = {part.name: part.seconds for part in gaps[0].parts}
    assert first == pytest.approx(
        {
            "transcription (STT)": 0.15,
            "end of turn (endpointing)": 0.4,
            "on_user_turn_completed": 0.02,
            "first token (LLM)": 0.3,
            "first sentence (tokenizer)": 0.1,
            "first sound (TTS)": 0.15,
            "output (playback_latency)": 0.01,
            "between": 0.07,
        }
    )
    assert gaps[1].parts[-1] == Part("pipeline", "begun before the turn was over", pytest.approx(-0.3))  # type: ignore[arg-type]


def test_messages_one_a_line(tmp_path: Path) -> None:
    text = "\n".join(json.dumps({"event": "item", "item": item}) for item in HISTORY)
    assert len(read_gaps(written(tmp_path, text))[1]) == 2


@pytest.mark.parametrize("text", ["nothing of the kind", "[1, 2]", '{"role": "user"}'])
def test_a_file_without_turns(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="has no turn with its latency; give Pipecat's latency breakdowns"):
        read_gaps(written(tmp_path, text))


seconds = st.floats(0, 5)


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                name: seconds
                for name in ("llm_node_ttft", "llm_node_ttfs", "tts_node_ttfb", "playback_latency")
            },
        ),
        min_size=1,
        max_size=8,
    ),
    seconds,
    seconds,
    seconds,
)
def test_livekit_s_parts_always_sum(
    answers: list[dict], transcript: float, decided: float, total: float
) -> None:
    items = []
    for metrics in answers:
        items += [
            question(transcription_delay=transcript, end_of_turn_delay=decided),
            answer(**metrics, e2e_latency=total),
        ]
    gaps = list(of_items(items))
    assert len(gaps) == len(answers)
    rows = rows_of(gaps)
    assert sum(row.mean_s for row in rows) == pytest.approx(total, abs=1e-6)
    assert sum(row.mean_s for row in as_heard(gaps, total + 0.1)) == pytest.approx(total + 0.1, abs=1e-6)
    assert all(row.seconds >= 0 for gap in gaps for row in gap.parts[:-1])


def test_callers_hear_no_sooner_than_the_agent_speaks() -> None:
    gap = Gap(1.0, (Part("service", "all", 1.0),))
    with pytest.raises(ValueError, match=r"shorter by 0\.500 s than the agent's own"):
        as_heard([gap], 0.5)
    with pytest.raises(ValueError, match="its parts sum"):
        Gap(1.0, (Part("service", "half", 0.5),))
