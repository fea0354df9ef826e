"""Replays of open microphones: engines of turns with a modelled ear before them."""

import numpy as np
import pandas as pd
import pytest

from harness.kinds.duplex import by_turn
from harness.replays.kinds import kind_of, server_model
from harness.replays.worker.replay import Replay
from harness.request_tables.steady_window import Load
from harness.request_tables.turn_taking_table import COLUMNS
from harness.slo.targets import judged_value
from tests.engines.replays import replay
from workloads.registry import make_trace

LOAD = {"sessions": 6, "rate": 6.0, "p": 0.4, "hesitations": 0.6, "noise": 1.0}


def played(engine: str, **server: object) -> tuple[Replay, pd.DataFrame, dict]:
    trace = make_trace("duplex", LOAD, 0)
    params = server_model("duplex").model_validate(server).model_dump(mode="json")
    result = replay(engine, {}, params, {}, trace, 0)
    kind, turns, events = kind_of(trace), pd.DataFrame(trace.columns()), result.events.to_pandas()
    table = kind.requests(turns, events, Load())
    metrics = kind.metrics(turns, events, result.steps.to_pandas(), table, result.run_end_s, Load())
    return result, table, dict(metrics)


def test_the_same_seed_gives_the_same_bytes_and_every_delay_is_the_sum_of_its_parts():
    settings = {"turn_detection": "semantic", "min_duration_s": 0.6}
    (one, table, metrics), (other, _, _) = (played("liveserve", **settings) for _ in range(2))
    for table_of in (lambda run: run.events, lambda run: run.steps):
        assert table_of(one).to_pandas().equals(table_of(other).to_pandas())
    rows = table[table["endpointing_s"].notna()]
    parts = rows[["endpointing_s", "network_s", "server_s", "playout_s"]].sum(axis=1)
    assert len(rows) and np.abs(parts - rows["end_of_turn_delay_s"]).max() < 1e-9
    assert metrics["audio_ttfp_p50"].value and metrics["failed"].value == 0


def test_the_server_waits_for_its_timeout_after_the_last_word():
    _, table, _ = played("vllm_omni", silence_duration_ms=800)
    waited_s = table["endpointing_s"].dropna()
    assert len(waited_s) > 5 and np.abs(waited_s - 0.8).max() < 1e-6


def test_a_target_judges_an_interruption_that_was_missed_as_an_infinitely_late_stop():
    row = dict.fromkeys(COLUMNS, np.nan) | {"said": "turn", "event": "interruption", "happened": 1.0}
    table = pd.DataFrame([row | {"session": 0, "turn": i, "stop_s": s} for i, s in enumerate((0.1, 0.2, np.inf))])
    # The metrics leave it out: 0.15 s is the median of the other two.
    metrics = {name: {"value": 0.15, "missing": 1} for name in ("stop_p50", "stop_p95")}
    assert judged_value("stop_p50", metrics, table) == pytest.approx(0.2)
    assert judged_value("stop_p95", metrics, table) == np.inf


def test_events_of_stages_belong_to_the_turn_in_which_the_reply_began():
    begun = [(1.0, "told", 0, 2, "reply_begun", 5.0), (1.1, "token", 0, 5, "thinker", 3.0)]
    lost = [(1.2, "token", 0, 6, "thinker", 1.0), (1.3, "audio", 0, 2, "", 0.5)]
    events = pd.DataFrame([*begun, *lost], columns=["t", "kind", "session", "turn", "stage", "value"])
    assert by_turn(events)["turn"].tolist() == [2, 2, 2]
