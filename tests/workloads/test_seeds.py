import numpy as np
import pytest

from workloads.seeds import Streams, stream


def test_names_and_seeds_give_independent_streams() -> None:
    draws = np.array([stream(s, n).random(4000) for s in (0, 1) for n in ("arrivals", "replies", "barge_in")])
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 4 / np.sqrt(4000)


def test_streams_remember_names_and_refuse_to_repeat_one() -> None:
    streams = Streams(3)
    assert streams("arrivals").random() == stream(3, "arrivals").random()
    streams("replies")
    assert streams.names == ["arrivals", "replies"]
    with pytest.raises(ValueError, match="already in use"):
        streams("arrivals")
