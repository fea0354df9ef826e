import numpy as np
import pytest

from workloads.distributions.lengths import (
    SHAREGPT_PROMPT,
    SHAREGPT_REPLY,
    SPOKEN_PROMPT,
    SPOKEN_REPLY,
    LengthModel,
)
from workloads.seeds import stream


def draw(model: LengthModel, n: int = 100_000) -> np.ndarray:
    return model.sample(stream(0, "lengths"), n)


def test_text_replies_match_the_published_sharegpt_statistics() -> None:
    tokens = draw(SHAREGPT_REPLY)
    assert tokens.mean() == pytest.approx(457, rel=0.05)
    assert np.median(tokens) == pytest.approx(300, rel=0.02)
    assert np.percentile(tokens, 90) == pytest.approx(975, rel=0.05)
    assert np.percentile(tokens, 99) == pytest.approx(2600, rel=0.1)
    # Survival function of the same statistics; the lognormal is a model of it, good to 4 points.
    for length, share in ((100, 0.83), (200, 0.66), (400, 0.36), (800, 0.141), (1600, 0.042)):
        assert np.mean(tokens >= length) == pytest.approx(share, abs=0.06)


def test_typed_prompts_match_the_published_mean() -> None:
    assert draw(SHAREGPT_PROMPT).mean() == pytest.approx(84, rel=0.1)


@pytest.mark.parametrize("model", [SHAREGPT_PROMPT, SHAREGPT_REPLY, SPOKEN_PROMPT, SPOKEN_REPLY])
def test_lengths_are_whole_and_clipped(model: LengthModel) -> None:
    tokens = draw(model)
    assert tokens.dtype == np.int64
    assert tokens.min() == model.low
    assert tokens.max() == model.high
    assert model.source in str(model)


def test_adjusting_replaces_only_what_is_given() -> None:
    assert SPOKEN_REPLY.adjusted(None, None, None) is SPOKEN_REPLY
    assert SPOKEN_REPLY.adjusted(SPOKEN_REPLY.median, None, None) is SPOKEN_REPLY
    longer = SPOKEN_REPLY.adjusted(120, None, None)
    assert (longer.median, longer.sigma, longer.high) == (120, SPOKEN_REPLY.sigma, SPOKEN_REPLY.high)
    assert longer.source.endswith("median set by the user")
    assert set(draw(SPOKEN_REPLY.adjusted(None, None, 5))) == {5}
