"""The grid on a modelled device, where a step takes exactly what the model says: every sample can be checked."""

import numpy as np
import pytest

from engines.build import Server, build_server
from engines.core.loop import StageEngine
from engines.devices.profile import Reaction
from engines.devices.roofline import Work
from engines.devices.stage import VirtualStage
from engines.registry import ENGINES
from engines.server import ServerParams
from harness.calibration.fit import Sample, fit_stage
from harness.calibration.grid import GridPolicy, Limits, grid, limits_of, reaction_shapes
from harness.clock import run
from harness.log import EventLog


def server_of(deployment: str) -> Server:
    params = ServerParams(deployment=deployment, step_noise_cv=0.0)
    return build_server("vllm_omni", ENGINES["vllm_omni"].Params(), params, EventLog(), seed=1)


def policy_for(server: Server, engine: StageEngine, skips: list[bool]) -> GridPolicy:
    return GridPolicy(server, engine, skips.append, lambda: 0.001, lambda: None, seed=4)


def measured(
    stage: str, deployment: str = "speech_tiny", repeats: int = 1
) -> tuple[list[Sample], Server, GridPolicy]:
    async def main():
        server = server_of(deployment)
        engine = next(e for e in server.engines if e.stage == stage)
        policy = policy_for(server, engine, [])
        limits = limits_of(engine, server.gateway.deployment.stages[stage].max_model_len)
        await policy.run(policy.measure(grid(limits, quick=True), repeats, until_s=1e9))
        assert engine.load == 0 and engine.scheduler.free_blocks == engine.scheduler.allocatable_blocks
        return policy.samples, server, policy

    return run(main(), virtual=True)


@pytest.mark.parametrize("stage", ["thinker", "talker"])
def test_a_sample_is_the_time_of_the_step_it_names(stage: str):
    samples, server, policy = measured(stage)
    engine = next(e for e in server.engines if e.stage == stage)
    assert isinstance(engine.device, VirtualStage)
    assert not policy.counters["steps_not_as_planned"]
    for sample in samples:
        total = sample.totals
        # vLLM's pairs with causality: n c + n^2 / 2. Ours are n c + n^2, and the chunk is the only row with n > 1.
        chunk = sample.cell[1].tokens if sample.cell[1] else 1
        decodes = sample.cell[0].decodes if sample.cell[1] else total.requests
        pairs = total.pairs - 0.5 * (decodes + (chunk**2 if sample.cell[1] else 0))
        work = Work(int(total.requests), int(total.tokens), int(total.visible), pairs, int(total.samples))
        assert sample.seconds == pytest.approx(engine.device.roofline.step(work).total_s, rel=1e-6)


def test_the_fit_finds_a_roofline_again():
    samples, _, _ = measured("thinker", repeats=2)
    profile = fit_stage(samples)
    assert profile.fitted.held_out.median < 0.05
    assert profile.drift.canary_spread == 0


def test_chunks_have_the_context_and_the_size_that_the_cell_says():
    samples, _, _ = measured("thinker")
    chunks = [sample for sample in samples if sample.cell[1]]
    assert len({sample.cell for sample in samples}) > 30
    assert {sample.cell[1].ends for sample in chunks} == {True, False}
    for sample in chunks:
        group, chunk = sample.cell
        assert sample.totals.tokens == group.decodes + chunk.tokens
        assert sample.totals.samples == group.decodes + chunk.ends
        if not group.decodes:
            assert sample.totals.visible == chunk.cached + chunk.tokens


def test_the_grid_stays_within_its_limits():
    for limits in (Limits(32, 256, 4096, 30000), Limits(4, 64, 512, 2000), Limits(256, 8192, 32768, 400_000)):
        cells = grid(limits)
        assert any(group.decodes == limits.seats - 1 for group in cells)
        for group, chunks in cells.items():
            for chunk in filter(None, chunks):
                assert group.decodes + chunk.tokens <= limits.step_tokens
                assert chunk.cached + chunk.tokens + 4 <= limits.request_tokens
                assert group.decodes * group.context + chunk.cached + chunk.tokens <= limits.pool_tokens


def test_the_time_limit_leaves_groups_out_and_says_so():
    async def main():
        server = server_of("llama_tiny")
        engine = server.engines[0]
        policy = policy_for(server, engine, [])
        cells = grid(limits_of(engine, 4096), quick=True)
        await policy.run(policy.measure(cells, 2, until_s=1.0))
        return policy

    policy = run(main(), virtual=True)
    assert policy.counters["groups_left_out"] and policy.samples


def test_contexts_are_set_up_without_the_forward():
    skips: list[bool] = []

    async def main():
        server = server_of("llama_tiny")
        policy = policy_for(server, server.engines[0], skips)
        await policy.run(policy.measure(grid(Limits(4, 64, 512, 2000), quick=True), 1, until_s=1e9))

    run(main(), virtual=True)
    assert skips[0] is True and skips[-1] is False and skips.count(True) > 4


def test_reaction_is_within_a_layer_where_the_device_can_be_interrupted():
    found: list[Reaction] = []

    async def main():
        server = server_of("llama_tiny")
        engine = server.engines[0]
        policy = policy_for(server, engine, [])
        limits = limits_of(engine, 4096)
        layers = server.gateway.deployment.stages["thinker"].decoder.layers
        await policy.run(policy.react(reaction_shapes(limits), layers, found, tries=20))
        assert isinstance(engine.device, VirtualStage)
        return engine.device.roofline.layer_s(Work(requests=1, tokens=1, kv_tokens=300, attention_pairs=300))

    layer_s = run(main(), virtual=True)
    assert len(found) == 3
    decode = found[0]
    assert decode.interrupted + decode.ran_out == 20
    assert 0 <= decode.median_s <= decode.p90_s
    assert decode.p90_s <= decode.step_s and layer_s > 0
    assert np.isfinite([one.layer_s for one in found]).all()
