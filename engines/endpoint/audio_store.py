"""Sound that users sent over their sockets, kept until the audio encoder has taken it."""

import numpy as np
from scipy.signal import resample_poly

from workloads.trace import Turn


class AudioStore:
    """Implements `engines.devices.audio_encoder.Sound`. `put` and `forget` run on the loop; calls come from the
    encoder's thread.

    `kept`: True if the model encodes audio; else nothing is kept.
    """

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self._audio: dict[int, dict[int, tuple[bytes, int]]] = {}

    @property
    def waiting(self) -> int:
        """Turns that have not been encoded yet."""
        return sum(len(turns) for turns in list(self._audio.values()))

    def put(self, turn: Turn, pcm: bytes, rate: int) -> None:
        """Keep 16-bit mono sound at `rate` samples/s."""
        if self.kept:
            self._audio.setdefault(turn.session, {})[turn.turn] = (pcm, rate)

    def forget(self, session: int) -> None:
        """Forget a session that has ended."""
        self._audio.pop(session, None)

    def __call__(self, turn: Turn, rate: int) -> np.ndarray:
        """Return the sound of a turn, and forget it: float32 from -1 to 1, shape (samples,)."""
        # A session may end before its sound is read; silence then replaces it, and nobody reads the answer.
        pcm, given = self._audio.get(turn.session, {}).pop(turn.turn, (bytes(2 * rate), rate))
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
        return samples if given == rate else resample_poly(samples, rate, given).astype(np.float32)
