"""The numbers of a run: their rules, their n and missing, and laws that hold for any log."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.metric import Metric
from harness.metrics.metric_name import parsed
from harness.metrics.turns import DEFINITIONS, DISTRIBUTIONS, effective_rps, summarise
from harness.request_tables.request_table import request_table
from tests.metrics.event_log import EventLog, parts, steps


def summary(log: EventLog, *, kv=(), run_end_s: float = 20.0, **options) -> dict[str, Metric]:
    return summarise(request_table(log.events, log.trace), steps(*kv), run_end_s, **options)


def columns(log: EventLog) -> dict[str, np.ndarray]:
    table = request_table(log.events, log.trace)
    return {
        name: table[name].to_numpy() if name == "status" else table[name].to_numpy(float, na_value=np.nan)
        for name in ("status", "spoken", "turn_end_s", "completion_s", "audio_ttfp_s", "max_gap_s")
    }


UNITS = {"s", "1", "1/s", "1/min", "token", "block", "block*s"}


def test_every_metric_is_defined_in_order_with_its_unit():
    metrics = summary(EventLog().spoken_turn())
    assert list(metrics) == list(DEFINITIONS)
    for name, metric in metrics.items():
        definition = DEFINITIONS[name]
        assert metric.unit == definition.unit and definition.unit in UNITS
        assert definition.definition and definition.origin
        assert metric.value is None or type(metric.value) is float
        assert type(metric.n) is int and type(metric.missing) is int


def test_pacing_makes_rtf_neither_better_nor_worse():
    assert DEFINITIONS["rtf_p50"].better is None and DEFINITIONS["continuity"].better == "higher"


def test_an_empty_run_measures_nothing():
    metrics = summary(EventLog())
    counts = {"started", "completed", "barged_in", "failed", "unfinished", "completed_outside_window"}
    assert {name for name, metric in metrics.items() if metric.value is not None} == counts
    assert all(metrics[name].value == 0 for name in counts)
    assert all(metric.n == 0 and metric.missing == 0 for metric in metrics.values())


def test_percentiles_interpolate_linearly():
    log = EventLog()
    for session, ttfp in enumerate((0.1, 0.2, 0.3, 0.4)):
        log.spoken_turn(session, ttfp=ttfp)
    metrics = summary(log)
    assert metrics["audio_ttfp_p50"].value == pytest.approx(0.25)
    assert metrics["audio_ttfp_p90"].value == pytest.approx(0.37)
    assert metrics["audio_ttfp_mean"].value == pytest.approx(0.25)
    assert parts(metrics["audio_ttfp_p90"])[1:] == (4, 0)


def mixed() -> EventLog:
    """One turn each: complete, complete with a gap, silent, barged in, failed, unfinished, text."""
    log = EventLog().spoken_turn(0).spoken_turn(1, gap=0.2).start(2).produce(2).done(2.0, 2, played=0.0)
    log.start(3).produce(3, talker=30, end="abort").audio((1.9, 1.0), session=3)
    log.barge_in(2.4, 0.5, 3, thinker=4, talker=6)
    log.start(4).produce(4, talker=20, end="abort").audio((2.1, 1.0), session=4).add(9.0, "turn_failed", 4)
    log.start(5)
    return log.start(6, spoken=False).produce(6).add(1.3, "first_text", 6, value=10).done(1.3, 6)


def test_who_is_in_which_denominator():
    metrics = summary(mixed())
    assert parts(metrics["started"]) == (7.0, 7, 0)
    assert parts(metrics["completed"]) == (4.0, 7, 0)
    for name in ("barged_in", "failed", "unfinished"):
        assert parts(metrics[name]) == (1.0, 7, 0)
    # Spoken: six. The failed, the silent and the unfinished one are infinitely late.
    assert parts(metrics["audio_ttfp_p50"])[1:] == (6, 0)
    assert metrics["audio_ttfp_p90"].value == np.inf
    # Without the barged-in one: five, of which two have a whole reply.
    assert parts(metrics["rtf_p50"])[1:] == (5, 0)
    assert parts(metrics["max_gap_p90"])[1:] == (5, 0) and metrics["max_gap_p90"].value == np.inf
    assert parts(metrics["continuity"]) == (1 / 5, 5, 0)
    assert parts(metrics["e2e_p50"])[1:] == (6, 0)
    assert parts(metrics["barge_in_rate"]) == (1 / 6, 6, 0)
    assert parts(metrics["barge_in_missed_rate"]) == (0.0, 6, 0)


def test_turns_that_never_started_are_counted():
    assert parts(summary(EventLog().spoken_turn(), planned_turns=3)["started"]) == (1.0, 1, 2)


def test_waste_counts_the_turns_whose_hearing_is_known():
    metrics = summary(mixed())
    # Barged in: 30 - 6 frames and 10 - 4 tokens; fully heard: two spoken (24 frames each), silent, text.
    assert parts(metrics["wasted_token_ratio_talker"]) == (24 / 78, 3, 1)
    assert parts(metrics["wasted_token_ratio_entry"]) == (6 / 50, 5, 1)
    assert parts(metrics["wasted_token_ratio"]) == (30 / 128, 5, 1)
    assert parts(metrics["generated_tokens"]) == (128.0, 5, 1)
    assert parts(metrics["heard_tokens"]) == (98.0, 5, 1)


def test_completed_rps_counts_inside_the_steady_window():
    log = EventLog()
    for session in range(20):
        log.start(session, spoken=False, at=float(session)).done(session + 3.5, session)
    # The first 10 % are 2 completions, the second at 4.5 s; the last turn ends at 20 s: 15 complete between.
    metrics = summary(log, run_end_s=30.0)
    assert parts(metrics["completed_rps"]) == (15 / 15.5, 15, 0)
    assert parts(metrics["completed_outside_window"]) == (5.0, 20, 0)


def test_completed_rps_is_missing_when_all_arrived_before_the_first_completion():
    log = EventLog().spoken_turn(0).spoken_turn(1)
    assert parts(summary(log)["completed_rps"]) == (None, 0, 0)
    assert summary(log)["completed_outside_window"].value == 2.0


def test_barged_in_turns_complete_at_the_barge_in():
    log = (
        EventLog().start(0).audio((1.5, 5.0)).barge_in(2.0, 0.5).start(1, at=0.1).audio((1.6, 5.0), session=1)
    )
    log.barge_in(3.0, 1.4, 1).start(2, at=9.0)
    assert parts(summary(log)["completed_rps"]) == (1 / 8.0, 1, 0)


def test_effective_rps_needs_speech_unbroken_and_inside_the_steady_window():
    log = EventLog().start(9, spoken=False).done(1.2, 9)  # opens the window
    log.spoken_turn(0).spoken_turn(1, ttfp=2.5).spoken_turn(2, gap=0.2)
    log.start(3).audio((1.5, 5.0), session=3).barge_in(2.0, 0.5, 3)
    log.start(4).audio((1.5, 0.1), (3.0, 5.0), session=4).barge_in(3.5, 0.6, 4)
    log.start(5).audio((1.5, 0.5), session=5).add(9.0, "turn_failed", 5)
    log.start(6, spoken=False).done(2.0, 6)
    log.spoken_turn(7, at=10.2)  # its user's turn ends at 11.2 s, and with it the window
    metrics = summary(log, run_end_s=10.0)
    assert parts(metrics["effective_rps"]) == (pytest.approx(3 / 10.0), 5, 0)
    assert parts(metrics["completed_rps"]) == (pytest.approx(6 / 10.0), 6, 0)
    assert parts(metrics["ttfp_in_target"]) == (5 / 7, 7, 0)  # the failed one is not in time
    turns = columns(log)
    assert effective_rps(turns, 2.5)[0] == pytest.approx(3 / 10.0)
    assert effective_rps(turns, 2.0)[0] == pytest.approx(2 / 10.0)
    assert effective_rps(turns, 0.1)[0] == 0


def test_a_reply_that_began_early_has_no_latency_that_could_be_in_time():
    log = EventLog().spoken_turn(0).spoken_turn(1, ttfp=2.5).spoken_turn(2).add(0.9, "early_reply", 2)
    assert parts(summary(log)["ttfp_in_target"]) == (1 / 2, 2, 0)


def test_no_single_long_reply_sets_the_effective_rps():
    log = EventLog()
    for session in range(20):
        log.spoken_turn(session, at=float(session))
    short = summary(log, run_end_s=25.0)
    log.start(20, at=18.5).audio((20.0, 300.0), session=20).done(25.0, 20)
    long = summary(log, run_end_s=330.0)
    assert long["effective_rps"].value == pytest.approx(short["effective_rps"].value, rel=0.1)
    assert long["makespan"].value > 10 * short["makespan"].value


def test_effective_rps_of_text_is_missing():
    assert summary(EventLog().start(spoken=False).done(2.0))["effective_rps"].value is None


def test_kv_occupancy_holds_from_the_end_of_a_step_to_the_end_of_the_next():
    kv = [("entry", 0.0, 1.0, 10, 100), ("entry", 1.0, 3.0, 50, 100), ("vocoder", 0.0, 1.0, 0, 0)]
    metrics = summary(EventLog(), kv=kv, run_end_s=5.0)
    assert parts(metrics["kv_occupancy_entry_mean"]) == (0.2, 2, 0)  # 10 blocks for 3 s, 50 for 1 s
    assert parts(metrics["kv_occupancy_entry_peak"]) == (0.5, 2, 0)
    assert parts(metrics["kv_occupancy_vocoder_peak"]) == (None, 0, 0)


def test_preemptions_are_missing_where_no_stage_reported():
    log = EventLog().start(0).produce(0).add(1.2, "preempt", 0, stage="entry").start(1)
    assert parts(summary(log)["preemptions"]) == (1.0, 1, 1)


eighths = st.integers(0, 24).map(lambda n: n / 8)


@st.composite
def turns(draw) -> list[dict]:
    """Courses of up to eight turns, one a session."""
    course = st.fixed_dictionaries(
        {
            "end": st.sampled_from(["completed", "barged_in", "failed", "unfinished"]),
            "spoken": st.booleans(),
            "waits": st.lists(eighths, max_size=4),
            "thinker": st.integers(0, 50),
            "talker": st.integers(0, 50),
            "heard": st.floats(0, 1),
        }
    )
    return draw(st.lists(course, max_size=8))


def log_of(courses: list[dict], session_of=lambda index: index) -> EventLog:
    log = EventLog()
    for index, course in enumerate(courses):
        session, spoken, t = session_of(index), course["spoken"], 1.0
        log.start(session, spoken=spoken, at=0.0)
        made = {"thinker": course["thinker"], "talker": course["talker"] if spoken else 0}
        log.produce(session, **made, end="finish" if course["end"] == "completed" else "abort")
        for wait in course["waits"] if spoken else []:
            t += wait
            log.audio((t, 0.5), session=session)
        if course["end"] == "completed":
            log.done(t + 0.5, session, played=0.5 * len(course["waits"]))
        elif course["end"] == "barged_in" and spoken:
            heard = {stage: int(tokens * course["heard"]) for stage, tokens in made.items() if tokens}
            log.barge_in(t + 0.25, 0.25, session, **heard)
        elif course["end"] == "failed":
            log.add(t, "turn_failed", session)
    return log


@settings(max_examples=60)
@given(turns())
def test_laws_of_any_run(courses):
    metrics = summary(log_of(courses))
    for name in (
        "wasted_token_ratio",
        "wasted_token_ratio_entry",
        "wasted_token_ratio_talker",
        "continuity",
    ):
        assert metrics[name].value is None or 0 <= metrics[name].value <= 1
    assert sum(metrics[name].value for name in ("completed", "barged_in", "failed", "unfinished")) == len(
        courses
    )
    if metrics["effective_rps"].value is not None:
        assert 0 <= metrics["effective_rps"].value <= metrics["completed_rps"].value
    if metrics["continuity"].value is not None:
        assert metrics["continuity_fixed_timeline"].value <= metrics["continuity"].value
    for name, metric in metrics.items():
        assert metric.n >= 0 and metric.missing >= 0
        late = parsed(name).family in DISTRIBUTIONS
        assert metric.value is None or np.isfinite(metric.value) or late, name
        if name.endswith(("_p50", "_p90", "_p99", "_mean")):
            assert (metric.value is None) == (metric.n == 0)


@settings(max_examples=60)
@given(turns())
def test_without_barge_in_or_failure_nothing_is_wasted(courses):
    metrics = summary(log_of([{**course, "end": "completed"} for course in courses]))
    for name in ("wasted_token_ratio", "wasted_token_ratio_entry", "wasted_token_ratio_talker"):
        assert metrics[name].value == (0.0 if metrics[name].n else None)


@settings(max_examples=60)
@given(turns(), st.data())
def test_numbering_the_sessions_otherwise_changes_nothing(courses, data):
    numbers = data.draw(st.permutations(range(len(courses))))
    before, after = summary(log_of(courses)), summary(log_of(courses, lambda index: numbers[index]))
    for name, metric in before.items():
        assert parts(metric)[1:] == parts(after[name])[1:]
        assert after[name].value == (None if metric.value is None else pytest.approx(metric.value))


def test_reloads_are_shares_of_started_turns_and_sums_of_blocks():
    log = EventLog().start().produce().done(2.0).start(1).produce(1).done(2.0, 1)
    log.add(1.0, "load_start", 0, 0, "entry").add(1.05, "load_end", 0, 0, "entry", 40)
    log.add(1.1, "preloaded", 1, 0, "entry", 12)
    metrics = summary(log)
    assert metrics["reloaded_turns"].value == 0.5 and metrics["reloaded_turns"].n == 2
    assert metrics["reloaded_blocks"].value == 40 and metrics["preloaded_blocks"].value == 12
    assert metrics["reload_mean"].value == pytest.approx(0.025)


def test_block_seconds_are_the_integral_that_occupancy_is_a_share_of():
    kv = [("entry", 0.0, 1.0, 50, 100), ("entry", 4.0, 1.0, 100, 100)]
    metrics = summary(EventLog().start().done(9.0), kv=kv, run_end_s=9.0)
    assert metrics["kv_block_seconds_entry"].value == 50 * 4 + 100 * 4
    assert metrics["kv_occupancy_entry_mean"].value == 600 / 800
    assert metrics["kv_block_seconds_talker"].value is None
