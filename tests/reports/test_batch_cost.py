"""What documents beside cost users: the table's numbers, and its sentences."""

from collections import Counter

from reports.cost.batch_cost import beside, refused, text_rows, user_columns
from reports.runs.answer import Finished


def point(batch: int, ttft_s: float, seed: int = 0, rate: int = 2, **more: float) -> Finished:
    metrics = {"online.ttft_p99": ttft_s, "online.tbt_p99": 0.01, "batch_tps": 50.0 * batch, "failed": 0.0}
    return Finished("endpoint", {"rate": rate, "batch": batch}, seed, metrics | more)


POINTS = [point(0, 0.1), point(4, 0.2), point(0, 0.3, seed=1), point(4, 0.9, seed=1), point(4, 0.5, rate=8)]


def test_each_seed_is_compared_with_its_own_users_alone():
    rows = beside(POINTS, ["rate", "batch"])
    assert [(row.cell, row.documents) for row in rows] == [((2,), 0), ((2,), 4), ((8,), 4)]
    assert rows[1].ratios["online.ttft_p99"] == 2.5  # the median of 2 and 3
    assert rows[2].ratios["online.ttft_p99"] is None  # there are none to compare with


def test_the_table_writes_units_that_people_read():
    headings, rows = text_rows(POINTS, ["rate", "batch"])
    assert all(len(row) == len(headings) for row in rows)
    assert headings[:4] == [("rate", ""), ("batch", "in flight"), ("TTFT P99", "ms"), ("", "× without")]
    assert rows[0][:4] == ["2", "0", "200", "–"] and rows[1][:4] == ["2", "4", "550", "2.50"]


def test_spoken_users_are_told_by_sound_and_continuity():
    spoken = [point(0, 0.1, audio_ttfp_p99=0.2, continuity=1.0)]
    assert [column.heading for column in user_columns(spoken)] == ["TTFP P99", "continuity"]


def test_failed_documents_are_a_sentence_with_the_commonest_reason():
    said = refused({4: Counter({"http 503": 3, "closed": 1}), 16: Counter()})
    assert len(said) == 1 and said[0].startswith("batch=4: 4 documents failed, 3 of them with http 503;")
