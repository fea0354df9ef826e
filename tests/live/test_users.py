"""Users of live runs: their seeds over loads and repeats, and their words."""

from collections import Counter
from typing import Any

import pandas as pd
import pytest

from harness.live.endpoints.prompts import WORDS, words
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


def test_each_load_and_repeat_has_its_own_users_and_a_seed_repeats_them() -> None:
    drawn = seeds((2.0, 4.0), 2, users_seed=7)
    assert len(set(drawn)) == 4 and seeds((2.0, 4.0), 2, users_seed=7) == drawn
    assert not {*drawn} & {*seeds((2.0, 4.0), 2, users_seed=8)}
    assert seeds((4.0,), 2, users_seed=7) == drawn[2:]  # of a load, whatever else is measured
    assert seeds((2.0, 4.0), 2) == [0, 1] * 2  # a file without a seed has what it always had
    first, second = seeds((2.0,), 2, users_seed=7, same_users=True)
    assert first != second and seeds((2.0, 4.0), 2, users_seed=7, same_users=True) == [first, second] * 2


@pytest.mark.parametrize(("begin_s", "end_s", "growth"), [(-1.0, 9.0, 90.0), (1.5, 2.5, 60.0), (2.0, 2.0, None)])
def test_a_counter_grows_between_the_polls_around_a_window(begin_s: float, end_s: float, growth: float | None) -> None:
    values = [(t, engine, 10.0 + 15 * t) for t in (0.0, 1.0, 2.0, 3.0) for engine in ("a", "b")]
    scrape = pd.DataFrame(values, columns=["t_s", "labels", "value"]).assign(name="hits_total")
    assert grown(scrape, "hits_total", begin_s, end_s) == growth
    assert grown(scrape.assign(value=-scrape["value"]), "hits_total") is None  # restarted
    assert grown(scrape, "misses_total") is None


def test_words_have_english_frequencies_and_no_two_prompts_begin_alike() -> None:
    prompts = [words(7, session, 0, 200) for session in range(100)]
    counts = Counter(word for prompt in prompts for word in prompt.split())
    assert sum(counts.values()) == 20_000 and counts.keys() <= {*WORDS}
    assert counts["the"] > counts["would"] > counts["among"] and 0.04 < counts["the"] / 20_000 < 0.08
    assert len({" ".join(prompt.split()[:16]) for prompt in prompts}) == 100
    assert words(7, 3, 0, 200) == prompts[3] != words(8, 3, 0, 200)
