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


def driver_for(server: Serving, engine: StageEngine) -> Driver:
    return Driver(server, engine, [].append, seed=4)


def measured(stage: str, repeats: int = 1) -> tuple[list[Any], StageEngine]:
    """The samples of a quick grid, with cells of a group and a chunk; every canary takes 1 ms."""

    async def main() -> tuple[list[Any], StageEngine]:
        server = server_of("speech_tiny")
        engine = next(each for each in server.engines if each.stage == stage)
        driver = driver_for(server, engine)
        measuring = GridRun(driver, canary=lambda: 0.001, show=lambda: None)
        limits = limits_of(engine, server.gateway.deployment.stages[stage].max_model_len)
        await driver.run(measuring.measure(grid(limits, quick=True), repeats, until_s=1e9))
        assert engine.load == 0 and engine.scheduler.free_blocks == engine.scheduler.allocatable_blocks
        assert not driver.counters["steps_not_as_planned"]
        return measuring.samples, engine

    return run(main(), virtual=True)


@pytest.mark.parametrize("stage", ["thinker", "talker"])
def test_a_sample_has_the_time_of_the_step_that_its_cell_describes(stage: str):
    samples, engine = measured(stage)
    assert isinstance(engine.device, VirtualStage)
    for sample in samples:
        total, (group, chunk) = sample.totals, sample.cell
        # A profile counts n c + n^2 pairs of a row with n new tokens and a context of c, attention n c + n^2 / 2.
        # Decodes have n = 1; only the chunk has more.
        decodes = group.decodes if chunk else total.requests
        pairs = total.pairs - 0.5 * (decodes + (chunk.tokens**2 if chunk else 0))
        work = Work(int(total.requests), int(total.tokens), int(total.visible), pairs, int(total.samples))
        assert sample.seconds == pytest.approx(engine.device.roofline.step(work).total_s, rel=1e-6)


def test_a_fit_to_the_steps_of_a_roofline_predicts_cells_that_it_has_not_seen():
    samples, _ = measured("thinker", repeats=2)
    profile = fit_stage(samples)
    # The steps have no noise. [chosen] 5 % is for the form: its terms add up, and a roofline takes the larger one.
    assert profile.fitted.held_out.median < 0.05
    assert profile.drift.canary_spread == 0


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


def grid_run(driver: Driver) -> GridRun:
    return GridRun(driver, canary=lambda: 0.001, show=lambda: None)


@in_virtual_time
async def test_the_time_limit_leaves_groups_out_and_says_so():
    server = server_of("llama_tiny")
    engine = server.engines[0]
    driver = driver_for(server, engine)
    measuring = grid_run(driver)
    cells = grid(limits_of(engine, 4096), quick=True)
    await driver.run(measuring.measure(cells, 2, until_s=1.0))
    assert driver.counters["groups_left_out"] and measuring.samples
