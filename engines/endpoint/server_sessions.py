"""All sessions of one server, and the assembly of a server without a trace: users' input comes over their sockets."""

import asyncio
import time
from functools import partial
from typing import Any

from pydantic import BaseModel

from engines.builder import Parts, Serving
from engines.devices.profile import Profile
from engines.endpoint.audio_store import AudioStore
from engines.endpoint.base_session import BaseSession, SessionContext
from engines.endpoint.chat_completion import ChatCompletion
from engines.endpoint.chat_request import chat_request
from engines.endpoint.detokenizer import Detokenizer, detokenizer_of
from engines.endpoint.entrance import Posted
from engines.endpoint.frame_session import FrameSession
from engines.endpoint.http_socket import COMPLETIONS_PATH, SPEECH_PATH, HttpSocket
from engines.endpoint.lengths import most_bytes
from engines.endpoint.protocol import Outbox
from engines.endpoint.server_stats import ServerStats
from engines.endpoint.speech import CONTENT_TYPE, Speech, speech_request
from engines.endpoint.turn_session import TurnSession
from engines.endpoint.user_turn import MOST_S
from engines.endpoint.voice import Voice
from engines.frames.gateway import TickGateway
from engines.registry import ENGINES
from engines.server import ResolvedServer
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError
from workloads.generators.calls import FRAME_S

VERSION = 1
"""Version of the wire messages beyond OpenAI's."""


class Sessions:
    """Makes a session for each client.

    `server` runs already or is about to; `stats` is its recorder, and its audio encoder takes sound from `audio_store`.
    `engine`, `device`: names for clients. Must be made inside the running loop, as the server is.
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
            longest_s = min(MOST_S, server.audio_encoder.longest_tokens // deployment.model.input_tokens_per_s)
        if frame_s is not None and frame_s > longest_s:
            raise UserError(f"frame_s is {frame_s:g}, and the model hears {longest_s:g} s at once; set it lower.")
        loop = asyncio.get_running_loop()
        self.context = SessionContext(
            deployment, stats, audio_store, detokenizer, Voice(), about, longest_s, seed, loop
        )

    def connect(self, outbox: Outbox) -> BaseSession:
        """Return a session that answers through `outbox`; the socket calls `begin` when the handshake is done."""
        number, self._opened = self._opened, self._opened + 1
        if isinstance(self.server.gateway, TickGateway):
            return FrameSession(self.context, number, outbox, self.server.gateway)
        return TurnSession(self.context, number, outbox, self.server.gateway)

    @property
    def posted(self) -> Posted | None:
        """Return the handling of requests with bodies: speech if the model only speaks, else chat completions; None if
        frames are served."""
        deployment, gateway = self.context.deployment, self.server.gateway
        if isinstance(gateway, TickGateway):
            return None

        def begin(kind: Any, stream: HttpSocket, request: Any) -> Any:
            number, self._opened = self._opened, self._opened + 1
            return kind(self.context, number, stream, gateway, request)

        tokens = self.context.most_tokens
        longest = most_bytes(tokens)
        if deployment.speech_only:
            read = partial(speech_request, deployment=deployment)
            return Posted(SPEECH_PATH, CONTENT_TYPE, read, partial(begin, Speech), longest, only=True)
        read = partial(
            chat_request,
            max_model_len=tokens + 1,
            system_tokens=gateway.system_tokens,
            truncate=gateway.truncate_prompts,
        )
        return Posted(COMPLETIONS_PATH, "text/event-stream", read, partial(begin, ChatCompletion), longest)

    @property
    def model(self) -> dict[str, Any]:
        """Return the served model as OpenAI's API describes it, with vLLM's additions `root` and `max_model_len`.
        vLLM's benchmark asks for `root`."""
        deployment = self.context.deployment
        about = {"id": deployment.model.name, "object": "model", "created": int(time.time())}
        context = deployment.stages[deployment.entry].max_model_len
        return about | {"owned_by": "rehearsal", "root": deployment.model.name, "max_model_len": context}


def build_sessions(
    engine: str,
    engine_params: BaseModel,
    served: ResolvedServer,
    seed: int,
    device: str = "virtual",
    profile: Profile | None = None,
    frame_s: float | None = None,
) -> Sessions:
    """Return the sessions of a new server of `engine`, which is their `server`, with a new `stats`; inside a running
    loop.

    `frame_s`: length of a frame, for engines that serve frames (default 2.0 s, the Metronome paper's). The caller warms
    the server up, starts its tasks and closes it. UserError when this machine has no such device.
    """
    deployment = served.deployment
    stats = ServerStats(deployment.entry)
    encodes = device in REAL_DEVICES and deployment.hears
    audio_store = AudioStore(kept=encodes)
    parts = Parts(served, stats, seed, device, profile=profile, sound=audio_store, frame_s=frame_s or FRAME_S)
    server = ENGINES[engine].build(parts, engine_params)
    return Sessions(
        server,
        stats,
        engine=engine,
        device=device,
        seed=seed,
        audio_store=audio_store,
        detokenizer=detokenizer_of(served.params.checkpoint if device in REAL_DEVICES else None),
    )
