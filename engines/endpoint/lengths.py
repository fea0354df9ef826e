"""The lengths of replies: a modelled device cannot know them, so the client states them, or they are drawn as workloads
draw them."""

from typing import Any

import msgspec
import numpy as np

from engines.deployments import Deployment
from engines.endpoint.protocol import Refusal
from workloads.distributions.lengths import SPOKEN_REPLY
from workloads.distributions.speech import lognormal, speech_rate
from workloads.generators.calls import FRAME_CV, SESSION_CV, TOKENS_PER_FRAME
from workloads.seeds import stream
from workloads.trace import CONTENTS

CHARACTERS_PER_TOKEN = 4
"""Characters per token of typed text, as the workloads count them."""

CHARACTER_BYTES, OTHER_BYTES = 12, 65_536
"""Bytes of a character in JSON at most, which is a pair of escapes; and of the rest of a request, such as tools:
[chosen]."""

MOST_INPUT = 2**20
"""[chosen] most tokens that a client may state for a turn."""


class Hint(msgspec.Struct, frozen=True):
    """`response.metadata.rehearsal`. `output_tokens`: text of the reply; `reply_audio_s`: its speech, s, and null if it
    is not spoken; `visual_tokens`, `input_tokens`, `content`: of the user's turn, as in a trace."""

    output_tokens: int | None = None
    reply_audio_s: float | msgspec.UnsetType | None = msgspec.UNSET
    visual_tokens: int | None = None
    input_tokens: int | None = None
    content: int | None = None


def hint_of(response: dict[str, Any]) -> Hint:
    """Return the lengths that a response.create states. Raises Refusal."""
    metadata = response.get("metadata")
    text = metadata.get("rehearsal") if isinstance(metadata, dict) else None
    if text is None:
        return Hint()
    where = "response.metadata.rehearsal"
    try:
        hint = msgspec.json.decode(text, type=Hint)
    except (msgspec.DecodeError, TypeError, UnicodeError, RecursionError) as error:
        raise Refusal(f"{where} is no JSON object of lengths in a string: {error}", param=where) from None
    return _within(hint, where)


def hint_from(reply: dict[str, Any]) -> Hint:
    """Return the lengths that a rehearsal.silence states. Raises Refusal."""
    try:
        return _within(msgspec.convert(reply, Hint), "reply")
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refusal(f"reply holds no lengths: {error}", param="reply") from None


def _within(hint: Hint, where: str) -> Hint:
    limits = {
        "output_tokens": (1, MOST_INPUT),
        "reply_audio_s": (0, 86_400),
        "visual_tokens": (0, MOST_INPUT),
        "input_tokens": (1, MOST_INPUT),
        "content": (0, CONTENTS - 1),
    }
    for name, (least, most) in limits.items():
        value = getattr(hint, name)
        if value not in (None, msgspec.UNSET) and not least <= value <= most:
            raise Refusal(f"{name} is {value}; set {least} to {most}.", param=f"{where}.{name}")
    return hint


class ReplyLengths:
    """Draws one session's replies: a rate of speech per session, lengths as of workload voice."""

    def __init__(self, seed: int, session: int, deployment: Deployment) -> None:
        self._rng = stream(seed, f"live replies/{session}")
        self._s_per_token = float(speech_rate(self._rng, 1)[0])
        entry = deployment.stages[deployment.entry]
        self._most_text = min(entry.max_tokens, entry.max_model_len - 1)
        self._most_s = 0.0
        if deployment.speaks:
            talker, frame_s = deployment.stages["talker"], deployment.model.frame_s
            assert frame_s is not None
            self._most_s = frame_s * min(talker.max_tokens, talker.max_model_len - talker.max_model_len // 8)

    def of(self, hint: Hint, spoken: bool, limit: int | None) -> tuple[int, float | None]:
        """Return text tokens and seconds of speech (None: text only) of the next reply; `limit`: most text tokens. A
        text may be longer than the model can, as `max_tokens` of a client, which the gateway cuts or refuses."""
        drawn = int(SPOKEN_REPLY.sample(self._rng, 1)[0])  # always, so that one hint shifts no later draw
        text = min(hint.output_tokens or drawn, limit or MOST_INPUT)
        if not spoken or hint.reply_audio_s is None:
            return text, None
        text = min(text, self._most_text)
        asked_s = hint.reply_audio_s if hint.reply_audio_s is not msgspec.UNSET else text * self._s_per_token
        return text, min(asked_s, self._most_s)


class FrameLengths:
    """Draws one interaction session's answers, as workload metronome does."""

    def __init__(self, seed: int, session: int) -> None:
        self._rng = stream(seed, f"live answers/{session}")
        self._mean = TOKENS_PER_FRAME * float(lognormal(self._rng, 1.0, SESSION_CV, 1)[0])

    def next(self) -> int:
        """Return the text tokens of the next answer."""
        return max(1, int(np.rint(self._mean * lognormal(self._rng, 1.0, FRAME_CV, 1)[0])))


def most_bytes(tokens: int) -> int:
    """Return the bytes of a request at most whose text has this number of tokens."""
    return OTHER_BYTES + tokens * CHARACTERS_PER_TOKEN * CHARACTER_BYTES


def typed_tokens(text: str) -> int:
    """Return the tokens of typed text."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
