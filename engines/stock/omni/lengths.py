"""The lengths of replies, the same at every stage: as their client states, as their text needs, or drawn as workload
`voice` draws them."""

from collections import OrderedDict

from engines.endpoint.lengths import typed_tokens
from engines.models import Model
from workloads.distributions.lengths import SPOKEN_REPLY
from workloads.distributions.speech import speech_rate
from workloads.seeds import stream

REMEMBERED = 4096
"""[chosen] newest replies whose length a client has stated, or whose length was drawn."""


class Lengths:
    """Text tokens and codec frames of replies, by the ids that their requests have at all stages."""

    def __init__(self, seed: int, model: Model) -> None:
        self._seed = seed
        self._frame_s = model.frame_s or 0.08
        self._token_s = model.speech_s_per_text_token
        self._lengths: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def tell(self, name: str, text: int, audio_s: float | None) -> None:
        """Set the length of the next reply of a session: text tokens, and s of audio (None: a frame for each token)."""
        frames = text if audio_s is None else max(1, round(audio_s / self._frame_s))
        self._keep(name, (text, frames))

    def speak(self, request_id: str, text: str) -> None:
        """Set the length of a reply that says `text`, by the model's speed of speech."""
        tokens = typed_tokens(text)
        self.tell(request_id, tokens, tokens * self._token_s)

    def of(self, request_id: str, session: str | None = None) -> tuple[int, int]:
        """Return text tokens and codec frames of a reply. A length that was set for its session goes first."""
        lengths = self._lengths.get(request_id)
        if lengths is None:
            session_lengths = self._lengths.get(session) if session is not None else None
            lengths = self._draw(request_id) if session_lengths is None else session_lengths
            self._keep(request_id, lengths)
        return lengths

    def _keep(self, name: str, lengths: tuple[int, int]) -> None:
        self._lengths[name] = lengths
        if len(self._lengths) > REMEMBERED:
            self._lengths.popitem(last=False)

    def _draw(self, request_id: str) -> tuple[int, int]:
        """Draw a length, with a frame for each token at least."""
        rng = stream(self._seed, f"omni replies/{request_id}")
        text = int(SPOKEN_REPLY.sample(rng, 1)[0])
        return text, max(text, round(text * float(speech_rate(rng, 1)[0]) / self._frame_s))
