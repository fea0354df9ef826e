"""Lengths of replies next to what was asked, and replies that came in one write."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.reply_length import AtOnce, Lengths, audio_at_once, audio_lengths, text_at_once, text_lengths


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    """A request table of complete replies that are read; `rows` say what is different."""
    usual = {"turn": 0, "status": "completed", "spoken": False, "ttft_s": 0.2, "tbt_max_s": 0.02, "e2e_s": 0.5}
    none = {"audio_ttfp_s": np.nan, "audio_s": np.nan}
    found = pd.DataFrame([{"session": k, "generated_entry": 8, **usual, **none, **row} for k, row in enumerate(rows)])
    return found.astype({"generated_entry": "Int64"})


def trace(n: int, tokens: int = 8, reply_audio_s: float = 2.0) -> pd.DataFrame:
    """The trace of such sessions, in another order."""
    rows = {"session": range(n - 1, -1, -1), "turn": 0, "output_tokens": tokens}
    return pd.DataFrame({**rows, "reply_audio_s": reply_audio_s})


def test_seconds_of_replies_are_compared_with_the_trace():
    said = {"spoken": True, "generated_entry": 3}
    rows = table({**said, "audio_s": 0.5}, {**said, "audio_s": 1.95}, {**said, "audio_s": 3.55})
    assert audio_lengths(rows, trace(3)) == Lengths(3, 2.0, 1.95, 2.0, 2.0, 1)
    assert text_lengths(rows, trace(3)) is None, "nobody asked a voice for tokens"


def test_a_reply_in_one_write_has_its_first_token_with_its_last():
    rows = table(
        {"ttft_s": 0.5},
        {"ttft_s": 0.4996},
        {"ttft_s": 9.95, "e2e_s": 10.0},
        {"ttft_s": 0.4},
        {"ttft_s": 0.5, "generated_entry": 1},
        {"ttft_s": 0.5, "generated_entry": pd.NA, "tbt_max_s": 0.0},
        {"ttft_s": 0.5, "generated_entry": pd.NA, "tbt_max_s": np.nan},
        {"ttft_s": 0.5, "status": "failed", "e2e_s": np.nan},
    )
    assert text_at_once(rows) == AtOnce(4, 5)
    assert not text_at_once(rows).nearly_all and AtOnce(9, 10).nearly_all and not AtOnce(0, 0).nearly_all
    said = {"spoken": True, "audio_s": 1.0}
    voice = table({**said, "audio_ttfp_s": 0.5}, {**said, "audio_ttfp_s": 0.1}, said)
    assert audio_at_once(voice) == AtOnce(1, 2) and text_at_once(voice) == AtOnce(0, 0)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=20))
def test_each_reply_is_compared_with_its_own_turn(tokens: list[tuple[int, int]]):
    rows = table(*({"generated_entry": got} for got, _ in tokens))
    asked = trace(len(tokens))
    asked["output_tokens"] = [wanted for _, wanted in reversed(tokens)]
    found = text_lengths(rows, asked)
    assert found is not None and found.n == len(tokens)
    assert found.short == sum(got < wanted for got, wanted in tokens)
    assert found.mean == pytest.approx(np.mean([got for got, _ in tokens]))
    assert found.asked_p50 == np.median([wanted for _, wanted in tokens])
