from typing import Any

import numpy as np
import pytest

from engines.deployments import load_deployment
from engines.devices.extensions import StatedSteps
from reports.figures.style import style
from reports.papers.omniinfer import attention_memory, placement, prefill
from reports.papers.omniinfer.cluster import FILL_RATE
from tests.reports.prefill_trials import VARIANTS, Cluster, Loop


@pytest.fixture
def brief(monkeypatch):
    """Two minutes of two layers, three readings."""
    for name, value in (("UNTIL_S", 200.0), ("LAYERS", 2), ("STEP_S", 4.0)):
        monkeypatch.setattr(placement, name, value)
    placement.followed.cache_clear()
    yield
    placement.followed.cache_clear()


def test_where_the_load_drifts_the_first_layout_gets_worse_and_a_scheduler_mends_it(brief):
    found = {name: placement.followed(name, 60.0, 0) for name in (placement.STATIC, placement.LAST)}
    static, followed = (each.imbalance for each in found.values())
    assert static[-10:].mean() > 1.5 * static[0]
    assert followed[-10:].mean() < 0.8 * static[-10:].mean()
    assert found[placement.LAST].copy_s > 0 == found[placement.STATIC].copy_s
    assert 0.0 <= placement.slowed(0) < 0.05


def test_a_budget_by_imbalance_helps_where_slots_are_few():
    assert placement.of_budget(8, 0) < 1.0 < placement.of_budget(16, 0)


def test_memory_of_the_shipped_pattern_follows_from_the_block_tables():
    tokens = 3999
    full = attention_memory.held(tokens, False)
    assert full == attention_memory.POOL // 32  # 32 blocks each, over all layers
    # 31 layers with 32 blocks, and 30 with a sink and a window of three blocks, cut anywhere, and the one being filled.
    held = attention_memory.held(tokens, True)
    assert held >= (attention_memory.POOL * 61 // 31) // (32 + 6) and held < 61 / 31 * full
    assert attention_memory.moved(tokens) == pytest.approx((31 * 32 + 30 * (1 + 4)) / (61 * 32))


@pytest.mark.slow("draws figures")
def test_the_pictures_are_drawn(brief):
    with style():
        for card in (placement, attention_memory):
            picture = card.draw({})
            assert all(np.isfinite(line.get_ydata()).all() for axes in picture.figure.axes for line in axes.lines)


def test_the_fitted_step_time_is_by_what_the_curve_through_table_1_says():
    capacity, wait = prefill.fitted()
    assert capacity > prefill.rates().max() and wait > 0
    assert 0.95 * capacity < FILL_RATE < capacity
    stage = load_deployment("deepseek_r1_6p8_1d32").stages["thinker"].as_role("prefill")
    own = stage.extension(StatedSteps)
    assert own is not None and own.scale == pytest.approx(prefill.started() / capacity, abs=0.005)
    empty_s, token_s, tokens = prefill.START
    assert own.coefficients == pytest.approx({"constant": empty_s, "k1": token_s}, rel=0.005)
    assert stage.max_num_batched_tokens == tokens
    assert float(prefill.UNSCALED.partition("=")[2]) * own.scale == pytest.approx(1, abs=1e-3)


SMALL: dict[str, Any] = {"in_flight": 300, "requests": 6000, "instances": 1, "dies": 8}


@pytest.mark.parametrize("by_turns", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_in_the_separate_model_every_request_ends_and_littles_law_holds(variant: str, by_turns: bool) -> None:
    cluster = Cluster(Loop(0.05, by_turns, **SMALL | VARIANTS[variant]))
    cluster.run()
    assert (cluster.came_s <= cluster.first_s).all() and (cluster.first_s <= cluster.began_s).all()
    assert not np.isnan(cluster.end_s).any() and max(cluster.tokens) == max(cluster.running) == 0
    inside, begin_s, end_s = cluster.steady()
    lasts_s = (cluster.end_s - cluster.came_s)[inside].mean()
    assert inside.sum() / (end_s - begin_s) * lasts_s == pytest.approx(300, rel=0.06)
