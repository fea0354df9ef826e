"""Live signals into vLLM-Omni: from Python next to an `AsyncOmni`, and over HTTP into its API server."""

from typing import Any

from engines.stock.live_signals import LiveSignals, answer
from engines.turns.signals import Signal
from workloads.errors import UserError

ENDING = ("barge_in", "close")


class OmniSignals(LiveSignals):
    """Reports to thinker and talker alike, or to a talker that comes first. A barge-in is vLLM-Omni's own abort, which
    ends the session's requests at all stages and the calls that wait for them; the stages receive the signal too."""

    def __init__(self, omni: Any) -> None:
        """`omni`: vLLM-Omni's `AsyncOmni`."""
        self._omni = omni

    async def send(self, values: Any) -> dict[str, Any]:
        """Send one signal. Returns `{"aborted": [{"request", "tokens"}]}`, with tokens of the first stage."""
        signal = Signal.of(values)
        ended: list[dict[str, Any]] = []
        if signal.verb in ENDING:
            ended = (await self._rpc("rehearsal_requests", signal.session))[0]
            await self._omni.abort([request["request"] for request in ended])
        await self._rpc("rehearsal_signal", signal.model_dump())
        return {"aborted": ended}

    async def state(self) -> dict[str, Any]:
        """Return `LiveSignals.state` of the first stage, and under `talker` of the talker behind a thinker."""
        first, *talker = await self._rpc("rehearsal_state")
        return {**first, "talker": talker[0]} if talker else first

    async def _rpc(self, name: str, *args: Any) -> list[Any]:
        stages = list(range(self._omni.num_stages - 1))  # the last makes no tokens
        results = await self._omni.collective_rpc(name, args=args, stage_ids=stages)
        if any(isinstance(result, dict) and result.get("supported") is False for result in results):
            raise UserError("this server takes no live signals; start it under an engine of ours, not vllm_omni.")
        return results


async def http(request: Any, call_next: Any) -> Any:
    """`--middleware engines.stock.omni.live_signals.http`: POST a signal as JSON to /rehearsal/signal."""
    return await answer(OmniSignals, request, call_next)
