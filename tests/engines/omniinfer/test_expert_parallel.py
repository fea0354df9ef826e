"""Seconds of a lock-step group's experts, with the published arithmetic of DeepSeek-R1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.devices.expert_parallel import ExpertParallel
from engines.systems.omniinfer.expert_load import RecordedLoad
from engines.systems.omniinfer.experts import ExpertSteps, FixedPlacement, expert_steps
from engines.systems.omniinfer.omniinfer_params import LoadParams, PlacementParams, ReplicaParams
from engines.systems.omniinfer.placement import ExpertMap
from workloads.errors import UserError

R1 = ExpertParallel(
    expert_bytes=3 * 7168 * 2048,
    flops_per_token=6 * 7168 * 2048,
    dispatch_bytes=7168,
    combine_bytes=2 * 7168,
    bandwidth=1.6e12,
    flops=0.4 * 752e12,
    link_bandwidth=196e9,
    latency_s=60e-6,
)
"""A die of an Ascend 910C and an INT8 expert (specification 2.3)."""


def test_a_balanced_layer_of_384_tokens_a_die_takes_what_the_specification_says():
    """0.11 ms of weights (4 experts) and 0.11 ms of arithmetic at 40 % of 752 TOPS."""
    slots = np.full((1, 64, 4), 96.0)
    read_s, compute_s = 4 * R1.expert_bytes / R1.bandwidth, 384 * R1.flops_per_token / R1.flops
    assert (read_s, compute_s) == (pytest.approx(0.11e-3, rel=0.01), pytest.approx(0.1125e-3, rel=0.01))
    link_s = 384 * 3 * 7168 / R1.link_bandwidth
    assert R1.layers_s(slots)[0] == pytest.approx(compute_s + link_s + 2 * 60e-6)


def test_the_layer_is_over_when_its_fullest_die_is():
    slots = np.full((2, 64, 4), 96.0)
    slots[1, 7] *= 3
    even, skewed = R1.layers_s(slots)
    per_unit = 384 * (R1.flops_per_token / R1.flops + 3 * 7168 / R1.link_bandwidth)
    assert skewed - even == pytest.approx(2 * per_unit)


def test_copies_leave_less_of_the_link_and_the_fullest_sender_counts():
    slots = np.full((1, 4, 2), 10.0)
    assert R1.layers_s(slots, link_share=0.5) > R1.layers_s(slots)
    assert R1.layers_s(slots, sent=80.0) - R1.layers_s(slots) == pytest.approx(60 * 3 * 7168 / R1.link_bandwidth)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4))
def test_no_token_is_lost_between_experts_and_dies(load):
    slots = np.array([[[0, 1], [2, 3], [0, -1], [1, 0]]])
    [dies] = ExpertMap(slots, 4).per_slot(np.array([load])).sum(axis=2)
    assert dies.sum() == pytest.approx(sum(load)) and dies[2] == pytest.approx(load[0] / 3)


def steps(clock=lambda: 0.0, kind=PlacementParams, dies=16, **params):
    return expert_steps(kind(**params), R1, 6, 64, 8, dies, seed=0, clock=clock)


def test_a_held_draw_is_scaled_to_the_tokens_of_the_step():
    counts = np.array([[6, 6, 6, 6], [12, 6, 3, 3]])
    load = RecordedLoad(counts[None], per_token=2, seed=0)
    map = ExpertMap(np.arange(8).reshape(1, 4, 2).repeat(2, 0) % 4, 4)
    made = ExpertSteps(R1, load, FixedPlacement(map), 2, lambda: 0.0, every=2)
    made.step([3, 3, 3, 3])
    assert made.step([6, 6, 6, 6]) == pytest.approx(R1.layers_s(map.per_slot(2 * counts), 12).sum())
    assert made.imbalance == (1 + 1.5) / 2  # of the second layer's dies two have 18 tokens, two have 6


def seconds_under_drift(**params):
    now = [0.0]
    made = steps(lambda: now[0], expert_skew=0.9, expert_drift_s=60.0, **params)
    seconds = 0.0
    for _ in range(200):
        now[0] += 0.5
        seconds += made.step([200] * 16)  # enough that arithmetic outweighs the reading of weights
    return seconds


def test_replicas_make_steps_shorter_and_following_a_drift_keeps_them_short():
    sequential_s, static_s = seconds_under_drift(kind=LoadParams), seconds_under_drift(rebalance=False)
    assert seconds_under_drift(rebalance_every_s=5.0, forecast="last") < static_s < sequential_s


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"kind": ReplicaParams, "redundant_slots": 3}, "redundant_slots 3: placement eplb gives all 6 layers"),
        ({"redundant_slots": 6 * 61}, "redundant_slots 366 leaves no 64 different experts"),
        ({"dies": 12}, "64 experts do not stand evenly on 12 dies"),
    ],
)
def test_slots_that_cannot_be_given_are_refused(params, says):
    with pytest.raises(UserError, match=says):
        steps(**params)
