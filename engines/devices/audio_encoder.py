"""The audio encoder of a thinker on a real device: vLLM's input processing, in a thread of its own.

Clients, gateway and models go on meanwhile, as they do with vLLM's front end.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from engines.core.vllm_adapter.audio_input import AudioProcessor
from engines.core.vllm_adapter.execution import ModelExecutor
from engines.core.vllm_adapter.multimodal import Encoded, last
from workloads.generators.content import pcm_for
from workloads.trace import Trace, Turn

Sound = Callable[[Turn, int], np.ndarray]


def sound_of(trace: Trace) -> Sound:
    """Return the sound of the users of `trace`: (turn, samples/s) -> mono float32, shape (samples,).

    The returned function raises UserError if the trace has no sound.
    """

    def sound(turn: Turn, rate_hz: int) -> np.ndarray:
        packets = b"".join(pcm_for(trace, turn, rate_hz))
        return np.frombuffer(packets, "<i2").astype(np.float32) / 32768

    return sound


class AudioEncoder:
    """Implements `engines.turns.gateway.AudioEncoder` for the thinker that `executor` runs."""

    def __init__(self, executor: ModelExecutor, sound: Sound) -> None:
        self._executor = executor
        self._processor = AudioProcessor(executor.config)
        self._sound = sound
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audio-encoder")
        self._loop = asyncio.get_running_loop()

    @property
    def longest_tokens(self) -> int:
        return self._processor.longest_tokens

    async def encode(self, turn: Turn) -> Encoded:
        return await self._loop.run_in_executor(self._thread, self._process, turn)

    def read(self, text: str) -> list[int]:
        return self._processor.read(text)

    def last(self, token_ids: list[int], features: list[Any], room: int) -> tuple[list[int], list[Any]]:
        return last(token_ids, features, room)

    def warm_up(self) -> int:
        """Let the thinker answer a second of noise, so that no measured request pays for first calls; returns the
        steps."""
        noise = np.random.default_rng(0).uniform(-0.1, 0.1, self._processor.rate_hz).astype(np.float32)
        noise_audio = self._processor.process(noise, self._processor.rate_hz)
        return self._executor.warm_up(noise_audio.token_ids, noise_audio.features)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _process(self, turn: Turn) -> Encoded:
        rate_hz = self._processor.rate_hz
        return self._processor.process(self._sound(turn, rate_hz), rate_hz)
