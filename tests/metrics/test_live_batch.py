"""What documents beside an endpoint's users came to, from their events."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.live import batch_metrics, no_batch
from harness.request_tables.live_window import Window

NONE = np.empty(0)


def log(*rows: tuple[float, str, int, float]) -> pd.DataFrame:
    """(t, kind, session, value) by time."""
    ordered = sorted(rows, key=lambda row: row[0])
    return pd.DataFrame(ordered, columns=["t", "kind", "session", "value"]).assign(turn=0, stage="")


def document(session: int, begin_s: float, texts_s: list[float], end: str | None) -> list:
    """Its events; `end`: the kind of the last, None where it was cut."""
    nan = float("nan")
    rows = [(begin_s, kind, session, nan) for kind in ("session_start", "turn_start")]
    rows += [(t, "text" if i else "first_text", session, 1.0) for i, t in enumerate(texts_s)]
    last_s = max([begin_s, *texts_s])
    if end:
        rows += [(last_s, end, session, nan), (last_s, "session_end", session, nan)]
    return rows


def values(events: pd.DataFrame, window: Window) -> dict[str, float | None]:
    return {name: value for name, (value, _, _) in batch_metrics(events, NONE, window).items()}


def test_tokens_count_where_they_arrive_and_what_is_cut_has_not_failed():
    events = log(
        *document(0, 0.0, [1.0, 3.0, 4.0], "turn_done"),
        *document(1, 4.0, [5.0, 11.0], None),
        *document(2, 2.0, [], "turn_failed"),
    )
    found = values(events, Window(2.0, 10.0))
    assert found["batch_tps"] == pytest.approx(3 / 8)  # at 3, 4 and 5 s
    assert (found["batch_completed"], found["batch_failed"], found["batch_cut"]) == (1, 1, 1)
    assert found["batch_in_flight"] == pytest.approx((2 + 6) / 8)
    assert found["batch_send_delay_p99"] is None


def test_several_tokens_in_a_message_count_by_the_usage_that_is_reported():
    events = log(*document(0, 0.0, [1.0, 2.0], "turn_done"), (2.0, "usage", 0, 10.0))
    assert values(events, Window(0.0, 2.0))["batch_tps"] == pytest.approx(5.0)
    events["value"] = events["value"].where(events["kind"] == "usage", 5.0)  # each message states its own
    assert values(events, Window(0.0, 2.0))["batch_tps"] == pytest.approx(5.0)


def test_a_run_without_has_nothing_and_the_reference_has_zero():
    reference = no_batch()
    assert reference["batch_tps"][0] == 0


@given(
    st.lists(
        st.tuples(
            st.floats(0, 20), st.lists(st.floats(0, 20), max_size=6), st.sampled_from(["turn_done", None])
        ).map(lambda each: (each[0], sorted(each[0] + t for t in each[1]), each[2])),
        min_size=1,
        max_size=8,
    ),
    st.floats(1, 39),
)
def test_two_windows_side_by_side_have_the_tokens_of_both(documents: list, between_s: float):
    events = log(*(row for i, each in enumerate(documents) for row in document(i, *each)))
    parts = [Window(0.0, between_s), Window(np.nextafter(between_s, 50), 50.0)]
    counted = sum((values(events, w)["batch_tps"] or 0) * (w.end_s - w.begin_s) for w in parts)
    assert counted == pytest.approx(sum(len(texts) for _, texts, _ in documents))
