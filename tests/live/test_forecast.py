"""How long a run will take: as long as the same users take in virtual time with a server that answers at once."""

from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness.client.client_params import ClientParams
from harness.experiments.run_order import Outcome
from harness.live.expand import expand
from harness.live.run.forecast import Phases, expected_phases, on_line, phases_of
from harness.live.run.run_progress import RunProgress
from harness.request_tables.steady_window import WHOLE, Window
from reports.cli.live_view import live_view
from tests.harness.servers import Answering, played
from tests.reports.lived import live as experiment
from workloads.registry import make_trace
from workloads.trace import Trace


def played_s(trace: Trace, client: ClientParams) -> float:
    events, _ = played(trace, Answering, **client.model_dump())
    return float(events.loc[events["kind"] == "session_end", "t"].max())


@pytest.mark.parametrize("p", [0.0, 0.7])
@pytest.mark.parametrize("client", [{"c": 4, "stop_after_s": 30.0}, {"c": 4}, {"stop_after_s": 5.0}, {}])
def test_the_forecast_is_the_length_of_the_same_run_with_instant_answers(client: dict[str, Any], p: float) -> None:
    settings = {"sessions": 24, "turns": 3, "rate": 5.0, "p": p, "network_ms": 0.0}
    trace, params = make_trace("voice", settings, 1), ClientParams.model_validate(client)
    expected = expected_phases(trace, params)
    run_s = expected.ramp_s + expected.load_s + expected.drain_s
    assert run_s == pytest.approx(played_s(trace, params), abs=1e-6)
    assert min(expected.ramp_s, expected.load_s, expected.drain_s) >= 0
    if "stop_after_s" in client:
        assert expected.ramp_s + expected.load_s == client["stop_after_s"]
    events, _ = played(trace, Answering, **params.model_dump())
    ended = events.loc[events["kind"].isin(["reply_done", "barge_in"])]
    ended_s = np.sort(ended.groupby(["session", "turn"])["t"].min())
    ramp_s = min(ended_s[3], client.get("stop_after_s", np.inf)) if "c" in client else 0.0
    assert expected.ramp_s == pytest.approx(ramp_s, abs=1e-6)


def test_a_call_of_frames_takes_its_duration() -> None:
    trace = make_trace("metronome", {"sessions": 3, "duration_s": 20}, 0)
    expected = expected_phases(trace, ClientParams.model_validate({}))
    assert expected.load_s == pytest.approx(20, abs=2.0)  # whole frames, of 2 s
    assert expected.drain_s == expected.ramp_s == 0


def test_a_backlog_does_not_lengthen_a_run() -> None:
    alone, with_backlog = (
        make_trace("co_serving", {"requests": 30, **more}, 0) for more in ({"documents": 0}, {"backlog": 7})
    )
    params = ClientParams.model_validate({})
    assert expected_phases(with_backlog, params) == expected_phases(alone, params)
    assert on_line(with_backlog) == on_line(alone) + 7


def test_the_phases_of_a_run_add_up_to_its_wall_time() -> None:
    taken = phases_of(Window(2.0, 20.0), floor_s=9.0, run_end_s=55.0, wall_s=70.0)
    assert taken == Phases(9.0, 6.0, 2.0, 18.0, 35.0) and taken.total_s == 70.0
    assert str(taken) == "floor 9 s, start 6 s, ramp 2 s, load 18 s, drain 35 s"
    assert phases_of(WHOLE, 9.0, 55.0, 70.0) == Phases(9.0, 6.0, 0.0, 55.0, 0.0)
    never = phases_of(Window(float("inf"), 20.0), 9.0, 55.0, 70.0)
    assert never == Phases(9.0, 6.0, 55.0, 0.0, 0.0)


STATUS = {"sessions": 3, "turns": 1, "failed": 0, "shed": 0, "ttfp_s": [], "reply_s": [], "continuity": [0, 0]}


def test_the_view_shows_the_forecast_once_and_what_the_phases_took(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    point, taken, phases = expand(experiment(grid={"c": [4]}, seeds=[0]))[0], Phases(9.0, 6.0, 2.0, 18.0, 30.0), []
    progress = RunProgress(4, point.label, expected=Phases(10.0, 7.0, 2.0, 18.0, 36.0))
    with live_view(1, 0, Console(width=200)) as (see, ended):
        see(progress)
        phases.append(progress.phase)
        progress.stage = "start"
        for t_s in (None, 1.0, 10.0, 21.0):
            if t_s is not None:
                progress.update(0, {**STATUS, "t": t_s, "send_delay_p99_ms": None, "sent": 0})
            see(progress)
            phases.append(progress.phase)
        progress.taken = taken
        ended(Outcome(point, "ok", tmp_path, taken.total_s))
    printed = capsys.readouterr().out
    assert phases == ["floor", "start", "ramp", "load", "drain"]
    expected = f"{point.label}: about 73 s: floor 10 s, start 7 s, ramp 2 s, load 18 s, drain 36 s"
    assert printed.count(expected) == 1
    assert f"[1/1] {point.label}: ok in 65 s: {taken}" in printed
