"""What a Pipecat bot hears: Silero's voice activity, and at each of its stops Smart Turn's probability that the turn is
over. Both run as Pipecat runs them, with its defaults, on what it would have kept of the call. Needs pipecat-ai.
"""

import os
from dataclasses import dataclass

import numpy as np
from loguru import logger
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3  # type: ignore[import-not-found]
from pipecat.audio.vad.silero import SileroVADAnalyzer  # type: ignore[import-not-found]
from pipecat.audio.vad.vad_analyzer import VAD_START_SECS, VADState  # type: ignore[import-not-found]
from pipecat.audio.volume import AudioVolumeTracker  # type: ignore[import-not-found]

logger.disable("pipecat")
RATE = 16_000
CHUNK = 320  # samples, 20 ms
BEFORE_S, AFTER_S = 0.5, 0.6  # silence around a clip; Silero stops 0.2 s after speech does
KEPT_S = 0.5 + VAD_START_SECS  # of sound before speech was heard, which Smart Turn is given as well
LONGEST_S = 8
OVER = 0.5


@dataclass(frozen=True)
class Heard:
    """Whether speech was heard, and of each stop Smart Turn's probability that the turn is over."""

    speech: bool
    stops: tuple[float, ...]

    @property
    def over(self) -> bool:
        """Whether the turn was over at the last stop."""
        return bool(self.stops) and self.stops[-1] > OVER


class Ear:
    """One caller's detectors. `model`: another Smart Turn file than the one in the package."""

    def __init__(self, model: str | None = None) -> None:
        self._vad = SileroVADAnalyzer()
        self._turn = LocalSmartTurnAnalyzerV3(cpu_count=1, smart_turn_model_path=model or os.environ.get("SMART_TURN"))
        self._turn._sample_rate = RATE

    def hear(self, pcm: np.ndarray) -> Heard:
        """Listen to int16 samples at 16 kHz between two silences."""
        vad = self._vad
        vad._model.reset_states()  # type: ignore[union-attr]
        vad.set_sample_rate(RATE)
        vad._windows_since_reset, vad._vad_buffer = 0, b""
        vad._prev_volume, vad._volume_tracker = 0.0, AudioVolumeTracker()
        sound = np.pad(pcm, (round(BEFORE_S * RATE), round(AFTER_S * RATE)))
        state, begin, speech, stops = VADState.QUIET, None, False, []
        for at in range(CHUNK, len(sound) + 1, CHUNK):
            new = vad._run_analyzer(sound[at - CHUNK : at].tobytes())
            if new == VADState.SPEAKING and begin is None:
                begin, speech = at, True
            if new == VADState.QUIET and state in (VADState.STOPPING, VADState.SPEAKING) and begin is not None:
                stops.append(self.turn_is_over(sound[max(0, begin - round(KEPT_S * RATE)) : at]))
                if stops[-1] > OVER:
                    begin = None
            state = new
        return Heard(speech, tuple(stops))

    def turn_is_over(self, pcm: np.ndarray) -> float:
        """Return Smart Turn's probability for int16 samples at 16 kHz, silence at the end included."""
        samples = pcm[-LONGEST_S * RATE :].astype(np.float32) / 32768
        return float(self._turn._predict_endpoint(samples)["probability"])
