"""With every policy off a stage schedules as stock vLLM, step for step, offloading by vLLM's connector included."""

import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from engines.core import vllm_adapter as vllm
from engines.core.stage import Stage
from engines.core.vllm_adapter.eviction import drop_content
from engines.server import ServerParams, resolve
from engines.turns.pipeline import Pipeline
from tests.engines.replays import cut_short, run, voice_trace


@dataclass
class Tape:
    """The calls and answers of one scheduler, in order."""

    entries: list[tuple[str, Any]] = field(default_factory=list)


def digest(output: Any) -> dict[str, Any]:
    """A SchedulerOutput as plain values, taken before anyone can change it."""
    new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
    taken = pickle.dumps(
        {
            "new": [(r.req_id, r.prompt_token_ids, r.block_ids, r.num_computed_tokens) for r in new],
            "cached": (cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, cached.num_output_tokens),
            "resumed": cached.resumed_req_ids,
            "tokens": dict(output.num_scheduled_tokens),
            "total": output.total_num_scheduled_tokens,
            "preempted": output.preempted_req_ids,
            "finished": output.finished_req_ids,
            "transfers": transfers(output.kv_connector_metadata),
        }
    )
    return pickle.loads(taken)


def transfers(meta: Any) -> dict[str, Any] | None:
    """What a step loads, stores, and must have stored before it begins."""
    if meta is None:
        return None
    jobs = {
        verb: {id: (job.req_id, list(job.src_spec.block_ids), list(job.dst_spec.block_ids)) for id, job in of.items()}
        for verb, of in (("load", meta.load_jobs), ("store", meta.store_jobs))
    }
    return {**jobs, "flush": sorted(meta.jobs_to_flush or ())}


def taped(tapes: list[Tape]) -> type[vllm.StageScheduler]:
    """A stage scheduler that records its calls and answers."""

    class Taped(vllm.StageScheduler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.tape = Tape()
            tapes.append(self.tape)

        def add_request(self, request: Any) -> None:
            told = (request.request_id, list(request.prompt_token_ids), request.max_tokens, request.arrival_time)
            self.tape.entries.append(("add", told))
            super().add_request(request)

        def abort(self, request_ids: Any) -> None:
            self.tape.entries.append(("abort", list(request_ids)))
            super().abort(request_ids)

        def truncate(self, session: int, tokens: int) -> int:
            latest = self._latest.get(session)
            hashes = latest.block_hashes[tokens // self.block_size :] if latest is not None else []
            self.tape.entries.append(("drop", list(hashes)))
            return super().truncate(session, tokens)

        def schedule(self, throttle_prefills: bool = False) -> Any:
            output = super().schedule(throttle_prefills)
            self.tape.entries.append(("schedule", digest(output)))
            return output

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            sampled = dict(zip(model_runner_output.req_ids, model_runner_output.sampled_token_ids, strict=True))
            self.tape.entries.append(("update", (sampled, model_runner_output)))
            return super().update_from_output(scheduler_output, model_runner_output)

    return Taped


def replay_on_stock(tape: Tape, limits: Stage) -> int:
    """Repeat the calls on a stock scheduler and compare every answer; returns the number of steps compared."""
    stock, steps = vllm.make_scheduler(limits, Scheduler), 0
    output: Any = None
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
                    short_keys=True,  # else what is dropped has other keys
                )
            )
        elif verb == "drop":  # heard-prefix truncation, which every engine gets
            drop_content(stock.kv_cache_manager.block_pool, told)
        elif verb == "abort":
            stock.finish_requests(told, vllm.RequestStatus.FINISHED_ABORTED)
        elif verb == "schedule":
            output = stock.schedule()
            assert digest(output) == told
            steps += 1
        else:
            stock.update_from_output(output, told[1])
    return steps


ALL_OFF = {"scheduling": False, "eviction": "off", "preload": False}


@pytest.mark.parametrize(
    ("engine", "params", "caching", "blocks", "host_gb"),
    [("vllm_omni", {}, False, 2000, 0), ("vllm_omni", {}, True, 64, 0.1), ("liveserve", ALL_OFF, True, 64, 4)],
)
def test_stages_without_policies_schedule_as_stock_vllm(
    monkeypatch, engine: str, params: dict, caching: bool, blocks: int, host_gb: float
):
    """T-l: the same SchedulerOutputs, step for step."""
    tapes: list[Tape] = []
    monkeypatch.setattr(vllm, "StageScheduler", taped(tapes))
    # Waiting for an upstream chunk is the pipeline's doing, not a policy's, and stock vLLM knows no such state.
    monkeypatch.setattr(Pipeline, "text_ready", staticmethod(lambda request: True))
    server = {
        "prefix_caching": caching,
        "kv_pool_blocks": blocks,
        "host_kv_gb": host_gb,
        "decode_fast_path": False,  # tests/engines/test_fast_paths.py: the same results with them
    }
    run(cut_short(voice_trace(sessions=16, rate=20.0, reply_tokens=220)), engine, server=server, **params)
    stages = resolve(ServerParams(**server)).stages
    aborted = preempted = loads = 0
    for stage, tape in zip(stages.values(), tapes, strict=True):
        steps = replay_on_stock(tape, stage)
        scheduled = [told for verb, told in tape.entries if verb == "schedule"]
        assert steps == len(scheduled) > 50
        aborted += sum(verb == "abort" for verb, _ in tape.entries)
        preempted += sum(len(told["preempted"] or ()) for told in scheduled)
        loads += sum(len(told["transfers"]["load"]) for told in scheduled if told["transfers"])
    assert aborted >= 10  # the comparison covers barge-ins,
    assert preempted or blocks == 2000  # with a small pool preemption,
    assert loads or not host_gb  # and loads from the host
