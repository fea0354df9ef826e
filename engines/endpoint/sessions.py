"""All connections of one server."""

import asyncio

from engines.calls.gateway import TickGateway
from engines.endpoint.connection import House
from engines.endpoint.frames import FrameConnection
from engines.endpoint.ledger import Ledger
from engines.endpoint.protocol import Connection, Outbox
from engines.endpoint.sounds import Sounds
from engines.endpoint.turns import TurnConnection
from engines.endpoint.user_turn import MOST_S
from engines.endpoint.voice import Voice
from engines.endpoint.words import Words
from engines.serving import Serving
from workloads.errors import UserError

VERSION = 1
"""Of what is on the wire beyond OpenAI's."""


class Sessions:
    """Makes a connection for each client. `open`: connections that have begun and not ended.

    `server` runs already or is about to; `ledger` is its recorder and `sounds` what its thinker hears with.
    `engine`, `device`: names that clients are told. Must be made inside the running loop, as the server is.
    """

    def __init__(
        self,
        server: Serving,
        ledger: Ledger,
        *,
        engine: str,
        device: str,
        seed: int,
        sounds: Sounds,
        words: Words,
    ) -> None:
        self.server = server
        self.ledger = ledger
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
            "text": words.kind,
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
        self._house = House(deployment, ledger, sounds, words, Voice(), about, longest_s, seed, loop)

    def connect(self, outbox: Outbox) -> Connection:
        """A connection that answers through `outbox`; the front calls `begin` when the handshake is done."""
        number, self._opened = self._opened, self._opened + 1
        if isinstance(self.server.gateway, TickGateway):
            connection = FrameConnection(self._house, number, outbox, self.server.gateway)
        else:
            connection = TurnConnection(self._house, number, outbox, self.server.gateway)
        connection.entered, connection.left = self._enter, self._leave
        return connection

    def _enter(self) -> None:
        self.open += 1

    def _leave(self) -> None:
        self.open -= 1
