"""Algorithm 2 in virtual time: forecasts, triggers, and layers that change their layout while steps go on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.devices.expert_parallel import ExpertParallel
from engines.systems.omniinfer.expert_load import SampledLoad
from engines.systems.omniinfer.placement import ExpertMap, imbalance, sequential, static_placement
from engines.systems.omniinfer.rebalancing import (
    DynamicPlacement,
    LayerMove,
    Migration,
    Phase,
    Rebalancing,
    few_moves,
    forecast,
    replanned,
    round_s,
)

LAYERS, EXPERTS, DIES = 4, 16, 4
BYTES, LINK = 44.04e6, 200e9


def transfers(before, after):
    from engines.core.vllm_adapter.expert_balance import transfer_rounds

    return transfer_rounds(before, after)


def layers_time(slots, link_share):
    group = ExpertParallel(BYTES, 88.08e6, 7168, 14336, 1.2e12, 301e12, LINK, 60e-6)
    return group.layers_s(slots, link_share=link_share)


def placement(settings, planner=None, layouts=None):
    extra = np.ones(LAYERS, dtype=int)
    if layouts is None:
        layouts = static_placement(SampledLoad(LAYERS, EXPERTS, 2, 0.8, 0).history(), DIES, extra)
    planner = planner or replanned(extra, per_host=2)
    return DynamicPlacement(layouts, EXPERTS, planner, transfers, layers_time, BYTES, LINK, settings)


def test_a_line_through_the_readings_is_followed_one_interval_further():
    readings = [np.array([[10.0 * i, 50.0 - 10 * i]]) for i in range(5)]
    assert forecast(readings, readings[0], "linear") == pytest.approx(np.array([[50.0, 0.0]]))
    readings.append(np.array([[50.0, 0.0]]))
    assert forecast(readings, readings[0], "linear")[0, 1] == 0.0  # not below
    assert forecast(readings[:3], np.array([[7.0, 7.0]]), "linear").tolist() == [[7.0, 7.0]]
    assert np.array_equal(forecast(readings, readings[0], "last"), readings[-1])


def test_a_round_takes_as_long_as_its_largest_transfer():
    rounds = [[(0, 1, (3,)), (2, 3, (4, 5))], [(0, 2, (3,))]]
    assert round_s(rounds, BYTES, LINK) == pytest.approx(3 * BYTES / LINK)


def test_a_layer_goes_through_its_phases_in_order():
    move = LayerMove(0, np.zeros((1, 1)), 1.0, 1)
    with pytest.raises(ValueError, match="layer 0 cannot go from old to ready"):
        move.enter(Phase.READY)
    for phase in (Phase.COPYING, Phase.READY, Phase.SWITCHED):
        move.enter(phase)
    with pytest.raises(ValueError, match="from switched to copying"):
        move.enter(Phase.COPYING)


def test_layers_are_copied_one_after_the_other_and_switched_with_the_next_step():
    moves = [LayerMove(layer, np.zeros((1, 1)), 2.0, 1) for layer in range(2)]
    migration = Migration(moves, begin_s=10.0)
    assert migration.switched(11.0) == [] and migration.copying
    assert [move.phase for move in moves] == [Phase.COPYING, Phase.OLD]
    assert migration.switched(12.5) == moves[:1]
    assert [move.phase for move in moves] == [Phase.SWITCHED, Phase.COPYING]
    assert migration.switched(14.0) == moves[1:] and migration.done and not migration.copying


@given(st.integers(0, 2**32), st.sampled_from(["paper", "oss"]), st.floats(0.001, 3.0))
def test_every_expert_is_hosted_in_each_step_and_a_layer_has_one_layout(seed, mode, step_s):
    extra = np.ones(LAYERS, dtype=int)
    planner = replanned(extra, 2) if mode == "paper" else few_moves(extra)
    settings = Rebalancing(every_s=1.0, predict="last", trigger=1.0, margin=0.0, link_share=1 - 1e-4, weigh=False)
    dynamic = placement(settings, planner)
    load = SampledLoad(LAYERS, EXPERTS, 2, 0.8, seed, drift_s=2.0, drift_share=0.5)
    layouts = [dynamic.map.slots]
    for step in range(12):
        now_s, before = step * step_s, dynamic.counters["layers_moved"]
        map = dynamic.at(now_s)  # ExpertMap refuses a layer that lacks an expert
        changed = [layer for layer in range(LAYERS) if (map.slots[layer] != layouts[-1][layer]).any()]
        assert len(changed) <= dynamic.counters["layers_moved"] - before
        for row in map.slots.reshape(-1, map.slots.shape[-1]).tolist():
            own = [expert for expert in row if expert >= 0]
            assert len(own) == len(set(own)) and len(own) <= EXPERTS // DIES + 1
        layouts.append(map.slots)
        dynamic.observe(now_s, load.draw(now_s, 64))


def run(dynamic, load, until_s, step_s=0.5):
    found = []
    for step in range(int(until_s / step_s)):
        now_s = step * step_s
        map = dynamic.at(now_s)
        counts = load.draw(now_s, 512)
        found.append(np.mean([imbalance(*each) for each in zip(counts, map.slots, strict=True)]))
        dynamic.observe(now_s, counts)
    return found


def test_it_follows_a_load_that_has_changed_and_leaves_a_balanced_one_alone():
    wrong = np.stack([sequential(EXPERTS, DIES)] * LAYERS)
    wrong = np.pad(wrong, ((0, 0), (0, 0), (0, 1)), constant_values=-1)
    dynamic = placement(Rebalancing(every_s=5.0, weigh=False), layouts=wrong)
    found = run(dynamic, SampledLoad(LAYERS, EXPERTS, 2, 0.9, 7), 40.0)
    assert np.mean(found[-20:]) < 1.15 < np.mean(found[:10])
    assert dynamic.counters["layers_moved"] >= LAYERS - 1
    moved = dict(dynamic.counters)
    run(dynamic, SampledLoad(LAYERS, EXPERTS, 2, 0.9, 7), 20.0)
    assert dynamic.counters == moved


def test_nothing_moves_below_the_trigger_or_within_the_margin():
    load = SampledLoad(LAYERS, EXPERTS, 2, 0.8, 3)
    for settings in (Rebalancing(every_s=5.0, trigger=99.0), Rebalancing(every_s=5.0, margin=0.99)):
        dynamic = placement(settings)
        run(dynamic, load, 20.0)
        assert dynamic.counters["layers_moved"] == 0


@pytest.mark.parametrize(("steps", "worth"), [(1000, True), (1, False)])
def test_a_layout_that_saves_less_than_its_copies_cost_is_left(steps, worth):
    """The same load and layouts: a thousand steps of 5 ms pay for the copies, a single one does not."""
    wrong = np.stack([sequential(EXPERTS, DIES)] * LAYERS)
    wrong = np.pad(wrong, ((0, 0), (0, 0), (0, 1)), constant_values=-1)
    load, moved = SampledLoad(LAYERS, EXPERTS, 2, 0.9, 7).draw(0.0, 16_384), {}
    for weigh in (True, False):
        dynamic = placement(Rebalancing(every_s=steps * 5e-3, weigh=weigh), layouts=wrong)
        for step in range(steps):
            dynamic.observe(step * 5e-3, load)
        dynamic.at(steps * 5e-3)
        moved[weigh] = 0 if dynamic.migration is None else len(dynamic.migration.moves)
        assert (dynamic.counters["layers_too_dear"] > 0) == (weigh and not worth)
    assert moved[False] > 0 and moved[True] == (moved[False] if worth else 0)


def test_while_a_layer_is_copied_the_old_one_serves_and_steps_keep_most_of_the_link():
    dynamic = placement(Rebalancing(every_s=1.0, trigger=1.0, margin=-math.inf, predict="last", weigh=False))
    load = SampledLoad(LAYERS, EXPERTS, 2, 0.8, 5)
    dynamic.observe(0.0, load.draw(0.0, 512))
    before = dynamic.at(0.5).slots
    assert dynamic.link_share == 1.0
    assert np.array_equal(dynamic.at(1.0).slots, before) and dynamic.link_share == 0.95
    copies = [move.copy_s for move in dynamic.migration.moves]
    assert min(copies) >= BYTES / (0.05 * LINK)
    after = dynamic.at(1.0 + copies[0]).slots
    assert [(after[layer] != before[layer]).any() for layer in range(LAYERS)] == [True, False, False, False]
    assert dynamic.at(1.0 + sum(copies)).slots.shape == before.shape and dynamic.migration is None


def test_vllms_own_balancer_fills_the_same_slots():
    from engines.core.vllm_adapter.expert_balance import eplb_layout

    load = SampledLoad(LAYERS, EXPERTS, 2, 0.8, 5).history()
    layouts = eplb_layout(load, DIES, 1)
    assert layouts.shape == (LAYERS, DIES, EXPERTS // DIES + 1)
    ExpertMap(layouts, EXPERTS)
    assert np.array_equal(eplb_layout(load, DIES, 1, before=layouts), layouts)
