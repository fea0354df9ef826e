"""On the wall clock a client may come late; what it reports still counts from when its user was to come."""

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


def test_what_is_made_ahead_does_not_come_before_its_time():
    at_s = [0.0, 0.05, 0.06]
    events, _ = played(typed(*at_s), Answering, virtual=False, playback="none")
    assert (events[events["kind"] == "session_start"]["t"].to_numpy() >= at_s).all()
    assert events[events["kind"] == "turn_start"]["t"].tolist() == at_s


@pytest.mark.parametrize("lags_s", [[], [float("nan")], [0.0] * 10, [0.0] * 19 + [9.0], [0.04] * 10, [0.05] * 10])
def test_users_in_time_are_fine(lags_s: list[float]):
    check_send_delay(np.array(lags_s, float), limit_s=0.05)


@pytest.mark.parametrize("lags_s", [[0.051] * 10, [0.0] * 8 + [0.4, 0.8]])
def test_users_who_come_late_make_the_point_invalid(lags_s: list[float]):
    with pytest.raises(InvalidPoint, match="quiet"):
        check_send_delay(np.array(lags_s), limit_s=0.05)
