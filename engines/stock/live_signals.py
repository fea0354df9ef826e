"""The client's side of live signals: from Python next to an `AsyncLLM`, and over HTTP into `vllm serve`."""

from typing import Any

from engines.turns.signals import Signal
from workloads.errors import UserError

PATH, STATE = "/rehearsal/signal", "/rehearsal/state"


class LiveSignals:
    """Reports the actions of listeners to one engine. The verbs are the gateway's; `session` names a session as
    requests do (`session_id`, or the id of the session's only request), `turn` counts its turns from 0."""

    def __init__(self, llm: Any) -> None:
        """`llm`: vLLM's `AsyncLLM`."""
        self._core = llm.engine_core

    async def send(self, values: Any) -> dict[str, Any]:
        """Send one signal, given as the fields of `engines.turns.signals.Signal`; it is taken between two steps.

        Returns `{"aborted": [{"request", "tokens"}]}`: the requests that it ended. Raises UserError when the signal
        is not complete or the engine does not run one of our schedulers.
        """
        return await self._call("rehearsal_signal", Signal.of(values).model_dump())

    async def state(self) -> dict[str, Any]:
        """Return `requests` and `sessions` in the engine, `free_blocks` of `blocks`, scheduling `rounds` so far, and
        the policy's `counters`."""
        return await self._call("rehearsal_state")

    async def speech_start(self, session: str) -> None:
        """Report that the user begins to speak."""
        await self.send({"verb": "speech_start", "session": session})

    async def turn_committed(self, session: str, turn: int) -> None:
        """Report that the user's turn is complete. Send it before the request of a reply that will be spoken."""
        await self.send({"verb": "turn_committed", "session": session, "turn": turn})

    async def audio_sent(self, session: str, turn: int, seconds: float) -> None:
        """Report that `seconds` more of the reply's audio have left for the listener."""
        await self.send({"verb": "audio_sent", "session": session, "turn": turn, "seconds": seconds})

    async def playback_ack(self, session: str, turn: int, seconds: float, playing: bool = True) -> None:
        """Report that the listener has heard `seconds` of the reply; `playing`: its player runs, else it waits for
        audio."""
        await self.send(
            {"verb": "playback_ack", "session": session, "turn": turn, "seconds": seconds, "playing": playing}
        )

    async def playback_done(self, session: str, turn: int) -> None:
        """Report that the listener has heard the reply to its end."""
        await self.send({"verb": "playback_done", "session": session, "turn": turn})

    async def barge_in(self, session: str) -> list[dict[str, Any]]:
        """Report that the user speaks over the reply: ends the session's requests. Returns them with their tokens so
        far."""
        return (await self.send({"verb": "barge_in", "session": session}))["aborted"]

    async def close(self, session: str) -> list[dict[str, Any]]:
        """Report that the session is over: forgets it, and ends its requests."""
        return (await self.send({"verb": "close", "session": session}))["aborted"]

    async def _call(self, name: str, *args: Any) -> dict[str, Any]:
        try:
            return await self._core.call_utility_async(name, *args)
        except Exception as error:
            if f"no attribute '{name}'" not in str(error):
                raise
            raise UserError(
                "this engine takes no live signals; start it with --scheduler-cls engines.stock.scheduler.Scheduler."
            ) from None


async def http(request: Any, call_next: Any) -> Any:
    """`vllm serve --middleware engines.stock.live_signals.http`: POST a signal as JSON to /rehearsal/signal."""
    return await answer(LiveSignals, request, call_next)


async def answer(signals: type[LiveSignals], request: Any, call_next: Any) -> Any:
    """Answer a signal, or a GET of `LiveSignals.state`; pass any other request on."""
    asks = request.url.path == STATE and request.method == "GET"
    if not asks and (request.url.path != PATH or request.method != "POST"):
        return await call_next(request)
    from starlette.responses import JSONResponse

    if asks:
        return JSONResponse(await signals(request.app.state.engine_client).state())
    try:
        try:
            values = await request.json()
        except ValueError:  # no JSON, or no text
            values = None
        return JSONResponse(await signals(request.app.state.engine_client).send(values))
    except UserError as error:
        return JSONResponse({"error": str(error)}, status_code=400)
