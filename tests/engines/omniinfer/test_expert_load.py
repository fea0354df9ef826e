"""Tokens of each expert: sampled from Zipf's law with drift, recorded, and read from a file."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.systems.omniinfer.expert_load import RecordedLoad, SampledLoad, read_routing, write_routing
from tests.builders import refused


def test_counts_have_the_popularity_and_sum_up():
    load = SampledLoad(3, 16, 4, 0.7, seed=1)
    counts = np.sum([load.draw(0.0, 500) for _ in range(400)], axis=0)
    assert (counts.sum(axis=1) == 400 * 500 * 4).all()
    assert counts / (400 * 500 * 4) == pytest.approx(load.popularity(0.0), rel=0.05)
    assert not np.allclose(load.popularity(0.0)[0], load.popularity(0.0)[1])  # each layer has its own ranks


def test_the_same_seed_gives_the_same_counts():
    draws = [[SampledLoad(2, 8, 2, 0.5, seed, 30.0).draw(t, 100) for t in (0.0, 45.0)] for seed in (3, 3, 4)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_a_trace_comes_back_as_it_was_written(tmp_path):
    steps = np.random.default_rng(0).multinomial(6, [0.1, 0.2, 0.3, 0.4], size=(5, 3))
    write_routing(tmp_path / "r.parquet", steps)
    assert np.array_equal(read_routing(tmp_path / "r.parquet", 3, 4), steps)


def test_a_recorded_step_is_replayed_and_one_of_another_size_has_its_shares():
    steps = np.array([[[6, 0, 2]], [[1, 3, 4]]])
    load = RecordedLoad(steps, per_token=2, seed=0)
    assert np.array_equal([load.draw(0.0, 4) for _ in range(3)], steps[[0, 1, 0]])
    more = RecordedLoad(steps, 2, 0).draw(0.0, 4000)
    assert more.sum() == 8000 and more[0, 1] == 0 and more[0, 0] == pytest.approx(6000, rel=0.05)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"step": [0], "layer": [0], "expert": [0]}, "lacks the column 'tokens'"),
        ({"step": [0], "layer": [0], "expert": [4], "tokens": [1]}, "column 'expert' has 4, but the model has 4"),
        ({"step": [0], "layer": [2], "expert": [0], "tokens": [1]}, "column 'layer' has 2, but the model has 2"),
        ({"step": [0], "layer": [0], "expert": [0], "tokens": [-1]}, "column 'tokens' has -1"),
        ({"step": [0], "layer": [0], "expert": [0], "tokens": [0.5]}, "column 'tokens' has type double"),
        ({"step": [0], "layer": [0], "expert": [0], "tokens": [None]}, "'tokens' has 1 missing values"),
        ({"step": [7], "layer": [0], "expert": [0], "tokens": [1]}, "step 7 has no tokens in layer 1"),
        (dict.fromkeys(["step", "layer", "expert", "tokens"], pa.array([], pa.int64())), "has no rows"),
    ],
)
def test_a_wrong_routing_trace_is_refused_in_one_sentence(tmp_path, columns, says):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table(columns), path)
    with refused("bad.parquet", says):
        read_routing(path, 2, 4)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("step,layer,expert,tokens\n0,0,0,1\n")
    with refused("no Parquet file"):
        read_routing(path, 1, 1)
