"""A policy in stock vLLM: `--scheduler-cls engines.stock.scheduler.Scheduler`, or `AsyncScheduler`.

vLLM's own engine core runs the loop. The scheduler builds the policy's view from its queues, its own step times and
clients' reports; all times are on the engine process's monotonic clock, in seconds of
the modelled device where that is slowed.
"""

import time
from collections import deque
from dataclasses import replace
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler as VllmAsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

from engines.core.policy import Plan, StageView
from engines.core.step_cost import StepCost, StepWork
from engines.core.view import stage_view
from engines.core.vllm_adapter.scheduling import StageScheduler
from engines.stock.arguments import StockParams, policy_of
from engines.stock.engine_core import LiveScheduler, external_id, install
from engines.turns.monitor import SessionView
from engines.turns.reply import Progress, SpeechView
from engines.turns.signals import Signal, Signals
from workloads.columns.classes import Slo

TALKER_LAG = 1
"""Tokens of text beyond its frames that a talker with `token_per_frame` needs: it begins with the second (vllm-omni
0.30.0, stage_input_processors/qwen3_omni.py, thinker2talker_async_chunk keeps the first back)."""

LONGEST_REST_S = 1.0
"""[chosen] longest rest of an engine, whatever the policy's wake time."""


class PolicyScheduler(StageScheduler, LiveScheduler):
    """vLLM's scheduler under the policy of the engine that `StockParams` name.

    With the policy off it is stock vLLM; signals are taken all the same, so a barge-in ends a reply under any engine.
    `ends_requests`: barge-in and close end requests in this scheduler; False: somebody else ends them.
    `counts_in_flight`: a talker's frame counts from when its step is scheduled, so that a hold ends at a chunk's end
    with asynchronous scheduling, too; else a frame in flight begins the next chunk, which is then no place to pause.
    """

    ends_requests = True
    counts_in_flight = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        params = StockParams.of(self.vllm_config.additional_config)
        model = params.served.model
        self.stage, self.role = params.limits.name, params.role
        # `policy` is vLLM's own: the order of its queues and of preemptions.
        self.planner = policy_of(params.engine, params.role, params.engine_params)
        self.signals = Signals(params.speech_s_per_text_token or model.speech_s_per_text_token)
        self.step_cost = StepCost()
        self._slower = params.slower
        self.clock = lambda: time.monotonic() / params.slower
        self.rounds = 0
        self._frame_s = model.frame_s or 0.0
        self._lag = model.frame_lag_steps
        codec = params.served.codec
        self._first_chunk, self._chunk = codec.initial_codec_chunk_frames, codec.codec_chunk_frames
        self._token_per_frame = params.token_per_frame and self.role != "talker"
        self._ready: dict[str, tuple[float, str]] = {}
        self._replied: dict[str, int] = {}
        self._under_way: deque[tuple[SchedulerOutput, float, StepWork]] = deque()
        self._updated_s = 0.0
        self._rest_until_s: float | None = None
        install()  # vLLM makes its scheduler in the engine process, before the loop begins

    def add_request(self, request: Request) -> None:
        self._ready.setdefault(request.request_id, (self.clock(), self.session_of(request)))
        super().add_request(request)

    def session_of(self, request: Request) -> str:
        return session_name(request)

    def requests_of(self, session: str) -> list[Request]:
        return [request for id, request in self.requests.items() if self._ready[id][1] == session]

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        now, plan = self.clock(), Plan()
        self.rounds += 1
        if self.planner is None:
            output = super().schedule(throttle_prefills)
        else:
            view = self.view(now)
            plan = self.within_priorities(self.planner.plan(view)) if view.requests else plan
            self.preempt(plan.preempt)
            output = self.schedule_with(plan, throttle_prefills)
        self.note_begin(output, now)
        held = bool(plan.held) and self.requests.keys() <= plan.held
        idle = not any(work.requests for _, _, work in self._under_way)
        self._rest_until_s = None
        if held and idle:
            self._rest_until_s = now + LONGEST_REST_S if plan.wake_s is None else plan.wake_s
        return output

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: Any) -> Any:
        """Update as vLLM does, and take the step's time. Overlapping steps (async scheduling) count from one update to
        the next. An output that `schedule` did not give (vLLM's own tests make some) has no time; one that never
        returns is skipped with the next that does."""
        self.note_end(scheduler_output)
        return super().update_from_output(scheduler_output, model_runner_output)

    def note_begin(self, output: SchedulerOutput, now: float) -> None:
        """Note a step that was planned at `now` (s). Call it right after, as the requests have just been advanced."""
        rows = output.num_scheduled_tokens.items()
        work = StepWork.of((tokens, self.requests[id].num_computed_tokens - tokens) for id, tokens in rows)
        self._under_way.append((output, now, work))

    def note_end(self, scheduler_output: SchedulerOutput) -> None:
        """Note the step's end and learn its time. A second call does nothing."""
        if any(output is scheduler_output for output, _, _ in self._under_way):
            now, output = self.clock(), None
            while output is not scheduler_output:
                output, start_s, work = self._under_way.popleft()
            if work.requests:
                self.step_cost.add(work, now - max(start_s, self._updated_s))
            self._updated_s = now

    def note_reply(self, request: Request) -> None:
        """Note a request's end: keep the token count of a reported session's reply, unless it was cut off."""
        if request.status != RequestStatus.FINISHED_ABORTED and request.request_id in self._ready:
            session = self._ready[request.request_id][1]
            if self.signals.number(session) >= 0:
                self._replied[session] = request.num_output_tokens

    def view(self, now: float) -> StageView:
        """Return the policy's view. It omits requests that wait for more than their turn (a grammar, input, remote KV)
        and, with async scheduling, requests whose last tokens are in flight. A token in flight counts as known: its
        step is scheduled, so its successor can be."""
        left_out = set()
        for request in self.running:
            tokens = request.num_tokens_with_spec + request.num_output_placeholders
            last = request.num_prompt_tokens + request.max_tokens
            if tokens <= request.num_computed_tokens or (request.num_output_placeholders and tokens >= last):
                left_out.add(request.request_id)
        seated = len(left_out)
        for request in self.waiting_requests():
            if self._is_blocked_waiting_status(request.status) or request.num_stale_output_tokens:
                left_out.add(request.request_id)

        predict = self.step_cost.predict
        return stage_view(self.stage, now, self, self.requests, self.speech_view, predict, left_out, seated)

    def speech_view(self, request: Request, now: float) -> SpeechView:
        """Return the policy's view of a request, without vLLM's counts."""
        ready_s, session = self._ready[request.request_id]
        listener = self.signals.view(session, now)
        progress, slo = self._progress(request, listener), Slo(priority=request.priority)
        if self._token_per_frame:
            listener = replace(listener, speech_s_per_token=self._frame_s)
        return SpeechView(
            request.request_id,
            ready_s,
            slo=slo,
            progress=progress,
            session=listener,
            prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
        )

    def within_priorities(self, plan: Plan) -> Plan:
        """Return the plan; with vLLM's `priority` scheduling it orders and holds only among equals: no request is held
        behind one of less priority."""
        if self.policy != SchedulingPolicy.PRIORITY or not plan.order:
            return plan
        priority = {request_id: self.requests[request_id].priority for request_id in (*plan.order, *plan.held)}
        order = sorted(plan.order, key=priority.__getitem__)
        freed = [id for id in plan.held if priority[id] < priority[order[-1]]]
        order = sorted([*order, *sorted(freed)], key=priority.__getitem__)
        return replace(plan, order=order, held=plan.held.difference(freed))

    def take_signal(self, signal: Signal) -> list[Request]:
        now, session = self.clock(), signal.session
        if signal.verb == "playback_done":
            self.signals.spoken(session, self._replied.pop(session, 0), now)
        elif signal.verb in ("turn_committed", "barge_in", "close"):
            self._replied.pop(session, None)
        self.signals.take(signal, now)
        if signal.verb not in ("barge_in", "close") or not self.ends_requests:
            return []
        ids = [request.request_id for request in self.requests_of(session)]
        return self.finish_requests(ids, RequestStatus.FINISHED_ABORTED)

    def state(self) -> dict[str, Any]:
        return {
            "requests": len(self.requests),
            "sessions": len(self.signals.monitor.sessions),
            "free_blocks": self.free_blocks,
            "blocks": self.allocatable_blocks,
            "rounds": self.rounds,
            "counters": dict(self.planner.counters) if self.planner is not None else {},
        }

    def rest_s(self) -> float:
        if self._rest_until_s is None:
            return 0.0
        return min(max(0.0, self._rest_until_s - self.clock()), LONGEST_REST_S) * self._slower

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.note_reply(request)
        return super()._free_request(request, *args, **kwargs)

    def _free_blocks(self, request: Request) -> None:
        """Free the blocks, when vLLM forgets a request: at its end, or when a connector needs its blocks no more."""
        super()._free_blocks(request)
        self._ready.pop(request.request_id, None)

    def _progress(self, request: Request, listener: SessionView) -> Progress:
        """Return the reply as this stage knows it, without tokens in flight.

        Talker: a token is a codec frame, at once or with the next step (`frame_lag_steps`), and frames are handed over
        in chunks. Thinker: the talker is elsewhere; it has taken the text of the audio that was reported as sent, so a
        frame is one text token's speech. With `token_per_frame` it takes a token with each frame instead, and text up
        to the end of its current chunk counts as taken: otherwise no more audio would ever be sent.
        """
        tokens = request.num_output_tokens
        if self.role == "talker":
            tokens += request.num_output_placeholders if self.counts_in_flight else 0
            frames, sent = max(0, tokens - self._lag), 0
            if frames >= self._first_chunk:
                sent = frames - (frames - self._first_chunk) % self._chunk
            chunk_end = sent + self._chunk if sent else self._first_chunk
            return Progress(True, chunk_end, self._frame_s, frames=frames, frames_sent=sent)
        spoken = listener.epoch >= 0
        if self._token_per_frame:
            sent = round(listener.audio_sent_s / self._frame_s)
            chunk_end = sent + self._chunk if sent else self._first_chunk
            taken = min(tokens, chunk_end + TALKER_LAG)
            return Progress(spoken, chunk_end, self._frame_s, tokens, tokens, taken, sent)
        token_s = listener.speech_s_per_token
        taken = min(tokens, int(listener.audio_sent_s / token_s)) if token_s else 0
        return Progress(spoken, 0, token_s, tokens, text_arrived=tokens, frames=taken, frames_sent=taken)


class Scheduler(PolicyScheduler):
    """For synchronous scheduling (`--no-async-scheduling`, and vLLM's CPU worker)."""


class AsyncScheduler(PolicyScheduler, VllmAsyncScheduler):
    """For asynchronous scheduling: the next step is planned while one is in flight.

    Differences: the policy sees a reply one token late; a plan takes effect one step later; a held or preempted request
    still delivers the token that was in flight (vLLM's own rule). Order, caps and budgets act on the step being
    planned, and vLLM adds its placeholders to the planned tokens.
    """


def session_name(request: Request) -> str:
    """Return the session of a request: `session_id`, else `session` of its extra arguments (`vllm_xargs` over HTTP),
    else the request's external id, which vLLM's engine has extended by a random suffix."""
    extra = request.sampling_params.extra_args if request.sampling_params is not None else None
    named = request.session_id or (extra or {}).get("session")
    return str(named) if named else external_id(request)
