"""With every policy off a stage schedules exactly as stock vLLM: the same SchedulerOutputs, step for step."""

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

import engines.build
from engines.core import vllm_adapter as vllm
from engines.server import ServerParams, Stage, resolve
from tests.engines.replays import cut_short, run, voice_trace


@dataclass
class Tape:
    """What one scheduler was told and what it answered, in order."""

    entries: list[tuple[str, Any]] = field(default_factory=list)


def digest(output: Any) -> dict[str, Any]:
    """A SchedulerOutput as plain values, taken before anyone can change it."""
    new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
    return copy.deepcopy(
        {
            "new": [(r.req_id, r.prompt_token_ids, r.block_ids, r.num_computed_tokens) for r in new],
            "cached": (
                cached.req_ids,
                cached.new_block_ids,
                cached.num_computed_tokens,
                cached.num_output_tokens,
            ),
            "resumed": cached.resumed_req_ids,
            "tokens": dict(output.num_scheduled_tokens),
            "total": output.total_num_scheduled_tokens,
            "preempted": output.preempted_req_ids,
            "finished": output.finished_req_ids,
        }
    )


def taped(tapes: list[Tape]) -> type[vllm.StageScheduler]:
    """The stage scheduler, writing down all it is asked and answers."""

    class Taped(vllm.StageScheduler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.tape = Tape()
            tapes.append(self.tape)

        def add_request(self, request: Any) -> None:
            told = (
                request.request_id,
                list(request.prompt_token_ids),
                request.max_tokens,
                request.arrival_time,
            )
            self.tape.entries.append(("add", told))
            super().add_request(request)

        def abort(self, request_ids: Any) -> None:
            self.tape.entries.append(("abort", list(request_ids)))
            super().abort(request_ids)

        def schedule(self, throttle_prefills: bool = False) -> Any:
            output = super().schedule(throttle_prefills)
            self.tape.entries.append(("schedule", digest(output)))
            return output

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            sampled = dict(
                zip(model_runner_output.req_ids, model_runner_output.sampled_token_ids, strict=True)
            )
            self.tape.entries.append(("update", (sampled, model_runner_output)))
            return super().update_from_output(scheduler_output, model_runner_output)

    return Taped


def replay_on_stock(tape: Tape, limits: Stage) -> int:
    """Tell a stock scheduler the same; every answer must be the same. Returns the number of steps compared."""
    stock, output, steps = vllm.make_scheduler(limits, Scheduler), None, 0
    for verb, told in tape.entries:
        if verb == "add":
            request_id, prompt, max_tokens, arrival_s = told
            stock.add_request(
                vllm.make_request(
                    request_id,
                    prompt,
                    max_tokens,
                    arrival_s,
                    limits.block_size if limits.prefix_caching else None,
                )
            )
        elif verb == "abort":
            stock.finish_requests(told, vllm.RequestStatus.FINISHED_ABORTED)
        elif verb == "schedule":
            output = stock.schedule()
            assert digest(output) == told
            steps += 1
        else:
            stock.update_from_output(output, told[1])
    return steps


@pytest.mark.parametrize(("engine", "params"), [("vllm_omni", {}), ("liveserve", {"scheduling": False})])
@pytest.mark.parametrize(("caching", "blocks"), [(False, 2000), (True, 64)])
def test_policy_off_is_stock_vllm(monkeypatch, engine: str, params: dict, caching: bool, blocks: int):
    tapes: list[Tape] = []
    monkeypatch.setattr(engines.build.vllm, "StageScheduler", taped(tapes))
    # Waiting for an upstream chunk is the pipeline's doing, not a policy's, and stock vLLM knows no such state.
    monkeypatch.setattr(engines.build.Pipeline, "text_ready", staticmethod(lambda request: True))
    server = {"prefix_caching": caching, "kv_pool_blocks": blocks}
    run(cut_short(voice_trace(sessions=16, rate=20.0, reply_tokens=300)), engine, server=server, **params)
    stages = resolve(ServerParams(**server)).stages
    aborted = preempted = 0
    for stage, tape in zip(stages.values(), tapes, strict=True):
        steps = replay_on_stock(tape, stage)
        assert steps == sum(verb == "schedule" for verb, _ in tape.entries) > 50
        aborted += sum(verb == "abort" for verb, _ in tape.entries)
        preempted += sum(len(told["preempted"] or ()) for verb, told in tape.entries if verb == "schedule")
    assert aborted >= 10  # the comparison covers barge-ins,
    assert preempted or blocks == 2000  # and, with a small pool, preemption
