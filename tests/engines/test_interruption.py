"""Requests that leave a step before its end are not computed and not counted."""

import asyncio

import pytest

from engines.core import vllm_adapter as vllm
from engines.core.request import StageRequest
from engines.devices.hardware import load_gpu
from engines.devices.stage import VirtualStage
from engines.devices.virtual import VirtualGpu
from harness.clocks.clock import run as run_clock
from tests.engines.replays import cut_short, run, voice_trace
from tests.engines.stage import TALKER, add, make_scheduler

LAYER = {"abort_at": "layer", "step_noise_cv": 0.0}
STEP = {"abort_at": "step", "step_noise_cv": 0.0}


def stage_on_a_gpu() -> VirtualStage:
    return VirtualStage(TALKER, VirtualGpu(load_gpu("h200")))


@pytest.mark.parametrize("leaving", [frozenset("a"), frozenset("ab")])
def test_a_request_dropped_from_a_step_runs_again(leaving: frozenset[str]):
    async def main():
        device, scheduler = stage_on_a_gpu(), make_scheduler()
        requests = {name: StageRequest("talker", 0, 0, [0] * 32, 8) for name in "ab"}
        for name in "ab":
            add(scheduler, name)
        scheduled = scheduler.schedule()
        rows = vllm.rows_of(scheduler, scheduled)
        whole_s = device.roofline.step(device.work(rows, requests)).total_s
        asyncio.get_running_loop().call_at(whole_s / 2, device.interrupt, leaving)
        sampled = await device.execute(scheduled, rows, requests)
        ended_s = asyncio.get_running_loop().time()
        scheduler.withdraw(scheduled, vllm.dropped(rows, sampled))
        produced = vllm.finish_step(scheduler, scheduled, rows, sampled)
        again = {row.request_id: row.context for row in vllm.rows_of(scheduler, scheduler.schedule())}
        return whole_s, ended_s, {id for id, _, _ in produced}, again

    whole_s, ended_s, produced, again = run_clock(main(), virtual=True)
    assert ended_s < whole_s
    assert produced == set("ab") - leaving
    assert again == {name: 0 if name in leaving else 32 for name in "ab"}


@pytest.mark.parametrize("server", [{}, {"prefix_caching": True, "kv_pool_blocks": 64}])
def test_aborts_at_a_layer_waste_fewer_tokens_than_at_a_step(server: dict):
    trace = cut_short(voice_trace(sessions=12, rate=20.0, reply_tokens=120), after_s=0.05)
    at_step = run(trace, server={**server, **STEP})
    at_layer = run(trace, server={**server, **LAYER})
    assert at_layer.proof["kv_blocks_used_after"] == 0
    for replay in (at_step, at_layer):
        events = replay.events.to_pandas()
        assert (events["kind"] == "abort").sum() > 5
    lost = [_wasted_tokens(replay) for replay in (at_step, at_layer)]
    assert lost[1] < lost[0], "a request dropped from its last step has computed one token less"
    assert at_layer.run_end_s <= at_step.run_end_s + 0.1
    again = run(trace, server={**server, **LAYER})
    assert again.events.to_pandas().equals(at_layer.events.to_pandas())


def _wasted_tokens(replay) -> float:
    events = replay.events.to_pandas()
    return events.loc[events["kind"] == "abort", "value"].sum()
