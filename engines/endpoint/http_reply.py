"""The answer to one HTTP request: a session of a single typed turn."""

from http import HTTPStatus

from engines.endpoint.base_session import SessionContext
from engines.endpoint.http_socket import HttpSocket
from engines.turns.gateway import REJECTED, Gateway
from workloads.columns.classes import RequestClass
from workloads.trace import Turn


class HttpReply:
    """The answer, and the gateway's listener: it calls `text`, `audio` and `reply_done`. `_sent_s`: of its audio, s."""

    def __init__(self, context: SessionContext, number: int, stream: HttpSocket, gateway: Gateway) -> None:
        self._context, self._number, self._stream, self._gateway = context, number, stream, gateway
        self._begun_s = context.loop.time()
        self._sent_s = 0.0
        self._over = False

    def _commit(
        self, input_tokens: int, output_tokens: int, reply_audio_s: float | None = None, priority: int = 0
    ) -> None:
        number = self._number
        turn = Turn(
            session=number,
            turn=0,
            arrival_s=self._begun_s,
            modality="text",
            input_tokens=input_tokens,
            audio_s=None,
            output_tokens=output_tokens,
            reply_audio_s=reply_audio_s,
            request=RequestClass(priority=priority),
        )
        self._gateway.open(number, self)
        self._context.stats.follow(number, 0)
        self._gateway.commit(turn, self._begun_s)

    def end(self) -> None:
        """End the session: the client has gone, or has everything."""
        number, stats = self._number, self._context.stats
        if not self._over:
            self._over = True
            cut = self._gateway.barge_in(number, self._sent_s)
            played = cut.frames if self._context.deployment.speech_only else cut.text

            def ended() -> None:
                stats.cut(stats.settle(number, 0, "lost"), played)

            stats.when_ended(number, 0, ended)
        self._gateway.close(number)

    def reply_done(self, turn: int) -> None:
        self._context.stats.when_ended(self._number, 0, self._completed)

    def refused(self, reason: str, status: HTTPStatus) -> None:
        assert status == REJECTED, f"{reason}: what does not fit is refused as it is read"
        self._context.stats.settle(self._number, 0, "failed")
        self._over = True
        self._stream.reject(status, reason)

    def _completed(self) -> None:
        raise NotImplementedError

    def text(self, turn: int, tokens: int) -> None:
        """Send text, except for a reply of speech alone."""

    def audio(self, turn: int, audio_s: float) -> None:
        """Send audio, except for a reply in text."""
