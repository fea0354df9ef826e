"""Live signals into vLLM-Omni: from Python next to an `AsyncOmni`, and over HTTP into its API server."""

from typing import Any

from engines.speaking.signals import Signal
from engines.stock.live_signals import LiveSignals, answer
from engines.stock.omni.duplex_signals import STAGES
from workloads.errors import UserError

ENDING = ("barge_in", "close")


class OmniSignals(LiveSignals):
    """Reports to thinker and talker alike. A barge-in is vLLM-Omni's own abort, which ends the session's requests at
    all stages and whoever waits for them; the stages are told of it."""

    def __init__(self, omni: Any) -> None:
        """`omni`: vLLM-Omni's `AsyncOmni`."""
        self._omni = omni

    async def send(self, values: Any) -> dict[str, Any]:
        """Send one signal. Returns `{"aborted": [{"request", "tokens"}]}`, tokens of the thinker's."""
        signal = Signal.of(values)
        ended: list[dict[str, Any]] = []
        if signal.verb in ENDING:
            ended = (await self._rpc("rehearsal_requests", signal.session))[0]
            await self._omni.abort([each["request"] for each in ended])
        await self._rpc("rehearsal_signal", signal.model_dump())
        return {"aborted": ended}

    async def state(self) -> dict[str, Any]:
        """What `LiveSignals.state` says, of the thinker, and under `talker` of the talker."""
        thinker, talker = await self._rpc("rehearsal_state")
        return {**thinker, "talker": talker}

    async def _rpc(self, name: str, *args: Any) -> list[Any]:
        found = await self._omni.collective_rpc(name, args=args, stage_ids=list(STAGES))
        if any(isinstance(each, dict) and each.get("supported") is False for each in found):
            raise UserError(
                "this server takes no live signals; start it under an engine of ours, not vllm_omni."
            )
        return found


async def http(request: Any, call_next: Any) -> Any:
    """`--middleware engines.stock.omni.live_signals.http`: POST a signal as JSON to /rehearsal/signal."""
    return await answer(OmniSignals, request, call_next)
