"""OmniInfer's Algorithm 2 in virtual time: forecasts, triggers, and migrations while steps go on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.vllm_adapter.expert_balance import eplb_layout, transfer_rounds
from engines.devices.expert_parallel import ExpertParallel
from engines.systems.omniinfer.expert_load import SampledLoad
from engines.systems.omniinfer.placement import ExpertMap, imbalance, sequential, static_placement
from engines.systems.omniinfer.rebalancing import DynamicPlacement, Rebalancing, few_moves, forecast, replanned

LAYERS, EXPERTS, DIES = 4, 16, 4
BYTES, LINK = 44.04e6, 200e9

EXTRA = np.ones(LAYERS, dtype=int)
WRONG = np.pad(np.stack([sequential(EXPERTS, DIES)] * LAYERS), ((0, 0), (0, 0), (0, 1)), constant_values=-1)
GROUP = ExpertParallel(BYTES, 88.08e6, 7168, 14336, 1.2e12, 301e12, LINK, 60e-6)


def load_of(seed, exponent=0.8, **drift):
    return SampledLoad(LAYERS, EXPERTS, 2, exponent, seed, **drift)


def placement(planner=replanned(EXTRA, per_host=2), layouts=None, **settings):
    if layouts is None:
        layouts = static_placement(load_of(0).history(), DIES, EXTRA)

    def layers_s(slots, link_share):
        return GROUP.layers_s(slots, link_share=link_share)

    return DynamicPlacement(layouts, EXPERTS, planner, transfer_rounds, layers_s, BYTES, LINK, Rebalancing(**settings))


AVERAGE = np.array([[7.0, 7.0]])


def readings(count: int):
    """Loads of two experts: of one 0, 10, 20, ... tokens an interval, of the other 50, 40, 30, ..."""
    return [np.array([[10.0 * i, 50.0 - 10 * i]]) for i in range(count)]


@pytest.mark.parametrize(
    ("kind", "count", "following"),
    [
        ("linear", 3, AVERAGE[0]),  # too few readings for a line
        ("linear", 4, [40.0, 10.0]),
        ("linear", 5, [50.0, 0.0]),
        ("linear", 6, [60.0, 0.0]),  # the line goes on to -10
        ("last", 6, [50.0, 0.0]),
    ],
)
def test_a_linear_forecast_follows_the_trend_by_one_interval(kind, count, following):
    assert forecast(readings(count), AVERAGE, kind) == pytest.approx(np.array([following]))


@given(st.integers(0, 2**32), st.sampled_from([replanned(EXTRA, 2), few_moves(EXTRA)]), st.floats(0.001, 3.0))
def test_every_expert_is_hosted_in_each_step_and_a_layer_has_one_layout(seed, planner, step_s):
    settings = {"predict": "last", "trigger": 1.0, "margin": 0.0, "link_share": 1 - 1e-4, "weigh": False}
    dynamic, load = placement(planner, every_s=1.0, **settings), load_of(seed, drift_s=2.0, drift_share=0.5)
    before = dynamic.map.slots
    for step in range(12):
        now_s, moved = step * step_s, dynamic.counters["layers_moved"]
        slots = dynamic.at(now_s).slots  # ExpertMap refuses a layer that lacks an expert
        changed = (slots != before).any(axis=(1, 2)).sum()
        assert changed <= dynamic.counters["layers_moved"] - moved
        for row in slots.reshape(-1, slots.shape[-1]).tolist():
            own = [expert for expert in row if expert >= 0]
            assert len(own) == len(set(own)) and len(own) <= EXPERTS // DIES + 1
        before = slots
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
    dynamic = placement(layouts=WRONG, every_s=5.0, weigh=False)
    found = run(dynamic, load_of(7, 0.9), 40.0)
    assert np.mean(found[-20:]) < 1.15 < np.mean(found[:10])
    assert dynamic.counters["layers_moved"] >= LAYERS - 1
    moved = dict(dynamic.counters)
    run(dynamic, load_of(7, 0.9), 20.0)
    assert dynamic.counters == moved


READING = load_of(7, 0.9).draw(0.0, 512)


def imbalances(layouts):
    return np.array([imbalance(*layer) for layer in zip(READING, layouts, strict=True)])


def layers_to_move(**settings):
    """Layers that leave their layout in WRONG after READING."""
    dynamic = placement(layouts=WRONG, every_s=5.0, weigh=False, **settings)
    dynamic.observe(0.0, READING)
    dynamic.at(5.0)
    return 0 if dynamic.migration is None else len(dynamic.migration.moves)


def test_a_layer_moves_above_the_trigger_and_not_at_it():
    highest = imbalances(WRONG).max()
    assert layers_to_move(trigger=highest, margin=0.0) == 0
    assert layers_to_move(trigger=np.nextafter(highest, 0), margin=0.0) == 1


def test_a_layer_moves_if_it_gains_more_than_the_margin():
    best = replanned(EXTRA, 2)(np.arange(LAYERS), READING, WRONG)
    gain = (1 - imbalances(best) / imbalances(WRONG)).max()
    assert layers_to_move(trigger=1.0, margin=gain + 1e-9) == 0
    assert layers_to_move(trigger=1.0, margin=gain - 1e-9) == 1


@pytest.mark.parametrize(("steps", "worth"), [(1000, True), (1, False)])
def test_a_layout_that_saves_less_than_its_copies_cost_is_left(steps, worth):
    """The same load and layouts: a thousand steps of 5 ms pay for the copies, a single one does not."""
    load, moved = load_of(7, 0.9).draw(0.0, 16_384), {}
    for weigh in (True, False):
        dynamic = placement(layouts=WRONG, every_s=steps * 5e-3, weigh=weigh)
        for step in range(steps):
            dynamic.observe(step * 5e-3, load)
        dynamic.at(steps * 5e-3)
        moved[weigh] = 0 if dynamic.migration is None else len(dynamic.migration.moves)
        assert (dynamic.counters["layers_too_dear"] > 0) == (weigh and not worth)
    assert moved[False] > 0 and moved[True] == (moved[False] if worth else 0)


def test_while_a_layer_is_copied_the_old_one_serves_and_steps_keep_most_of_the_link():
    dynamic = placement(every_s=1.0, trigger=1.0, margin=-math.inf, predict="last", weigh=False)
    dynamic.observe(0.0, load_of(5).draw(0.0, 512))
    before = dynamic.at(0.5).slots
    assert dynamic.link_share == 1.0
    assert np.array_equal(dynamic.at(1.0).slots, before) and dynamic.link_share == 0.95
    assert dynamic.migration is not None
    copies = [move.copy_s for move in dynamic.migration.moves]
    assert min(copies) >= BYTES / (0.05 * LINK)
    after = dynamic.at(1.0 + copies[0]).slots
    assert [(after[layer] != before[layer]).any() for layer in range(LAYERS)] == [True, False, False, False]
    assert dynamic.at(1.0 + sum(copies)).slots.shape == before.shape and dynamic.migration is None


def test_vllms_own_balancer_fills_the_same_slots():
    load = load_of(5).history()
    layouts = eplb_layout(load, DIES, 1)
    assert layouts.shape == (LAYERS, DIES, EXPERTS // DIES + 1)
    ExpertMap(layouts, EXPERTS)
    assert np.array_equal(eplb_layout(load, DIES, 1, before=layouts), layouts)
