"""The validity of a live run: INVALID by a machine's fault, failed where most turns failed."""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pytest

from harness.events.log import EventLog
from harness.live.endpoints.target import TargetParams
from harness.live.kinds import named
from harness.live.run.plan import FAILURES, SENDS, Loss, Merged
from harness.live.validity import FailedPoint, check_machines, check_own_server, check_server, check_window
from harness.records.measured import RunFacts
from harness.records.record import InvalidPoint, Measurement
from harness.request_tables.steady_window import Load
from tests.live.scripted import typed
from workloads.registry import make_trace

TURNS, FRAMES = named("turns"), named("frames")
TARGET = TargetParams.model_validate({"url": "http://h/v1"})


def run(statuses: list[str], reasons: dict[int, str] | None = None, shed: Iterable[int] = ()) -> Measurement:
    """A session of one turn for each status; `reasons`: of failed ones, by session."""
    columns = {"session": range(len(statuses)), "turn": 0, "status": pd.array(statuses, "str"), "phase": "steady"}
    log = EventLog()
    for session in shed:
        log.event(1.0, "shed", session, 0)
    rows = [{"t_s": 1.0, "session": session, "turn": 0, "reason": why} for session, why in (reasons or {}).items()]
    more = {"failures": pa.Table.from_pylist(rows, FAILURES)}
    values = {"send_delay_p99": 0.001, "server_lag_p99": None, "steady_begin": 0.5, "steady_end": 3.0}
    metrics = {name: {"value": value} for name, value in values.items()}
    steps = EventLog().steps()
    return Measurement(typed(sessions=2), log.events(), steps, pd.DataFrame(columns), metrics, RunFacts(), {}, {}, more)


def with_metric(measurement: Measurement, **values: float | None) -> Measurement:
    return replace(measurement, metrics=measurement.metrics | {n: {"value": v} for n, v in values.items()})


def merged(losses: dict[int, Loss] | None = None) -> Merged:
    tables = EventLog().events(), SENDS.empty_table(), FAILURES.empty_table()
    return Merged(*tables, 5.0, [{}, {}], losses or {}, (1, 2))


@pytest.mark.parametrize(("answered", "failed"), [(0, 0), (2, 1), (2, 2)])
def test_as_many_failed_as_answered_turns_are_no_failed_point(answered: int, failed: int):
    check_server(TURNS, run(answered * ["completed"] + failed * ["failed"]))


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["completed", "barged_in", "failed", "failed", "failed"], "3 of 5 turns failed (no answer in time); "),
        (["failed"], "all 1 turns failed (no answer in time); "),
    ],
)
def test_more_failed_than_answered_turns_are_a_failed_point(statuses: list[str], words: str):
    measurement = run(statuses)
    with pytest.raises(FailedPoint) as excinfo:
        check_server(TURNS, measurement)
    assert excinfo.value.measurement is measurement and str(excinfo.value).startswith(words)


def test_the_most_frequent_reason_is_named():
    reasons = {0: "garbage", 1: "http 500", 2: "http 500"}
    with pytest.raises(FailedPoint, match=r"^all 3 turns failed \(2 of them: HTTP status 500\); "):
        check_server(TURNS, run(["failed"] * 3, reasons))


def test_rejected_sessions_are_no_failures_unless_all_are_rejected():
    check_server(TURNS, run(["completed", *["failed"] * 9], shed=range(1, 10)))
    with pytest.raises(FailedPoint, match=r"all 3 turns failed \(sessions turned away\); take fewer"):
        check_server(TURNS, run(["failed"] * 3, {0: "closed 1013"}, shed=(0, 1, 2)))
    with pytest.raises(FailedPoint, match=r"^2 of 12 turns failed \(garbage\)"):
        check_server(TURNS, run(["completed", *["failed"] * 11], {1: "garbage", 2: "garbage"}, shed=range(3, 12)))


def test_an_empty_frame_is_an_answer():
    trace = make_trace("metronome", {"sessions": 1, "duration_s": 4}, 0)
    check_server(FRAMES, replace(run(["unanswered", "unanswered", "empty"]), trace=trace))
    with pytest.raises(FailedPoint, match=r"^all 3 frames failed \(no answer in time\)"):
        check_server(FRAMES, replace(run(["unanswered"] * 3), trace=trace))


def test_server_lag_above_its_limit_is_invalid():
    starved = with_metric(run(["completed"]), server_lag_p99=0.25)
    check_own_server(starved, 250)
    with pytest.raises(
        InvalidPoint, match=r"the server's own loop lag is 250\.0 ms, above send_delay_limit_ms=249: "
    ) as e:
        check_own_server(starved, 249)
    assert e.value.measurement is not None
    check_machines(starved, merged(), TARGET)  # there the verdict asks whether it could matter


def test_late_sends_above_5_percent_and_a_lost_load_generator_are_invalid():
    def sent(late: int) -> Merged:
        delays_s = [0.03] * late + [0.02] * (100 - late)  # the limit is 20 ms
        rows = [{"kind": "commit", "session": 0, "due_s": 0.0, "send_delay_s": delay_s} for delay_s in delays_s]
        return replace(merged(), sends=pa.Table.from_pylist(rows, SENDS))

    check_machines(run(["completed"]), sent(5), TARGET)  # a few are for the verdict
    with pytest.raises(InvalidPoint, match=r"^6\.0 % of the sends were later than send_delay_limit_ms=20 allows: "):
        check_machines(run(["completed"]), sent(6), TARGET)
    check_machines(run(["completed"]), sent(6), TARGET.model_copy(update={"send_delay_limit_ms": 30.0}))
    with pytest.raises(InvalidPoint, match=r"load generator 1 of 2 died at 2\.0 s: 2 open sessions were lost"):
        check_machines(run(["completed"]), merged({1: Loss(2.0, "died")}), TARGET)


def test_a_closed_loop_without_a_steady_turn_is_invalid():
    def check(slots: int | None, begin_s: float | None) -> None:
        timing = Load() if slots is None else Load(slots=slots)
        check_window(replace(with_metric(run(["completed"]), steady_begin=begin_s), facts=RunFacts(timing=timing)))

    check(1, 0.5)
    with pytest.raises(InvalidPoint, match=r"begins when 1 requests have ended and ends when no new turn may begin; "):
        check(1, None)
    for slots in (None, 2):  # an open loop, and one whose turns are all among the first
        check(slots, None)
