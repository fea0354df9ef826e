"""Gaps against what people and networks are held to."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.request_tables.turn_taking_table import COLUMNS
from reports.live.experience import HUMAN_GAP_S, SPEAKING, gaps, one_way_delay, texts


def turns(ttfp_s: list[float], status: str | list[str] = "completed", spoken: bool = True) -> pd.DataFrame:
    return pd.DataFrame(
        {"audio_ttfp_s": ttfp_s, "status": status, "spoken": [spoken] * len(ttfp_s), "packets": 1}
    )


def test_a_gap_as_people_make_it_is_no_delay() -> None:
    assert one_way_delay(HUMAN_GAP_S) == 0
    assert one_way_delay(0.5) == pytest.approx(0.150) and one_way_delay(1.0) == pytest.approx(0.400)


def test_shares_by_their_bounds() -> None:
    found = gaps(turns([0.3, 0.5, 0.8, 0.9, 1.0, 1.1, 2.0, 3.0]))
    assert found.n == 8 and found.long == 5 / 8, "800 ms itself is not above"
    assert found.within == (2 / 8, 5 / 8), "500 ms and 1 s are 150 and 400 ms each way"
    assert found.delay_p50_s == pytest.approx((0.95 - 0.2) / 2)


def test_a_failed_turn_is_an_infinite_gap_also_after_its_first_sound() -> None:
    nan = float("nan")
    found = gaps(turns([0.3, nan, 0.1, nan], ["completed", "failed", "failed", "barged_in"]))
    assert (found.n, found.long, found.p50_s) == (3, pytest.approx(2 / 3), np.inf)
    failed = gaps(turns([nan], "failed"))
    assert (failed.n, failed.long, failed.p50_s, failed.within) == (1, 1.0, np.inf, (0.0, 0.0))
    assert texts(failed) == ["∞", "∞", "∞", "100.0", "∞", "0.0", "0.0", "1"]


def test_of_what_is_read_there_are_none() -> None:
    found = gaps(turns([0.3], spoken=False))
    assert (found.n, found.long, found.within) == (0, None, (None, None))


def test_open_microphones_have_their_own_delays() -> None:
    row = dict.fromkeys(COLUMNS, np.nan) | {"said": "turn", "event": "", "session": 0, "user_end_s": 1.0}
    delays_s = (0.4, 1.2, np.nan, np.inf)
    found = gaps(pd.DataFrame([row | {"turn": i, "end_of_turn_delay_s": s} for i, s in enumerate(delays_s)]))
    assert (found.n, found.long, found.p50_s) == (3, pytest.approx(2 / 3), pytest.approx(1.2))


@pytest.mark.parametrize(("gap_s", "delay"), [(0.1, "below 0"), (0.2, "0"), (0.5, "150"), (4.0, "1,900")])
def test_an_agent_faster_than_people_has_no_delay(gap_s: float, delay: str) -> None:
    assert texts(gaps(turns([gap_s])))[4] == delay


def test_a_drawn_interruption_that_came_too_late_is_not_the_agents() -> None:
    assert not any("barge_in" in column.metric for column in SPEAKING)


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=30))
def test_shares_fit_together(values: list[float]) -> None:
    found = gaps(turns(values))
    assert found.within[0] is not None and found.within[1] is not None and found.long is not None
    assert 0 <= found.within[0] <= 1 - found.long + 1e-9 and 1 - found.long <= found.within[1] + 1e-9
