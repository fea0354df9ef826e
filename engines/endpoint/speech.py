"""Speech of a text over HTTP, `POST /v1/audio/speech`: a subset of OpenAI's, sent as it is made, as vLLM-Omni does."""

import msgspec

from engines.deployments import Deployment
from engines.endpoint.base_session import SessionContext
from engines.endpoint.chat_request import read_body
from engines.endpoint.http_reply import HttpReply
from engines.endpoint.http_socket import HttpSocket
from engines.endpoint.lengths import Hint, ReplyLengths, typed_tokens
from engines.endpoint.protocol import Refusal
from engines.endpoint.response import PlaybackEstimate
from engines.endpoint.settings import OUTPUT_RATE
from engines.endpoint.voice import pieces
from engines.turns.gateway import Gateway

CONTENT_TYPE = f"audio/pcm;rate={OUTPUT_RATE}"


class SpeechRequest(msgspec.Struct):
    """The fields of a body that are read. Model and voice are ignored: there is one of each."""

    input: str
    response_format: str = "pcm"
    stream_format: str = "audio"
    sample_rate: int = OUTPUT_RATE
    speed: float = 1.0

    @property
    def stream(self) -> bool:
        """True always: samples are sent as they are made, and are the same in either case."""
        return True


def speech_request(body: bytes, deployment: Deployment) -> SpeechRequest:
    """Read a speech request. Raises Refusal, whose `param` names the wrong field."""
    request = read_body(body, SpeechRequest, "request for speech")
    served = SpeechRequest("")
    for name in ("response_format", "stream_format", "sample_rate", "speed"):
        value, ours = getattr(request, name), getattr(served, name)
        if value != ours:
            raise Refusal(f"{name} is {value!r}, and this server knows only {ours!r}; set that.", param=name)
    talker, model = deployment.stages[deployment.entry], deployment.model
    overhead = talker.max_tokens + model.talker_prompt_extra_tokens + model.frame_lag_steps
    tokens, most = typed_tokens(request.input), talker.max_model_len - overhead
    if not 1 <= tokens <= most:
        raise Refusal(
            f"input has {len(request.input)} characters, {tokens} tokens; send 1 to {most} tokens.", param="input"
        )
    return request


class Speech(HttpReply):
    """The speech of one text. A modelled device cannot know its length: it is drawn for texts of that length."""

    def __init__(
        self, context: SessionContext, number: int, stream: HttpSocket, gateway: Gateway, request: SpeechRequest
    ) -> None:
        super().__init__(context, number, stream, gateway)
        self._request = request
        self._playback = PlaybackEstimate()
        self._samples = 0

    def begin(self) -> None:
        context, tokens = self._context, typed_tokens(self._request.input)
        lengths = ReplyLengths(context.seed, self._number, context.deployment)
        self._commit(tokens, *lengths.of(Hint(output_tokens=tokens), True, None))

    # Called by the gateway.

    def audio(self, turn: int, audio_s: float) -> None:
        context, playback = self._context, self._playback
        stats, now = context.stats, context.loop.time()
        if playback.first_s is None:
            stats.ttfp_s.add(now - self._begun_s)
        stats.audio_sent_s += audio_s
        gap_s = playback.send(audio_s, now)
        if gap_s:
            stats.gap_s.add(gap_s)
        self._sent_s = playback.sent_s
        for piece in pieces(round(self._sent_s * OUTPUT_RATE) - self._samples):
            self._stream.piece(context.voice.speak(self._number, self._samples, piece))
            self._samples += piece

    def _completed(self) -> None:
        stats, self._over = self._context.stats, True
        stats.settle(self._number, 0, "completed")
        stats.longest_gap_s.add(self._playback.longest_gap_s)
        self._stream.finish()
