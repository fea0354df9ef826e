"""How long a reply is that nobody said the length of: drawn as workload `voice` draws it, alike at every stage."""

from functools import lru_cache

from engines.models import Model
from workloads.distributions.lengths import SPOKEN_REPLY
from workloads.distributions.speech import speech_rate
from workloads.seeds import stream


class Lengths:
    """Replies by the id that a request has at all stages."""

    def __init__(self, seed: int, model: Model) -> None:
        self._seed = seed
        self._frame_s = model.frame_s or 0.08
        self.of = lru_cache(1024)(self._draw)

    def _draw(self, request_id: str) -> tuple[int, int]:
        """Text tokens and codec frames of the reply; a frame for each token at least."""
        rng = stream(self._seed, f"omni replies/{request_id}")
        text = int(SPOKEN_REPLY.sample(rng, 1)[0])
        return text, max(text, round(text * float(speech_rate(rng, 1)[0]) / self._frame_s))
