"""Sessions of our server on the virtual clock, with a client's end that keeps what it is sent."""

import asyncio
import base64
import functools
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import TypeAdapter

from engines.core import vllm_adapter
from engines.endpoint.base_session import BaseSession
from engines.endpoint.server_sessions import Sessions, build_sessions
from engines.frames.gateway import TickGateway
from engines.registry import ENGINES
from engines.server import ResolvedServer, ServerParams
from harness.clocks import clock

OFFICIAL = TypeAdapter(RealtimeServerEvent)
MANUAL = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}


@dataclass
class Caller:
    """One client. `events`: what it was sent, checked by the official client's types; `at_s`: when."""

    sessions: Sessions
    events: list[dict[str, Any]] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection: BaseSession = self.sessions.connect(self)
        self.connection.begin()

    def send(self, event: bytes) -> None:
        message = json.loads(event)
        if not message["type"].startswith("rehearsal."):
            # OpenAI's own audio comes in at 24 kHz only, and its types know no other rate.
            OFFICIAL.validate_json(event.replace(b'"rate":16000', b'"rate":24000'))
        self.events.append(message)
        self.at_s.append(asyncio.get_running_loop().time())

    def close(self, code: int, reason: str) -> None:
        del reason
        self.closed.append(code)

    def say(self, type: str, **fields: Any) -> None:
        self.connection.receive(json.dumps({"type": type, **fields}))

    def append(self, pcm: np.ndarray) -> None:
        self.say("input_audio_buffer.append", audio=base64.b64encode(pcm.astype("<i2").tobytes()).decode())

    async def speak(self, pcm: np.ndarray, rate: int = 24_000) -> None:
        """In real time, 20 ms at once, each when it has been said."""
        size = rate // 50
        for begin in range(0, len(pcm), size):
            await asyncio.sleep(len(pcm[begin : begin + size]) / rate)
            self.append(pcm[begin : begin + size])

    def ask(self, text: str = "Hello", **hint: Any) -> None:
        """A typed turn, whose reply's lengths are `hint`."""
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        self.say("conversation.item.create", item=message)
        self.say("response.create", response={"metadata": {"rehearsal": json.dumps(hint)}})

    async def leave(self) -> None:
        """Hang up, and wait until the server has noticed."""
        self.connection.end()
        await self.sessions.server.settle()

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] in types]

    def when(self, type: str) -> list[float]:
        return [at_s for at_s, event in zip(self.at_s, self.events, strict=True) if event["type"] == type]

    def errors(self) -> list[str]:
        return [event["error"]["code"] for event in self.of("error")]

    def audio(self) -> np.ndarray:
        """All that it was sent, int16."""
        deltas = self.of("response.output_audio.delta")
        return np.frombuffer(b"".join(base64.b64decode(each["delta"]) for each in deltas), "<i2")

    def done(self) -> list[dict[str, Any]]:
        return [event["response"] for event in self.of("response.done")]


def still_open(sessions: Sessions) -> int:
    """The sessions that the engine still has."""
    gateway = sessions.server.gateway
    return gateway.admitted if isinstance(gateway, TickGateway) else len(gateway._sessions)


def play(
    engine: str,
    script: Callable[[Sessions], Awaitable[None]],
    params: ServerParams | None = None,
    frame_s: float | None = None,
    **engine_params: Any,
) -> Sessions:
    """Run `script` against a new server in virtual time; returns its sessions as the script left them."""

    async def main() -> Sessions:
        loop = asyncio.get_running_loop()
        vllm_adapter.use_clock(loop.time)
        spec, server = ENGINES[engine], ResolvedServer.of(params or ServerParams.model_validate({}))
        sessions = build_sessions(engine, spec.read(engine_params), server, 7, frame_s=frame_s)
        tasks = sessions.server.start()
        playing = asyncio.ensure_future(script(sessions))
        done, serving = await asyncio.wait({playing, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        async with asyncio.timeout(3600):  # of virtual time: whoever still talks keeps an engine busy
            await sessions.server.settle()
        for task in serving:
            task.cancel()
        sessions.server.close()
        return sessions

    return clock.run(main(), virtual=True)


def call(engine: str, script: Callable[[Caller], Awaitable[None]], *args: Any, **more: Any) -> Caller:
    """As `play`, of one client, which is returned."""
    callers: list[Caller] = []

    async def alone(sessions: Sessions) -> None:
        callers.append(Caller(sessions))
        await script(callers[0])

    play(engine, alone, *args, **more)
    return callers[0]


def called(
    engine: str = "", *args: Any, **more: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Runs a test as the script of one client, its argument `caller`. `engine`: as `call`, if the test is not
    parametrized by it."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters.values()
        signature = inspect.Signature([each for each in parameters if each.name != "caller"])

        @functools.wraps(test)
        def started(*given: Any, **named: Any) -> None:
            values = signature.bind(*given, **named).arguments
            call(values.get("engine", engine), lambda caller: test(caller=caller, **values), *args, **more)

        started.__dict__["__signature__"] = signature
        return started

    return decorate
