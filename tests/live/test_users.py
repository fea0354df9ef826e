"""The users of live runs: other ones at each load and in each run, and the same ones where they are asked for."""

from typing import Any

import pandas as pd
import pytest

from harness.live.expand import expand
from harness.live.live_experiment import live_experiment
from harness.live.point import LivePoint
from harness.metrics.scraped_histogram import grown

URL = "http://127.0.0.1:9/v1"


def points(loads: tuple[float, ...] = (2.0, 4.0), repeats: int = 1, **target: Any) -> list[LivePoint]:
    ends = dict.fromkeys(loads, (5.0, None))
    return expand(live_experiment({"url": URL, **target}, {}, ends, repeats=repeats))


def seeds(*args: Any, **target: Any) -> list[int]:
    """Return the seeds that the points' traces are drawn from, which are those of their words too."""
    return [point.trace().header.seed for point in points(*args, **target)]


def test_every_load_and_repeat_has_users_of_its_own_and_a_seed_repeats_them() -> None:
    drawn = seeds((2.0, 4.0), 2, users_seed=7)
    assert len(set(drawn)) == 4 and seeds((2.0, 4.0), 2, users_seed=7) == drawn
    assert not {*drawn} & {*seeds((2.0, 4.0), 2, users_seed=8)}
    assert seeds((4.0,), 2, users_seed=7) == drawn[2:]  # of a load, whatever else is measured
    assert seeds((2.0, 4.0), 2) == [0, 1] * 2  # a file without a seed has what it always had


def test_the_same_users_at_each_load_are_others_in_each_repeat() -> None:
    first, second = seeds((2.0,), 2, users_seed=7, same_users=True)
    assert first != second
    assert seeds((2.0, 4.0), 2, users_seed=7, same_users=True) == [first, second] * 2


@pytest.mark.parametrize(("begin_s", "end_s", "growth"), [(-1.0, 9.0, 90.0), (1.5, 2.5, 60.0), (2.0, 2.0, None)])
def test_a_counter_grows_between_the_polls_around_a_window(begin_s: float, end_s: float, growth: float | None) -> None:
    values = [(t, engine, 10.0 + 15 * t) for t in (0.0, 1.0, 2.0, 3.0) for engine in ("a", "b")]
    scrape = pd.DataFrame(values, columns=["t_s", "labels", "value"]).assign(name="hits_total")
    assert grown(scrape, "hits_total", begin_s, end_s) == growth
    assert grown(scrape.assign(value=-scrape["value"]), "hits_total") is None  # restarted
    assert grown(scrape, "misses_total") is None
