"""OmniInfer's Algorithm 1: layouts of experts on dies, with published arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.systems.omniinfer.expert_load import zipf
from engines.systems.omniinfer.placement import (
    ExpertMap,
    best_layout,
    budget,
    die_loads,
    imbalance,
    over_hosts,
    place,
    replicas,
    sequential,
    static_placement,
)
from engines.systems.omniinfer.rebalancing import edited


@st.composite
def layers(draw, extra=2):
    """A layer's load, its dies, and slots beyond E / D that can be filled without repeating an expert on a die."""
    dies, own = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    experts = dies * own
    load = draw(st.lists(st.floats(0, 1e6), min_size=experts, max_size=experts))
    return np.array(load), dies, draw(st.integers(0, min(extra, experts - own)))


def whole(layout, experts):
    """Every expert hosted (1), none twice on a die."""
    rows = [[expert for expert in row if expert >= 0] for row in layout.tolist()]
    return {e for row in rows for e in row} == set(range(experts)) and all(len(r) == len(set(r)) for r in rows)


@given(layers())
def test_a_layout_is_whole_fills_its_slots_and_is_never_worse_than_sequential(layer):
    load, dies, extra = layer
    layout = best_layout(load, dies, extra)
    assert whole(layout, len(load))
    assert (layout >= 0).all() and len(load) // dies <= layout.shape[1] <= len(load) // dies + extra  # (2)
    assert imbalance(load, layout) <= imbalance(load, sequential(len(load), dies)) + 1e-9


@given(layers())
def test_the_greedy_placement_fills_every_slot_even_where_it_has_to_exchange(layer):
    load, dies, extra = layer
    counts = replicas(load, extra * dies, dies)
    layout = place(load, counts, dies)
    assert whole(layout, len(load)) and (layout >= 0).all()
    assert np.array_equal(np.bincount(layout.ravel(), minlength=len(load)), counts)


@given(layers(), st.integers(1, 8))
def test_dealing_dies_to_hosts_changes_no_load(layer, per_host):
    layout = best_layout(*layer)
    moved = over_hosts(layout, per_host)
    assert sorted(map(tuple, moved.tolist())) == sorted(map(tuple, layout.tolist()))


@given(layers())
def test_edits_keep_a_layout_whole_and_make_it_no_worse(layer):
    load, dies, extra = layer
    layout = np.pad(sequential(len(load), dies), ((0, 0), (0, extra)), constant_values=-1)
    found = edited(load, layout)
    assert found.shape == layout.shape and whole(found, len(load))
    assert imbalance(load, found, "max_min") <= imbalance(load, layout, "max_min")


def test_replicas_go_to_those_whose_slots_carry_most():
    assert replicas(np.array([8.0, 4.0, 1.0]), 3, most=9).tolist() == [3, 2, 1]
    assert replicas(np.array([8.0, 4.0, 1.0]), 3, most=2).tolist() == [2, 2, 2]
    assert replicas(np.array([2.0, 2.0]), 1, most=2).tolist() == [2, 1]  # the smaller id on a tie
    with pytest.raises(ValueError, match="do not fit"):
        replicas(np.ones(3), 4, most=2)


def test_a_replica_carries_an_equal_part():
    load, layout = np.array([6.0, 1.0, 2.0]), np.array([[0, 1], [0, 2]])
    assert die_loads(load, layout).tolist() == [4.0, 5.0]
    assert imbalance(load, layout) == pytest.approx(5 / 4.5)
    assert imbalance(load, layout, "max_min") == pytest.approx(5 / 4)


@given(st.integers(0, 12), st.integers(1, 3))
def test_the_budget_goes_to_layers_out_of_balance(units, most):
    flat, steep, steeper = np.ones(8), zipf(8, 0.5, 1), zipf(8, 1.5, 1)
    given = budget(np.array([flat, steep, steeper]), 4, units, most)
    assert given[0] == 0 and given[1] <= given[2] <= most
    assert given.sum() == min(units, 2 * most)


def test_the_code_gives_its_budget_to_the_layers_with_the_fullest_dies():
    assert budget(np.array([[9.0, 9.0], [1.0, 12.0], [1.0, 10.0]]), 2, 2, mode="oss").tolist() == [0, 1, 1]


@pytest.mark.parametrize(("exponent", "before"), [(0.5, 2.9), (0.9, 9.1)])
def test_as_many_replicas_as_dies_balance_a_layer(exponent, before):
    """256 experts on 64 dies by Zipf: sequential 2.9 to 9.1, with one more slot a die 1.005 to 1.02 (specification)."""
    rng = np.random.default_rng(0)
    loads = np.array([rng.permutation(zipf(256, exponent, 8)) for _ in range(8)])
    sequentials = [imbalance(load, sequential(256, 64)) for load in loads]
    assert np.mean(sequentials) == pytest.approx(before, rel=0.1)
    balanced, ordered = (static_placement(loads, 64, np.full(8, extra)) for extra in (1, 0))
    assert balanced.shape == (8, 64, 5)
    assert all(1.0 <= imbalance(*each) <= 1.02 for each in zip(loads, balanced, strict=True))
    # One hot expert bounds what order alone can do.
    assert np.mean([imbalance(*each) for each in zip(loads, ordered, strict=True)]) > 0.8 * np.mean(sequentials)


def test_a_map_refuses_an_expert_that_stands_nowhere():
    with pytest.raises(ValueError, match="expert 1 of layer 0 stands nowhere"):
        ExpertMap(np.array([[[0], [-1]]]), 2)
