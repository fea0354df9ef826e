"""The grid on a modelled device, where a step takes exactly what the model says: every sample can be checked."""

from typing import Any

import pytest

from engines.builder import Parts, Serving
from engines.core.engine import StageEngine
from engines.devices.profile import Reaction
from engines.devices.roofline import Work
from engines.devices.stage import VirtualStage
from engines.devices.step_time import StepTime
from engines.registry import ENGINES
from engines.server import ResolvedServer, ServerParams
from harness.calibration.fit import fit_stage
from harness.calibration.grid import TRIES, Driver, GridRun, Limits, grid, limits_of, react, reaction_shapes
from harness.clocks.clock import run
from harness.events.log import EventLog
from tests.waiting import in_virtual_time


def server_of(deployment: str) -> Serving:
    params = ServerParams.model_validate({"deployment": deployment, "step_noise_cv": 0.0})
    system = ENGINES["vllm_omni"]
    return system.build(Parts(ResolvedServer.of(params), EventLog(), seed=1), system.read({}))


def driver_for(server: Serving, engine: StageEngine, skips: list[bool] | None = None) -> Driver:
    return Driver(server, engine, [].append if skips is None else skips.append, seed=4)


def grid_run(driver: Driver) -> GridRun:
    return GridRun(driver, canary=lambda: 0.001, show=lambda: None)


def measured(stage: str, deployment: str = "speech_tiny", repeats: int = 1) -> tuple[list[Any], Serving, Driver]:
    """The samples have cells of a group and a chunk."""

    async def main():
        server = server_of(deployment)
        engine = next(e for e in server.engines if e.stage == stage)
        driver = driver_for(server, engine)
        measuring = grid_run(driver)
        limits = limits_of(engine, server.gateway.deployment.stages[stage].max_model_len)
        await driver.run(measuring.measure(grid(limits, quick=True), repeats, until_s=1e9))
        assert engine.load == 0 and engine.scheduler.free_blocks == engine.scheduler.allocatable_blocks
        return measuring.samples, server, driver

    return run(main(), virtual=True)


@pytest.mark.parametrize("stage", ["thinker", "talker"])
def test_a_sample_is_the_time_of_the_step_it_names(stage: str):
    samples, server, driver = measured(stage)
    engine = next(e for e in server.engines if e.stage == stage)
    assert isinstance(engine.device, VirtualStage)
    assert not driver.counters["steps_not_as_planned"]
    for sample in samples:
        total = sample.totals
        # vLLM's pairs with causality: n c + n^2 / 2. Ours are n c + n^2, and the chunk is the only row with n > 1.
        chunk = sample.cell[1].tokens if sample.cell[1] else 1
        decodes = sample.cell[0].decodes if sample.cell[1] else total.requests
        pairs = total.pairs - 0.5 * (decodes + (chunk**2 if sample.cell[1] else 0))
        work = Work(int(total.requests), int(total.tokens), int(total.visible), pairs, int(total.samples))
        assert sample.seconds == pytest.approx(engine.device.roofline.step(work).total_s, rel=1e-6)


def test_a_fit_to_the_steps_of_a_roofline_predicts_cells_that_it_has_not_seen():
    samples, _, _ = measured("thinker", repeats=2)
    profile = fit_stage(samples)
    # The steps have no noise. [chosen] 5 % is for the form: its terms add up, and a roofline takes the larger one.
    assert profile.fitted.held_out.median < 0.05
    assert profile.drift.canary_spread == 0  # every canary of `grid_run` takes 1 ms


def test_the_grid_stays_within_its_limits():
    for limits in (Limits(32, 256, 4096, 30000), Limits(4, 64, 512, 2000), Limits(256, 8192, 32768, 400_000)):
        cells = grid(limits)
        assert any(group.decodes == limits.max_num_seqs - 1 for group in cells)
        for group, chunks in cells.items():
            for chunk in filter(None, chunks):
                assert group.decodes + chunk.tokens <= limits.max_num_batched_tokens
                assert chunk.cached + chunk.tokens + 4 <= limits.max_model_len
                assert group.decodes * group.context + chunk.cached + chunk.tokens <= limits.pool_tokens


@in_virtual_time
async def test_an_interrupted_step_ends_within_a_layer():
    found: list[Reaction] = []
    server = server_of("llama_tiny")
    engine = server.engines[0]
    assert isinstance(engine.device, VirtualStage)
    engine.device.step_time = StepTime({"constant": 0.008})  # 4 layers of 2 ms
    driver = driver_for(server, engine)
    await driver.run(react(driver, reaction_shapes(limits_of(engine, 4096)), 4, found))
    assert engine.load == 0 and engine.scheduler.free_blocks == engine.scheduler.allocatable_blocks
    assert [one.shape.split()[0] for one in found] == ["1", "16", "2"]
    for one in found:
        assert one.step_s == pytest.approx(0.008)
        assert 0.0003 < one.median_s < one.p90_s <= 0.002
        assert one.interrupted + one.ran_out == TRIES
        assert 0 < one.ran_out < TRIES / 2  # asked while the last layer ran: about a quarter
