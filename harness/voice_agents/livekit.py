"""LiveKit Agents' metrics of a turn (livekit-agents 1.8, llm/chat_context.py, `MetricsReport`), as parts that sum.

A user's message says how long its transcript and the decision that the turn is over took, the agent's answer its
model's first token, its first sentence and its first sound, and the whole as `e2e_latency`. What they leave is the
pipeline's; where they overlap, as a model asked before the turn is over does, the rest is below 0 and is called so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.voice_agents.gap import Gap, Part


def of_items(items: Sequence[Mapping[str, Any]]) -> Iterator[Gap]:
    """Returns the gaps of a chat history in order: answers with an `e2e_latency`, and the user's words before each."""
    asked: Mapping[str, Any] = {}
    for item in items:
        metrics = item.get("metrics") or {}
        if item.get("role") == "user":
            asked = metrics
        elif item.get("role") == "assistant" and metrics.get("e2e_latency") is not None:
            yield _gap(asked, metrics)
            asked = {}


def _gap(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> Gap:
    transcript_s, decided_s = _of(asked, "transcription_delay"), _of(asked, "end_of_turn_delay")
    first_s, sentence_s = _of(answered, "llm_node_ttft"), answered.get("llm_node_ttfs")
    sound_s = _of(answered, "tts_node_ttfb")
    waits_s = min(max(0.0, sentence_s - first_s), sound_s) if sentence_s is not None else 0.0
    parts = [
        Part("service", "transcription (STT)", min(transcript_s, decided_s) if decided_s else transcript_s),
        Part("setting", "end of turn (endpointing)", max(0.0, decided_s - transcript_s)),
        Part("bot", "on_user_turn_completed", _of(asked, "on_user_turn_completed_delay")),
        Part("service", "first token (LLM)", first_s),
        Part("setting", "first sentence (tokenizer)", waits_s),
        Part("service", "first sound (TTS)", sound_s - waits_s),
        Part("pipeline", "output (playback_latency)", _of(answered, "playback_latency")),
    ]
    total_s = float(answered["e2e_latency"])
    rest_s = total_s - sum(part.seconds for part in parts)
    name = "between" if rest_s >= 0 else "begun before the turn was over"
    return Gap(total_s, (*(part for part in parts if part.seconds), Part("pipeline", name, rest_s)))


def _of(metrics: Mapping[str, Any], name: str) -> float:
    return float(metrics.get(name) or 0.0)
