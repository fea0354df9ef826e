"""The separate model of OmniInfer's closed loop."""

import numpy as np
import pytest

from tests.reports.prefill_trials import VARIANTS, Cluster, Loop

SMALL = {"in_flight": 300, "requests": 6000, "instances": 1, "dies": 8}


@pytest.mark.parametrize("by_turns", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_request_ends_and_littles_law_holds(variant: str, by_turns: bool) -> None:
    cluster = Cluster(Loop(0.05, by_turns, **SMALL | VARIANTS[variant]))
    cluster.run()
    assert (cluster.came_s <= cluster.first_s).all() and (cluster.first_s <= cluster.began_s).all()
    assert not np.isnan(cluster.end_s).any() and max(cluster.tokens) == max(cluster.running) == 0
    inside, begin_s, end_s = cluster.steady()
    lasts_s = (cluster.end_s - cluster.came_s)[inside].mean()
    assert inside.sum() / (end_s - begin_s) * lasts_s == pytest.approx(300, rel=0.06)
