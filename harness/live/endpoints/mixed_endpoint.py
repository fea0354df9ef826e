"""A server that some users speak to over a realtime socket while others, such as agents, ask its chat completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.client.client_params import ClientParams
from harness.live.endpoints.base_endpoint import BaseEndpoint
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.text_endpoint import TextEndpoint
from harness.live.endpoints.turn_endpoint import TurnEndpoint
from workloads.trace import Trace, Turn


@dataclass(eq=False)
class MixedEndpoint(BaseEndpoint):
    """Two endpoints in one, each with its own sessions. Implements `harness.client.session.Server`."""

    def __post_init__(self) -> None:
        aloud, typed = parted(self.trace)
        logs = self.log, self.sends, self.failures
        self._voice = TurnEndpoint(aloud, self.target, *logs) if aloud else None
        self._text = TextEndpoint(typed, text_target(self.target), *logs) if typed else None
        self._typed = set() if typed is None else {session.id for session in typed.sessions}

    async def prepare(self) -> None:
        """Prepare both before time 0. UserError where one cannot be used."""
        for endpoint in self._both:
            await endpoint.prepare()
        if self._voice is not None:
            self.target = self._voice.target

    def expect(self, params: ClientParams) -> None:
        for endpoint in self._both:
            endpoint.expect(params)

    def open(self, session: int, listener: Any) -> None:
        self._of(session).open(session, listener)

    def close(self, session: int) -> None:
        self._of(session).close(session)

    def timed_out(self, turn: Turn) -> None:
        self._of(turn.session).timed_out(turn)

    async def left(self, session: int) -> None:
        """Return when the server knows that the user has hung up."""
        if session not in self._typed:
            await self._of(session).left(session)

    def speech_start(self, turn: Turn) -> None:
        self._of(turn.session).speech_start(turn)

    def commit(self, turn: Turn, end_s: float) -> None:
        self._of(turn.session).commit(turn, end_s)

    def reports(self, session: int, turn: int, source: object) -> bool:
        return self._of(session).reports(session, turn, source)

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        return self._of(session).playback_ack(session, turn, played_s, playing, at_s)

    def playback_done(self, session: int, turn: int) -> None:
        self._of(session).playback_done(session, turn)

    def barge_in(self, session: int, played_s: float) -> None:
        self._of(session).barge_in(session, played_s)

    async def aclose(self) -> None:
        for endpoint in self._both:
            await endpoint.aclose()

    @property
    def _both(self) -> list[Any]:
        return [endpoint for endpoint in (self._voice, self._text) if endpoint is not None]

    def _of(self, session: int) -> Any:
        return self._text if session in self._typed else self._voice


def text_target(target: TargetParams) -> TargetParams:
    """Return the target of typed sessions: chat completions."""
    assert target.text_url is not None
    changes = {"url": target.text_url, "text_url": None, "dialect": "text"}
    own: dict[str, Any] = {"session": None, "headers": None}  # of url's host
    if not target.is_own_host(target.text_url):
        own |= dict.fromkeys(("client_cert", "client_key", "unix_socket"))
    return target.model_copy(update={**changes, **own, "token_env": target.token_env_at(target.text_url)})


def parted(trace: Trace) -> tuple[Trace | None, Trace | None]:
    """Return the sessions with speech and the sessions without; None where there are none."""
    columns, header = trace.columns(), trace.header
    aloud = (columns["modality"] == "audio") | ~np.isnan(columns["reply_audio_s"])
    spoken = np.isin(columns["session"], columns["session"][aloud])
    return tuple(
        Trace.from_columns(
            {name: values[rows] for name, values in columns.items()},
            generator=header.generator,
            params=header.params,
            seed=header.seed,
        )
        if rows.any()
        else None
        for rows in (spoken, ~spoken)
    )  # type: ignore[return-value]
