"""What a load generator and a server's own counters say of a live run: value, n and missing of each metric."""

import numpy as np
import pandas as pd
import pytest

from harness.metrics.live import LIVE_DEFINITIONS, PREFIX_CACHE, summarise_live
from harness.metrics.metric import Metric
from tests.metrics.event_log import are, parts

EVENTS = pd.DataFrame({"t": 0.0, "kind": ["session_start"] * 3 + ["connected"] * 2 + ["shed"], "value": 0.1})
SENDS = pd.DataFrame({"kind": ["request", "repeat", "request", "audio"], "send_delay_s": [0.005, 0.006, 0.001, np.nan]})
FAILURES = pd.DataFrame({"session": [1, 1, 2], "reason": ["closed 1006", "closed", "timeout"]})
DELAYS = {
    "send_delay_p50": (0.005, 3, 0), "send_delay_p99": (0.00598, 3, 0), "send_delay_p99.9": (0.005998, 3, 0),
    "send_delay_max": (0.006, 3, 0), "connect_p50": (0.1, 2, 1), "connect_p99": (0.1, 2, 1),
}  # fmt: skip
"""Three sends have a delay: 1, 5 and 6 ms. One of 3 sessions was never connected."""
COUNTS = {
    "sends": (3, 3, 0), "sends_late": (1, 3, 0), "requests_repeated": (1, 2, 0), "shed": (1, 3, 0),
    "disconnects": (1, 3, 0), "lost_sessions": (1, 3, 0), "failed_share": (1 / 4, 4, 0),
}  # fmt: skip
"""The send of 6 ms is late. One of 4 frames failed. `shed`, `disconnects` and `lost_sessions` are of 3 sessions."""
FLOOR = {
    "floor_send_delay_p99": (0.002, 1, 0), "floor_ttfp_bias_p50": (None, 0, 1), "floor_ttfp_bias_p99": (None, 0, 1),
}  # fmt: skip
"""The floor states its send delay alone."""
NO_DATA = (None, 0, 0)


def scraped(*counters: tuple[str, float, float]) -> pd.DataFrame:
    """A server's counters (name, before and after) at 0 and 1 s."""
    rows = [(t, name, values[t]) for name, *values in counters for t in (0, 1)]
    return pd.DataFrame(rows, columns=["t_s", "name", "value"]).assign(labels='{"le": "1"}')


def summary(scrape: pd.DataFrame | None = None) -> dict[str, Metric]:
    floor, answered = {"send_delay_p99_s": 0.002}, np.array([True, True, False, True])
    known = {"scrape": scrape, "lost_sessions": 1, "answered": answered}
    return summarise_live(EVENTS, None, SENDS, FAILURES, floor, late_s=0.005, **known)


def test_every_metric_of_the_load_has_its_value_its_n_and_what_is_missing() -> None:
    metrics = summary()
    assert list(metrics) == list(LIVE_DEFINITIONS)
    known = DELAYS | COUNTS | FLOOR
    are(metrics, **{name: known.get(name, NO_DATA) for name in metrics})


def test_packet_loss_counts_lost_and_late_packets_of_all_calls() -> None:
    values = {"rtp_packets": [150.0, 50.0], "rtp_lost": [4.0, 3.0], "rtp_late": [1.0, 0.0]}
    rows = [(0.0, kind, value) for kind, of_calls in values.items() for value in of_calls]
    events = pd.DataFrame(rows, columns=["t", "kind", "value"])
    metrics = summarise_live(events, None, SENDS, FAILURES, {}, late_s=0.005)
    assert parts(metrics["rtp_loss"]) == (pytest.approx(0.04), 200, 0)


VLLM, SGLANG = PREFIX_CACHE


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ([(VLLM[0], 10, 50), (VLLM[1], 1, 11)], (0.25, 40, 0)),
        ([(VLLM[0], 10, 10), (VLLM[1], 1, 1)], (None, 0, 0)),  # nothing was asked
        ([(VLLM[0], 10, 50)], (None, 0, 0)),
        ([(SGLANG[0], 0, 8), (SGLANG[1], 0, 4)], (0.5, 8, 0)),
        ([("other_total", 0, 8)], (None, 0, 0)),
    ],
)
def test_prefix_cache_hits_are_the_servers_own_counters(counters: list, expected: tuple) -> None:
    assert parts(summary(scraped(*counters))["prefix_cache_hits"]) == expected
