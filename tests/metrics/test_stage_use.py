"""How busy stages are and what they decode together; how long sessions take."""

import numpy as np
import pandas as pd
import pytest

from harness.metrics.turns import summarise
from harness.metrics.vocabulary import definition
from harness.request_tables.request_table import request_table
from tests.metrics.event_log import EventLog, are

COLUMNS = ("stage", "replica", "t_s", "dt_s", "tokens", "prefill_tokens")


def steps(*rows: tuple[str, int, float, float, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).assign(kv_used=0, kv_blocks=0)


def test_a_stage_is_busy_while_a_replica_of_it_runs_a_step():
    """The run is from its first turn at 2 s to 10 s; its entry stage has two replicas."""
    table = steps(
        ("vision", 0, 0.0, 4.0, 1600, 1600),
        ("entry", 0, 1.0, 2.0, 1700, 1699),
        ("entry", 1, 8.0, 4.0, 3, 0),
        ("entry", 1, 12.0, 1.0, 600, 600),
    )
    log = EventLog().start(at=2.0)
    found = summarise(request_table(log.events, log.trace), table, 10.0)
    are(found, busy_vision=(2 / 8, 1, 0), busy_entry=((1 + 2) / 16, 3, 0), busy_talker=(None, 0, 0))
    are(found, decode_batch_entry_mean=(2, 2, 0), decode_batch_entry_peak=(3, 2, 0))  # of 1 and 3 tokens
    are(found, decode_batch_vision_mean=(None, 0, 0))


def test_stages_of_any_name_have_metrics_with_a_meaning():
    log = EventLog().spoken_turn()
    metrics = summarise(request_table(log.events, log.trace), steps(("vision", 0, 0.0, 1.0, 9, 9)), 20.0)
    assert list(metrics)[-3:] == ["busy_vision", "decode_batch_vision_mean", "decode_batch_vision_peak"]
    assert "of the vision" in definition("busy_vision").definition
    assert definition("decode_batch_vision_peak").unit == "1"
    for unknown in ("busy", "busy_", "decode_batch_vision", "idle_vision"):
        with pytest.raises(KeyError):
            definition(unknown)


def test_an_episode_lasts_from_its_first_turn_to_the_end_of_its_last():
    """A turn lasts for 3.5 s. Session 0 has turns at 0 and 10 s, session 1 two of its three turns, session 2 one."""
    log = EventLog()
    for session, turn in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)):
        log.spoken_turn(session, turn, at=10.0 * turn + session)
    planned = np.array([0, 0, 1, 1, 1, 2])
    metrics = summarise(request_table(log.events, log.trace), steps(), 40.0, planned_sessions=planned)
    are(metrics, session_time_mean=((13.5 + 3.5) / 2, 2, 1), session_pace_mean=((120 / 13.5 + 60 / 3.5) / 2, 2, 1))
