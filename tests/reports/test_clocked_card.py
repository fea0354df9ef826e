"""The card of models on a clock, on a scripted server whose tick is the line that the card states."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.devices.extensions import StatedSteps
from engines.devices.step_time import StepTime, Totals
from engines.server import ServerParams, resolve
from harness.experiments.experiment import Point
from harness.metrics.frames import Beat, frame_table
from harness.records.log import EventLog
from harness.records.record import Measurement
from harness.records.results import claim, write_summary
from reports.cards import card as cards
from reports.cards.group import Group, load_group
from reports.claims.claim import CALIBRATED, NOT_REPRODUCED, REPRODUCED
from reports.cli.card_points import expanded
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.papers.clocked import sessions
from reports.papers.clocked.sessions import FRAME_S, PUBLISHED_S, SERVER
from tests.reports.written import never, write_points

NS = [2, 8, 16, 32, 40]
LINE = sessions.line_through(sessions.CALIBRATED)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Group:
    folder = tmp_path_factory.mktemp("clocked") / "run"
    (figure,) = cards.group("clocked")
    server = figure.experiments[SERVER]
    changes = {"set": {**server.set, "duration_s": 26.0}, "grid": {"sessions": NS}}
    collection, points = expanded("clocked", {figure.name: {SERVER: server.model_copy(update=changes)}})
    with claim(folder, collection) as points_dir:
        write_points(points_dir, points, lockstep, never)
        write_summary(folder, collection.points)
    return load_group(folder)


def lockstep(point: Point) -> Measurement:
    """Each tick takes what the line says of all calls, and begins when the one before has ended."""
    trace, log = point.trace(), EventLog()
    tick_s = LINE(len(trace.sessions))
    rows = []
    for session in trace.sessions:
        done_s = 0.0
        for turn in session.turns:
            due_s = turn.arrival_s + turn.audio_s + turn.network_s
            begin_s = max(done_s, FRAME_S * np.ceil(due_s / FRAME_S - 1e-9))
            done_s = begin_s + tick_s
            rows.append((done_s + turn.network_s, "frame", session.id, turn.turn, "", 1))
    for row in sorted(rows):
        log.event(*row)
    for at_s in np.arange(1.0, 26.0, FRAME_S):
        log.step(at_s, tick_s, "thinker", 0, len(trace.sessions), 1, 0, 1, 0, 0, 1, 2, 0)
    events = log.events()
    frames = frame_table(events.to_pandas(), pd.DataFrame(trace.columns()), Beat(FRAME_S, FRAME_S, FRAME_S))
    return Measurement(trace, events, log.steps(), frames, {}, {}, {}, {})


def test_two_published_ticks_make_the_deployments_line_and_the_other_two_are_told_by_it():
    deployment = resolve(ServerParams(deployment="personaplex_h100"))
    stage = deployment.stages[deployment.entry]
    stated = stage.extension(StatedSteps)
    assert stated is not None
    tick = StepTime(stated.coefficients)
    for calls, published_s in PUBLISHED_S.items():
        ours_s = tick.seconds(Totals(requests=calls)) + calls * FRAME_S * stage.decoder.encoder_s_per_audio_s
        if calls in sessions.CALIBRATED:
            assert ours_s == pytest.approx(published_s)
        assert ours_s == pytest.approx(LINE(calls))
    told = sessions.errors()
    assert len(told) == 6 and told[sessions.CALIBRATED] == pytest.approx({2: -0.168, 32: -0.006}, abs=5e-4)


def test_what_was_fitted_is_calibrated_and_the_prediction_is_judged(group: Group):
    verdicts = {each.claim.id: each.verdict for each in group.claims}
    assert [verdicts[f"sessions-tick-{n}"] for n in (8, 16)] == [CALIBRATED, CALIBRATED]
    assert verdicts["sessions-tick-32"] == REPRODUCED
    assert verdicts["sessions-tick-2"] == NOT_REPRODUCED
    assert verdicts["sessions-served"] == REPRODUCED
    assert sessions.carried(group.cards[0].panels) == {0: 32.0, 1: 32.0, 2: 32.0}


def test_the_table_says_of_each_published_tick_whether_it_was_fitted_or_foretold(group: Group):
    head, *lines = sessions.table(group.cards[0].panels)
    rows = {line[1]: dict(zip(head[2:], line[2:], strict=True)) for line in lines}
    told = {n: rows[str(n)]["published tick, ms"] for n in NS}
    assert told == {
        2: "28.0, predicted −16.8 %",
        8: "32.6, calibrated",
        16: "45.0, calibrated",
        32: "70.2, predicted −0.6 %",
        40: "–",
    }
    assert rows["32"]["late ticks"] == "0.0 %" and rows["40"]["late ticks"] == "100.0 %"
    assert float(rows["32"]["talk-over"][:-2]) < float(rows["40"]["talk-over"][:-2])


def test_it_is_drawn_and_says_so_where_it_cannot_be(group: Group):
    with style():
        picture = sessions.draw(group.cards[0].panels, sessions.PAPER)
        assert isinstance(picture, Picture) and all(axes.lines for axes in picture.figure.axes)
    assert isinstance(sessions.draw({}, sessions.PAPER), LeftOut)


@given(st.floats(0.0, 0.079), st.floats(0.0, 0.05))
def test_a_server_that_keeps_up_stops_two_frames_behind_who_speaks_at_the_begin_of_one(tick_s, network_s):
    """160 ms of Moshi, a tick, the way there and back, and what is left to the next beat."""
    ends_s = FRAME_S * np.arange(1, 500)
    beats_s = FRAME_S * np.ceil((ends_s + network_s) / FRAME_S - 1e-9)
    found = sessions.of_call(beats_s + tick_s + network_s, 0.0, network_s, 30.0)
    wait_s = beats_s[0] - ends_s[0] - network_s
    expected = 2 * FRAME_S + wait_s + tick_s + 2 * network_s - FRAME_S * np.array(sessions.PLACES)
    assert not found.late.any() and found.stop_s.shape[1] == len(sessions.PLACES)
    assert np.allclose(found.stop_s, expected)


def test_an_answer_that_never_comes_is_late_and_no_silence():
    arrive_s = FRAME_S * np.arange(1, 500) + 0.05
    arrive_s[200:] = np.inf
    found = sessions.of_call(arrive_s, 0.0, 0.0, 30.0)
    assert found.late.any() and np.isinf(found.stop_s[-1]).all() and np.isfinite(found.stop_s[0]).all()


def test_the_records_of_a_run_are_read_by_call(group: Group):
    run = group.cards[0].panels[SERVER]
    point = next(each for each in run.points if each.params["sessions"] == 2)
    assert sessions.tick(point) == pytest.approx(LINE(2))
    assert sessions.heard(point).stop_s.max() < 0.4
