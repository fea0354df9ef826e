"""With every policy off a stage schedules as stock vLLM, step for step, offloading by vLLM's connector included."""

from copy import deepcopy
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from engines.core import vllm_adapter as vllm
from engines.core.stage import Stage
from engines.core.vllm_adapter.eviction import drop_content
from engines.server import ServerParams, resolve
from engines.turns.pipeline import Pipeline
from tests.engines.replays import cut_short, run, voice_trace

Call = tuple[str, Any]
"""A call of a scheduler: its name, and its arguments or its answer."""


def digest(output: Any) -> dict[str, Any]:
    """A SchedulerOutput as plain values, copied before a later call changes it."""
    new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
    return deepcopy(
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


def transfers(meta: Any) -> dict[str, Any] | None:
    """What a step loads, stores, and must have stored before it begins."""
    if meta is None:
        return None
    jobs = {
        verb: {id: (job.req_id, list(job.src_spec.block_ids), list(job.dst_spec.block_ids)) for id, job in of.items()}
        for verb, of in (("load", meta.load_jobs), ("store", meta.store_jobs))
    }
    return {**jobs, "flush": sorted(meta.jobs_to_flush or ())}


def taped(tapes: list[list[Call]]) -> type[vllm.StageScheduler]:
    """A stage scheduler that records its calls."""

    class Taped(vllm.StageScheduler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.tape: list[Call] = []
            tapes.append(self.tape)

        def add_request(self, request: Any) -> None:
            told = (request.request_id, list(request.prompt_token_ids), request.max_tokens, request.arrival_time)
            self.tape.append(("add", told))
            super().add_request(request)

        def abort(self, request_ids: Any) -> None:
            self.tape.append(("abort", list(request_ids)))
            super().abort(request_ids)

        def truncate(self, session: int, tokens: int) -> int:
            latest = self._latest.get(session)
            hashes = latest.block_hashes[tokens // self.block_size :] if latest is not None else []
            self.tape.append(("drop", list(hashes)))
            return super().truncate(session, tokens)

        def schedule(self, throttle_prefills: bool = False) -> Any:
            output = super().schedule(throttle_prefills)
            self.tape.append(("schedule", digest(output)))
            return output

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            self.tape.append(("update", model_runner_output))
            return super().update_from_output(scheduler_output, model_runner_output)

    return Taped


def assert_stock_schedules(tape: list[Call], limits: Stage) -> None:
    """Repeat the calls on a stock scheduler; each of its steps must be the recorded one."""
    stock: Any = vllm.make_scheduler(limits, Scheduler)
    hash_blocks = limits.block_size if limits.prefix_caching else None
    output: Any = None
    for verb, told in tape:
        if verb == "add":  # with our short keys, by which truncation drops blocks
            stock.add_request(vllm.make_request(*told, hash_blocks=hash_blocks, short_keys=True))
        elif verb == "drop":  # heard-prefix truncation, which every engine gets
            drop_content(stock.kv_cache_manager.block_pool, told)
        elif verb == "abort":
            stock.finish_requests(told, vllm.RequestStatus.FINISHED_ABORTED)
        elif verb == "schedule":
            output = stock.schedule()
            assert digest(output) == told
        else:
            stock.update_from_output(output, told)


ALL_OFF = {"scheduling": False, "eviction": "off", "preload": False}


@pytest.mark.parametrize(
    ("engine", "params", "caching", "blocks", "host_gb"),
    [("vllm_omni", {}, False, 2000, 0), ("vllm_omni", {}, True, 64, 0.1), ("liveserve", ALL_OFF, True, 64, 4)],
)
def test_stages_without_policies_schedule_as_stock_vllm(
    monkeypatch, engine: str, params: dict, caching: bool, blocks: int, host_gb: float
):
    """T-l: the same SchedulerOutputs, step for step."""
    tapes: list[list[Call]] = []
    monkeypatch.setattr(vllm, "StageScheduler", taped(tapes))
    # Waiting for an upstream chunk is the pipeline's doing, not a policy's, and stock vLLM knows no such state.
    monkeypatch.setattr(Pipeline, "text_ready", staticmethod(lambda request: True))
    server = {
        "prefix_caching": caching,
        "kv_pool_blocks": blocks,
        "host_kv_gb": host_gb,
        "decode_fast_path": False,  # its results are the same: tests/engines/test_fast_paths.py
    }
    run(cut_short(voice_trace(sessions=16, rate=20.0, reply_tokens=220)), engine, server=server, **params)
    for stage, tape in zip(resolve(ServerParams(**server)).stages.values(), tapes, strict=True):
        assert_stock_schedules(tape, stage)
    steps = [told for tape in tapes for verb, told in tape if verb == "schedule"]
    assert len(steps) > 150
    assert sum(verb == "abort" for tape in tapes for verb, _ in tape) >= 10
    assert any(step["preempted"] for step in steps) or blocks == 2000
    assert any(step["transfers"] and step["transfers"]["load"] for step in steps) or not host_gb
