"""Rejects, by name, fields of a client's settings that this server does not serve; none is ignored silently.

A client that gets `session.updated` has all it asked for. Fields that only a language model would act upon
(`MODEL_FIELDS`) are passed over: replies have lengths and no sense.
"""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from engines.endpoint.protocol import Refusal

MODEL_FIELDS = frozenset(
    {
        "instructions",
        "parallel_tool_calls",
        "prompt",
        "reasoning",
        "temperature",
        "tool_choice",
        "tools",
        "tracing",
        "truncation",
    }
)
"""[config: OpenAI Realtime API]"""
OFF_AS_NULL = frozenset(
    {"audio", "idle_timeout_ms", "include", "input", "noise_reduction", "speed", "transcription", "voice"}
)
"""Fields that a client may set to null, as they are off on this server. [config: OpenAI Realtime API]"""
BETA = {
    "input_audio_format": "audio.input.format",
    "input_audio_noise_reduction": None,
    "input_audio_transcription": None,
    "max_response_output_tokens": "max_output_tokens",
    "modalities": "output_modalities",
    "output_audio_format": "audio.output.format",
    "turn_detection": "audio.input.turn_detection",
    "voice": "audio.output.voice",
}
"""Fields of OpenAI's beta form, mapped to the served GA form. [config: OpenAI Realtime API]"""


def check_served(
    sent: Mapping[str, Any], served: type[msgspec.Struct], where: str, kept: str, top: bool = True
) -> None:
    """Raise Refusal with the first field of `sent` that is not one of `served`, at any depth.

    `where`: session or response, or the path within one; `kept`: the settings that stay; `top`: True where OpenAI's
    beta form and the model's fields belong.
    """
    fields = {field.name: field.type for field in msgspec.structs.fields(served)}
    for name, value in sent.items():
        if name in fields:
            inner = _struct_in(fields[name])
            if inner is not None and isinstance(value, Mapping):
                check_served(value, inner, f"{where}.{name}", kept, top=False)
        elif top and name in BETA:
            ours = BETA[name]
            fix = f"set {where}.{ours} instead" if ours and ours.split(".")[0] in fields else "leave it out"
            problem = f"{where}.{name} is of OpenAI's beta form, and this server speaks the GA form; {fix}"
            raise Refusal(f"{problem}. {kept}", param=f"{where}.{name}")
        elif not ((top and name in MODEL_FIELDS) or (value is None and name in OFF_AS_NULL)):
            field, able = f"{where}.{name[:64]}", ", ".join(sorted(fields))
            raise Refusal(f"{field} is not served; of {where} these are: {able}. {kept}", param=field)


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a field holds, alone or next to the mark of its absence."""
    for part in (kind, *get_args(kind)):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return part
    return None
