"""Metrics that differ in their statistic alone are told once."""

from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS
from harness.metrics.turns import DEFINITIONS
from reports.tables.columns import families

ALL = (DEFINITIONS, CLASS_DEFINITIONS, FRAME_DEFINITIONS, LIVE_DEFINITIONS, TURN_TAKING_DEFINITIONS)


def test_every_metric_is_told_in_its_order_and_no_sentence_twice() -> None:
    for vocabulary in ALL:
        told = families(vocabulary)
        assert sorted(name for names, _ in told for name in names) == sorted(vocabulary)
        assert [names[0] for names, _ in told] == [name for name in vocabulary if name in {n[0] for n, _ in told}]


def test_a_family_says_all_its_statistics_once() -> None:
    told = {names[0]: (names, each.definition) for names, each in families(DEFINITIONS)}
    names, sentence = told["audio_ttfp_p50"]
    assert names == [f"audio_ttfp_{statistic}" for statistic in ("p50", "p90", "p95", "p99", "mean")]
    assert sentence.startswith("P50, P90, P95, P99 and mean over turns: time to the first")
    assert told["continuity"] == (["continuity"], DEFINITIONS["continuity"].definition)
    (single,) = (each for each in families({"turn_send_delay_p99": DEFINITIONS["turn_send_delay_p99"]}))
    names, each = single
    assert (names, each.definition) == (["turn_send_delay_p99"], DEFINITIONS["turn_send_delay_p99"].definition)
