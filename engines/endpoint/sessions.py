"""All sessions of one server."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from engines.builder import Serving
from engines.calls.gateway import TickGateway
from engines.endpoint.audio_store import AudioStore
from engines.endpoint.base_session import SessionContext
from engines.endpoint.chat_completion import ChatCompletion, Stream
from engines.endpoint.chat_request import ChatRequest
from engines.endpoint.detokenizer import Detokenizer
from engines.endpoint.frame_session import FrameSession
from engines.endpoint.protocol import Outbox, Session
from engines.endpoint.server_stats import ServerStats
from engines.endpoint.turn_session import TurnSession
from engines.endpoint.user_turn import MOST_S
from engines.endpoint.voice import Voice
from workloads.errors import UserError

VERSION = 1
"""Of what is on the wire beyond OpenAI's."""


class Sessions:
    """Makes a session for each client. `open`: sessions that have begun and not ended.

    `server` runs already or is about to; `stats` is its recorder, and its audio encoder takes sound from
    `audio_store`. `engine`, `device`: names that clients are told. Must be made inside the running loop, as the
    server is.
    """

    def __init__(
        self,
        server: Serving,
        stats: ServerStats,
        *,
        engine: str,
        device: str,
        seed: int,
        audio_store: AudioStore,
        detokenizer: Detokenizer,
    ) -> None:
        self.server = server
        self.stats = stats
        self.open = 0
        self._opened = 0
        serves, frame_s = (
            ("frames", server.gateway.frame_s) if isinstance(server.gateway, TickGateway) else ("turns", None)
        )
        about = {
            "version": VERSION,
            "serves": serves,
            "engine": engine,
            "device": device,
            "frame_s": frame_s,
            "text": detokenizer.kind,
            "voice": "modelled",
        }
        deployment, longest_s = server.gateway.deployment, MOST_S
        if server.audio_encoder is not None:
            longest_s = min(
                MOST_S, server.audio_encoder.longest_tokens // deployment.model.input_tokens_per_s
            )
        if frame_s is not None and frame_s > longest_s:
            raise UserError(
                f"frame_s is {frame_s:g}, and the model hears {longest_s:g} s at once; set it lower."
            )
        loop = asyncio.get_running_loop()
        self._context = SessionContext(
            deployment, stats, audio_store, detokenizer, Voice(), about, longest_s, seed, loop
        )

    def connect(self, outbox: Outbox) -> Session:
        """A session that answers through `outbox`; the socket calls `begin` when the handshake is done."""
        number, self._opened = self._opened, self._opened + 1
        if isinstance(self.server.gateway, TickGateway):
            session = FrameSession(self._context, number, outbox, self.server.gateway)
        else:
            session = TurnSession(self._context, number, outbox, self.server.gateway)
        session.entered, session.left = self._enter, self._leave
        return session

    @property
    def complete(self) -> Callable[[Stream, ChatRequest], ChatCompletion] | None:
        """What makes a chat completion for each request; None where frames are served."""
        return None if isinstance(self.server.gateway, TickGateway) else self._completion

    @property
    def model(self) -> dict[str, Any]:
        """What is served, as OpenAI's API tells it; `root` and `max_model_len` as vLLM adds them, whose benchmark
        asks for the former."""
        deployment = self._context.deployment
        about = {"id": deployment.model.name, "object": "model", "created": int(time.time())}
        context = deployment.stages[deployment.entry].max_model_len
        return about | {"owned_by": "rehearsal", "root": deployment.model.name, "max_model_len": context}

    def _completion(self, stream: Stream, asked: ChatRequest) -> ChatCompletion:
        number, self._opened = self._opened, self._opened + 1
        return ChatCompletion(self._context, number, stream, self.server.gateway, asked)

    def _enter(self) -> None:
        self.open += 1

    def _leave(self) -> None:
        self.open -= 1
