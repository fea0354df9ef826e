"""The genetic search for a pattern, where pymoo is installed."""

import numpy as np
import pytest

from engines.systems.omniinfer.pattern_search import Search, search
from workloads.errors import UserError

COSTS = np.array([0.5, 0.01, 0.3, 0.02, 0.4, 0.01, 0.03, 0.6])
"""What compressing each layer takes off the score."""


def score(pattern: tuple[bool, ...]) -> float:
    return 1.0 - float(COSTS[list(pattern)].sum())


def test_without_pymoo_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pymoo.algorithms.soo.nonconvex.ga", None)
    with pytest.raises(
        UserError, match=r"needs the package pymoo, which is not installed; run .*pip install .*\[search\]"
    ):
        search(score, 8, 0.9, seed=0)


@pytest.fixture
def pymoo():
    pytest.importorskip("pymoo")


@pytest.mark.usefixtures("pymoo")
@pytest.mark.parametrize("seed", range(3))
def test_it_compresses_the_layers_that_cost_least(seed):
    found = search(score, 8, 0.9, seed)
    assert found.pattern == tuple(COSTS < 0.05) and found.score == pytest.approx(0.93)
    assert found.history == sorted(found.history) and found.history[-1] == 4


@pytest.mark.usefixtures("pymoo")
def test_the_same_seed_finds_the_same_by_the_same_way_and_scores_no_pattern_twice():
    asked = []

    def counted(pattern):
        asked.append(pattern)
        return score(pattern)

    first = search(counted, 8, 0.7, 5, Search(population=8, generations=6))
    assert len(asked) == len(set(asked)) == first.scored
    assert search(score, 8, 0.7, 5, Search(population=8, generations=6)) == first
    assert search(score, 8, 0.7, 6, Search(population=8, generations=6)).history != first.history


@pytest.mark.usefixtures("pymoo")
def test_where_only_the_empty_pattern_qualifies_it_is_found():
    found = search(lambda pattern: 1.0 - sum(pattern), 8, 1.0, 0, Search(population=8, generations=4))
    assert found.pattern == (False,) * 8 and found.score == 1.0


@pytest.mark.usefixtures("pymoo")
def test_on_a_decoder_of_random_weights_it_beats_as_many_random_patterns():
    from engines.systems.omniinfer.attention_error import RandomDecoder

    decoder = RandomDecoder(8, seed=0, tokens=64)

    def kept(pattern):
        return 1.0 - decoder.error(pattern, 4, 12)

    found = search(kept, 8, 0.9, 1, Search(population=12, generations=8))
    rng = np.random.default_rng(0)
    tried = [tuple(bool(each) for each in row) for row in rng.random((found.scored, 8)) < 0.5]
    assert found.score >= 0.9
    assert sum(found.pattern) >= max((sum(p) for p in tried if kept(p) >= 0.9), default=0)
