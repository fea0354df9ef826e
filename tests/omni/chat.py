"""A client of vLLM-Omni's chat endpoint that takes text and audio as they come."""

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

WAV_HEADER = 44
BYTES_PER_S = 48_000


@dataclass
class Heard:
    """A reply: tokens of text, and when (s from the request) how much audio (s) came."""

    text: int = 0
    audio: list[tuple[float, float]] = field(default_factory=list)

    @property
    def audio_s(self) -> float:
        return sum(seconds for _, seconds in self.audio)


def request(session: str, text: int, frames: int) -> dict[str, Any]:
    """A question, with the text tokens and codec frames of its answer."""
    told = {"temperature": 0, "ignore_eos": True, "extra_args": {"session": session}}
    return {
        "model": "qwen3-omni",
        "messages": [{"role": "user", "content": f"Hello from {session}."}],
        "stream": True,
        "modalities": ["text", "audio"],
        "sampling_params_list": [
            {**told, "max_tokens": text},
            {**told, "max_tokens": frames},
            {"temperature": 0, "max_tokens": 65536},
        ],
    }


async def ask(
    http: aiohttp.ClientSession, address: str, asked: dict[str, Any], hang_up_after: int | None = None
) -> Heard:
    """The whole answer, or its first packets of audio."""
    heard, sent_s = Heard(), time.monotonic()
    async with http.post(f"{address}/v1/chat/completions", json=asked) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            for choice in chunk["choices"]:
                content = choice["delta"].get("content")
                if content and chunk.get("modality") == "audio":
                    sound = len(base64.b64decode(content)) - WAV_HEADER
                    heard.audio.append((time.monotonic() - sent_s, sound / BYTES_PER_S))
                elif content:
                    heard.text += len(content)  # a token is a letter, and a message may hold several
            if hang_up_after is not None and len(heard.audio) >= hang_up_after:
                return heard
    return heard
