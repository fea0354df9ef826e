from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from reports.figures.picture import Picture
from reports.figures.style import style
from reports.papers.liveserve import tuning
from reports.papers.liveserve.tuning import QUEUES, RATIOS, STAGES, cheapest, judged
from tests.reports.figure_card import StandIn


def point(waste: float | None, stall_s: float) -> Any:
    """A finished point that wasted so much and whose requests waited so long at each stage."""
    waits = [stall_s / 2, stall_s / 2, float("nan")]
    return StandIn(
        point=SimpleNamespace(engine="liveserve", id=f"{waste} {stall_s}"),
        params={},
        seed=1000,
        error=None,
        value=lambda name: waste,
        requests=pd.DataFrame({f"queueing_{stage}_s": waits for stage in QUEUES.values()}),
    )


def sweep(**by_ratio: tuple[float | None, float]) -> Any:
    """The panels of a sweep in which the ratio number i measured what `r<i>` says."""
    return {
        f"{stage}, {ratio}": SimpleNamespace(points=[point(*by_ratio.get(f"r{i}", (0.4, 10.0)))])
        for stage in STAGES
        for i, ratio in enumerate(RATIOS)
    }


def test_the_best_wastes_and_stalls_least_each_over_its_largest() -> None:
    tried = judged(sweep(r2=(0.1, 9.0), r5=(0.2, 2.0), r6=(None, 0.0)), "talker")
    assert tried["1/1024"].cost == pytest.approx(0.1 / 0.4 + 9 / 10)
    assert tried["1/16"].cost == pytest.approx(0.2 / 0.4 + 2 / 10)
    assert tried["1"].cost == pytest.approx(2) and "1/4" not in tried
    assert cheapest(tried) == ["1/16"]


def test_the_picture_says_what_was_chosen_and_what_costs_the_same() -> None:
    with style():
        picture = tuning.draw(sweep(r2=(0.1, 9.0), r6=(0.1, 9.0)))
    assert isinstance(picture, Picture)
    assert "thinker 0.25 : 1 (cost 1.150, of the same cost as 1/1024)" in picture.caption
