"""Our schedulers in vLLM-Omni's stages: a stage's `scheduler_cls` in its pipeline.

vLLM-Omni's schedulers first park requests that wait for a chunk and then call their base class, which is ours: it plans
among the others (vllm_omni 0.30.0, core/sched/omni_ar_scheduler.py 344-387). Nothing of theirs is repeated.
"""

# pyright: reportMissingImports=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.request import Request
from vllm_omni.core.sched.omni_ar_scheduler import OmniARAsyncScheduler, OmniARScheduler
from vllm_omni.engine.duplex.contracts import duplex_session_id_from_request_id

from engines.core.policy import StageView
from engines.stock import scheduler as stock
from engines.stock.engine_core import CALLS, without_suffix
from engines.turns.reply import SpeechView

FETCH_S = 0.002
"""Real seconds in which a chunk that was sent arrives. A thread looks for it each millisecond (vllm_omni 0.30.0,
transfer_adapter/base.py 57-90, `recv_loop`)."""


class Notes:
    """Reports to our scheduler the parts of vLLM-Omni's that do not call the base class: the end of a step, and of a
    request (`update_from_output`, `_free_request`). Its `schedule` returns another object than its base class gave it.

    Ending a request is vLLM-Omni's task: if a request is aborted at one stage alone, the next stage waits for the last
    chunk, and the client with it (`VLLM_OMNI_INPUT_WAIT_TIMEOUT_S`, 600 s).
    """

    ends_requests = False
    counts_in_flight = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asked_s: dict[str, float] = {}
        """Time at which each request that waits for a chunk was first seen to, s."""
        take_rpcs()

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        before = len(self._under_way)
        output = super().schedule(throttle_prefills)
        if len(self._under_way) > before:
            _, start_s, work = self._under_way.pop()
            self._under_way.append((output, start_s, work))
        return output

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: Any) -> Any:
        self.note_end(scheduler_output)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.note_reply(request)
        return super()._free_request(request, *args, **kwargs)

    def view(self, now: float) -> StageView:
        """Return the policy's view; `parked` has the running requests whose next chunk is on its way.

        With asynchronous scheduling a request fetches its next chunk while its step runs, as the step after that is
        planned. The policy has to know of it to keep that step free.
        """
        view = super().view(now)
        adapter = self.chunk_transfer_adapter
        waiting = [] if adapter is None else adapter.waiting_for_chunk_running_requests
        self._asked_s = {request.request_id: self._asked_s.get(request.request_id, now) for request in waiting}
        soon_s = {id: asked_s + FETCH_S / self._slower for id, asked_s in self._asked_s.items()}
        view.parked = [
            self._parked(request, soon_s[request.request_id], now)
            for request in waiting
            if now < soon_s[request.request_id]
        ]
        return view

    def _parked(self, request: Request, fetched_s: float, now: float) -> SpeechView:
        """Return the view of a request whose next chunk has arrived at `fetched_s` if the stage before has sent it."""
        view = self.speech_view(request, now)
        frames = view.progress.frames
        return replace(view, progress=replace(view.progress, text_arrived=frames + 1, fetched_s=fetched_s))

    def session_of(self, request: Request) -> str:
        """Return the session; a duplex session's requests name it in their ids."""
        return duplex_session_id_from_request_id(request.external_req_id) or super().session_of(request)


class Scheduler(Notes, OmniARScheduler, stock.Scheduler):
    """For a stage with `async_scheduling: false`."""


class AsyncScheduler(Notes, OmniARAsyncScheduler, stock.AsyncScheduler):
    """For a stage with asynchronous scheduling, vLLM-Omni's default."""


def _requests(engine: Any, session: str) -> list[dict[str, Any]]:
    """Return the ids by which `AsyncOmni.abort` finds a session's requests, and their tokens so far (vllm_omni 0.30.0,
    entrypoints/async_omni_base.py 222: stages see the client's id with a random suffix)."""
    requests = engine.scheduler.requests_of(session)
    return [
        {"request": without_suffix(request.external_req_id), "tokens": request.num_output_tokens}
        for request in requests
    ]


RPCS = {**CALLS, "rehearsal_requests": _requests}


def take_rpcs() -> None:
    """Let our calls arrive by vLLM-Omni's own way to its stages, `AsyncOmni.collective_rpc`, which ends in the engine
    core's (orchestrator.py 685, stage_pool.py 1307); others go on to the executor. A second call does nothing."""
    if not hasattr(EngineCoreProc.collective_rpc, "__wrapped__"):
        EngineCoreProc.collective_rpc = taking(EngineCoreProc.collective_rpc)  # type: ignore[method-assign]


def taking(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `EngineCoreProc.collective_rpc` with our calls."""

    @wraps(original)
    def collective_rpc(engine: Any, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None) -> Any:
        if method in RPCS:
            return RPCS[method](engine, *args)
        return original(engine, method, timeout, args, kwargs)

    return collective_rpc
