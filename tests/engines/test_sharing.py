"""Several steps at once on one modelled GPU: processor sharing over its SMs and its bandwidth."""

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.device import Row
from engines.deployments import deployment_names, load_deployment
from engines.devices.hardware import load_gpu
from engines.devices.roofline import Roofline, Work
from engines.devices.sharing import (
    Part,
    SharedCompute,
    SharedExecution,
    SharedStep,
    alone_s,
    arithmetic,
    partitioned,
    traffic,
)
from harness.clocks.clock import run
from tests.waiting import in_virtual_time

A6000 = load_gpu("a6000")
SMS = A6000.sms

seconds = st.floats(0.0, 0.1)
part = st.builds(Part, seconds, seconds, st.floats(0.0, 0.01), st.sampled_from((0, 448, 3000)))
parts = st.lists(part, min_size=1, max_size=2).map(tuple)
step = st.builds(SharedStep, parts, parts, st.integers(1, 40), parts)
share = st.integers(2, SMS)
arrival = st.tuples(st.floats(0.0, 1.0), step, share)


def played(arrivals: list[tuple[float, SharedStep, float]]) -> list[SharedExecution]:
    """Submit each step at its time, on its SMs; returns the ended executions."""

    async def one(compute: SharedCompute, at_s: float, step: SharedStep, sms: float) -> SharedExecution:
        await asyncio.sleep(at_s)
        execution = compute.submit(step, sms)
        await execution
        execution.ends_s = asyncio.get_running_loop().time()
        return execution

    async def main() -> list[SharedExecution]:
        compute = SharedCompute(A6000)
        return await asyncio.gather(*(one(compute, *arrival) for arrival in arrivals))

    return run(main(), virtual=True)


@given(step, share)
@settings(max_examples=50)
def test_a_step_alone_takes_its_own_time(work: SharedStep, sms: int):
    (execution,) = played([(0.0, work, sms)])
    assert execution.completed and execution.layers_done == work.layers
    assert execution.ends_s == pytest.approx(alone_s(A6000, work, sms))


@given(st.lists(arrival, min_size=2, max_size=4))
@settings(max_examples=50)
def test_other_steps_never_make_a_step_faster(arrivals: list[tuple[float, SharedStep, float]]):
    for (at_s, work, sms), execution in zip(arrivals, played(arrivals), strict=True):
        assert execution.ends_s - at_s >= alone_s(A6000, work, sms) - 1e-7
        assert execution.ends_s >= execution.start_s >= at_s


@given(st.lists(st.tuples(parts, share), min_size=1, max_size=4))
@settings(max_examples=100)
def test_steps_together_move_no_more_than_the_bandwidth(running: list[tuple[tuple[Part, ...], int]]):
    phases, sms = [phase for phase, _ in running], [float(s) for _, s in running]
    each = partitioned(A6000, phases, sms)
    moved = [sum(p.memory_s for p in phase) for phase in phases]
    assert sum(m / s for m, s in zip(moved, each, strict=True) if s > 0) <= 1 + 1e-8


def test_arithmetic_runs_in_waves_and_traffic_has_a_knee():
    assert arithmetic(A6000, 60, 3000) == 36 / 50
    assert arithmetic(A6000, 60, 0) == 60 / 84
    assert traffic(A6000, 12) == pytest.approx(12 / (0.336 * 84), rel=0.03)
    assert traffic(A6000, 56) > 0.97


def test_two_on_one_gpu_are_slowed_by_bandwidth_alone():
    decode, vision = SharedStep((), (Part(memory_s=0.01),), 10, ()), SharedStep((), (Part(0.1),), 10, ())
    slow, fast = played([(0.0, decode, 28), (0.0, vision, 56)])
    assert fast.ends_s == pytest.approx(1.0 * 84 / 56)
    assert slow.ends_s == pytest.approx(0.1 / traffic(A6000, 28))
    readers = played([(0.0, decode, 42), (0.0, decode, 42)])
    assert [each.ends_s for each in readers] == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(("at_s", "layers"), [(0.05, 0), (0.25, 2), (0.3, 2), (0.95, None)])
@in_virtual_time
async def test_an_interruption_ends_a_step_at_its_next_layer(at_s: float, layers: int | None):
    compute, loop = SharedCompute(A6000), asyncio.get_running_loop()
    execution = compute.submit(SharedStep((Part(0.1),), (Part(0.1),), 8, (Part(0.05),)), 84)
    answers: list[bool] = []
    loop.call_at(at_s, lambda: answers.append(compute.interrupt(execution)))
    await execution
    done, execution, end_s = answers[0], execution, loop.time()
    assert done is (layers is not None)
    assert execution.layers_done == (8 if layers is None else layers)
    assert end_s == pytest.approx(0.95 if layers is None else 0.1 + 0.1 * layers)
    assert execution.completed is (layers is None)


@in_virtual_time
async def test_an_interrupted_step_goes_on_smaller():
    compute, loop = SharedCompute(A6000), asyncio.get_running_loop()
    execution = compute.submit(SharedStep((), (Part(0.1),), 8, ()), 84)
    smaller = SharedStep((), (Part(0.05),), 8, ())
    loop.call_at(0.35, compute.interrupt, execution, smaller)
    await execution
    assert execution.completed
    assert loop.time() == pytest.approx(0.4 + 4 * 0.05)


@pytest.mark.parametrize("name", deployment_names())
def test_a_shared_step_is_the_step_of_the_roofline(name: str):
    deployment = load_deployment(name)
    for stage in deployment.stages.values():
        roofline = Roofline(stage.decoder, deployment.gpu, stage.split, deployment.in_turn)
        for rows in ([Row("a", 1, 500, True)] * 8, [Row("a", 2048, 0, True), Row("b", 1, 90, True)]):
            work = Work.of(rows)
            work.frames, work.clips, work.audio_s, work.images = 20, 1, 2.0, (1600,)
            shared = roofline.shared_step(work, 1.25)
            if deployment.gpu.sms:
                whole_s = alone_s(deployment.gpu, shared)
                assert math.isclose(whole_s, roofline.step(work, 1.25).total_s, rel_tol=1e-9)
