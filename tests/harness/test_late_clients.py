"""On the wall clock a late send is part of the latency, and many of them make a point invalid."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from harness.replays.worker.measure import InvalidPoint, check_send_delay
from harness.request_tables.request_table import request_table
from tests.builders import typed_turn
from tests.harness.servers import Answering, played
from workloads.trace import Trace

LATE_S = 0.2


def typed(*at_s: float) -> Trace:
    return Trace.from_turns(typed_turn(session=i, arrival_s=at, network_s=0.0) for i, at in enumerate(at_s))


def test_a_late_send_is_part_of_the_latency():
    trace = typed(0.05)
    events, _ = played(trace, Answering, virtual=False, held_s=(0.04, LATE_S), playback="none")
    [row] = request_table(events, pd.DataFrame(trace.columns())).to_dict("records")
    assert row["turn_end_s"] == 0.05
    assert row["send_delay_s"] >= LATE_S - 0.02
    assert row["ttft_s"] >= row["send_delay_s"]


@pytest.mark.parametrize(
    ("lags_s", "late"),
    [
        ([], False),
        ([float("nan")], False),
        ([0.05] * 10, False),
        ([0.051] * 10, True),
        ([0.0] * 19 + [9.0], False),  # one of twenty
        ([0.0] * 8 + [0.4, 0.8], True),
    ],
)
def test_a_point_is_invalid_whose_users_come_more_than_50_ms_late(lags_s: list[float], late: bool):
    with pytest.raises(InvalidPoint, match="quiet") if late else nullcontext():
        check_send_delay(np.array(lags_s, float), limit_s=0.05)
