"""Metrics of classes: the numbers of a log made by hand, and that a trace without classes has none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.classes import CLASS_DEFINITIONS, of_log, tbt_attainment, ttft_attainment
from harness.metrics.metric import Metric
from harness.metrics.metric_name import in_class, parsed
from harness.metrics.rates import rate_span
from harness.metrics.turns import DEFINITIONS, columns_of, summarise
from harness.metrics.vocabulary import definition
from harness.request_tables.request_table import CLASS_COLUMNS, COLUMNS, request_table
from harness.request_tables.steady_window import WHOLE, Window
from tests.metrics.event_log import EventLog, parts, steps


def summary(log: EventLog, window: Window = WHOLE, run_end_s: float = 20.0) -> dict[str, Metric]:
    requests = request_table(log.events, log.trace)
    metrics = summarise(requests, steps(), run_end_s, window=window)
    span = rate_span(columns_of(requests), window, run_end_s)
    return metrics | of_log(log.events, log.trace, requests, span)


def mixed() -> EventLog:
    """Two classes. User turns end 1 s after they start; TTFT counts from there.

    online 0  TTFT 0.5, gaps 0.1, 0.1              meets both deadlines (0.5 and 0.2)
    online 1  TTFT 0.6, gaps 0.1                   its first token is late
    online 2  TTFT 0.4, gaps 0.1, 0.3              one token is late
    online 3  TTFT 0.3, then it fails
    online 4  fails without a token
    batch 5   no deadline, ends at 8 s             batch 6: its own TTFT deadline of 4 s, met at 3 s; no gap
    """
    log = EventLog()
    for session in range(7):
        log.start(session, spoken=False, at=1.0 if session == 4 else 0.0)
        log.label(session, name="online", priority=-1, ttft=0.5, tbt=0.2)
    log.text((1.5, 1), (1.6, 1), (1.7, 1), session=0).done(1.7, 0)
    log.text((1.6, 1), (1.7, 1), session=1).done(1.7, 1)
    log.text((1.4, 1), (1.5, 1), (1.8, 1), session=2).done(1.8, 2)
    log.text((1.3, 1), (1.4, 1), session=3).add(3.0, "turn_failed", 3)
    log.add(3.0, "turn_failed", 4)
    log.label(5, name="batch", priority=10).label(6, name="batch", priority=5, ttft=4.0)
    log.text((2.0, 4), (7.0, 4), session=5).done(8.0, 5).text((4.0, 8), session=6).done(4.0, 6)
    for session, tokens in {0: 3, 1: 2, 2: 3, 3: 2, 5: 8, 6: 8}.items():
        log.produce(session, thinker=tokens)
    return log


def test_the_numbers_of_a_log_made_by_hand():
    found = {name: parts(metric) for name, metric in summary(mixed(), Window(0.0, 2.0)).items()}
    # Of 0.4, 0.5, 0.6 and two that failed, one of them after its first token.
    for p, expected in ((50, 0.6), (90, np.inf), (99, np.inf)):
        value, *counts = found[f"online.ttft_p{p}"]
        assert value == pytest.approx(expected) and counts == [5, 0]
    value, *counts = found["online.tbt_p50"]  # of 0.1, 0.1, 0.2 and the same two
    assert value == pytest.approx(0.2) and counts == [5, 0]
    assert found["online.tbt_p99"][0] == np.inf
    assert found["online.ttft_in_deadline"] == (2 / 5, 5, 1)  # a failed one is late in any case
    assert found["online.tbt_in_deadline"] == (2 / 5, 5, 2)
    assert found["online.tbt_p99_in_deadline"] == (2 / 5, 5, 2)
    assert found["online.deadlines_met"] == (1 / 5, 5, 2)
    assert found["online.goodput_rps"] == (None, 3, 0)  # three completions give no rate
    assert found["online.output_tps"] == (8 / 2, 5, 0)  # without those of the one that failed
    assert found["online.tps"] == ((8 + 3 * 100) / 2, 5, 0)
    assert found["online.completed"] == (3.0, 5, 0)
    assert found["online.priority"] == (-1.0, 5, 0)
    assert found["batch.ttft_in_deadline"] == (1.0, 1, 0)
    assert found["batch.tbt_in_deadline"] == (None, 0, 0)
    assert found["batch.deadlines_met"] == (1.0, 1, 0)
    assert found["batch.output_tps"] == (4 / 2, 2, 0)  # the others came after the window
    assert found["batch.tps"] == ((4 + 100) / 2, 2, 0)
    assert found["batch.tbt_p50"] == (5 / 7, 1, 1)  # all of one message: no time between tokens
    assert found["batch.priority"] == (5.0, 2, 0)
    assert found["batch.preemptions"] == (0.0, 2, 0)
    assert found["online.ttft_max"] == (np.inf, 5, 0)
    gaps_s = [0.1, 0.1, 0.1, 0.1, 0.3, 0.1]
    for p in (50, 99):
        assert found[f"online.itl_p{p}"] == (pytest.approx(np.percentile(gaps_s, p)), 6, 0)
    assert found["batch.itl_p99"] == (5.0, 1, 0)
    assert found["online.aborted"] == (0.0, 5, 0)
    assert found["online.backlog_dry_s"] == found["batch.backlog_dry_s"] == (None, 0, 0)


def with_backlog() -> EventLog:
    """Users who come at 5 s and 10 s, the last of whom is answered at 11 s, and a backlog of two documents until then.

    batch 1  read and answered before a user came, but for its last token       batch 2  whole
    batch 3  aborted with three of its tokens                 batch 4  aborted while it was read; batch 5: it waits
    """
    log = EventLog().start(0, spoken=False, at=5.0).start(6, spoken=False, at=10.0)
    log.label(0, name="online", priority=0).label(6, name="online", priority=0)
    log.text((6.5, 1), (10.0, 1), session=0).done(10.0, 0).produce(0, thinker=2)
    log.text((11.0, 1), session=6).done(11.0, 6).produce(6, thinker=1)
    for session in range(1, 6):
        log.start(session, spoken=False, at=0.0).label(session, name="batch", priority=1, ttft=0.1, backlog=2)
    log.text((2.0, 3), (7.0, 1), session=1).done(7.0, 1).text((8.0, 5), session=2).done(8.0, 2)
    log.text((9.0, 3), session=3)
    for session in (3, 4, 5):
        log.add(11.0, "turn_aborted", session)
        log.add(11.1, "abort", session, stage="entry", value=0.0)
    return log


USERS_COME = Window(5.0, 10.0)


def test_each_token_of_a_class_counts_once_in_the_window():
    found = {name: parts(metric) for name, metric in summary(with_backlog(), USERS_COME, 11.1).items()}
    assert found["online.tps"] == ((100 + 2) / 5, 2, 0)
    assert found["batch.tps"] == ((1 + (100 + 5) + (100 + 3)) / 5, 5, 0)
    assert (found["batch.completed"], found["batch.aborted"]) == ((2.0, 5, 0), (3.0, 5, 0))
    assert found["batch.backlog_dry_s"] == (0.0, 5, 0) and found["online.backlog_dry_s"] == (None, 0, 0)


def test_goodput_is_of_the_completions_inside_the_window():
    log = EventLog()
    for session in range(50):
        log.start(session, spoken=False, at=float(session)).label(session, name="a", ttft=0.5)
        first_s = session + (1.4 if session % 2 else 1.6)  # every second one is late
        log.text((first_s, 1), session=session).done(session + 2.0, session)
    metrics = summary(log, Window(5.0, 45.0), run_end_s=60.0)
    assert parts(metrics["a.goodput_rps"]) == (20 / 40, 40, 0)


def test_what_was_aborted_misses_no_deadline_and_is_no_failure():
    metrics = summary(with_backlog())
    assert parts(metrics["batch.ttft_in_deadline"]) == (0.0, 2, 0)  # of those that ended
    assert parts(metrics["failed"])[:2] == (0.0, 7) and parts(metrics["unfinished"])[:2] == (0.0, 7)
    assert parts(metrics["e2e_p50"])[1:] == (4, 0)


def test_a_backlog_that_ran_dry_tells_since_when():
    dry = summary(with_backlog().add(7.5, "backlog_dry", 5), USERS_COME)
    assert parts(dry["batch.backlog_dry_s"]) == (2.5, 5, 0)
    dry = summary(with_backlog().add(2.0, "backlog_dry", 5), USERS_COME)
    assert dry["batch.backlog_dry_s"].value == 5.0
    unnamed = with_backlog().add(7.5, "backlog_dry", 5)
    for session in range(1, 6):
        unnamed.label(session, priority=1, backlog=2)
    assert summary(unnamed, USERS_COME)["default.backlog_dry_s"].value == 2.5
    log = with_backlog().add(7.5, "backlog_dry", 5)
    counted = request_table(log.events, log.trace).query("session != 5")
    assert of_log(log.events, log.trace, counted, (5.0, 10.0))["batch.backlog_dry_s"].value == 2.5


def test_attainment_is_of_limits_that_are_given_afterwards():
    """Requests 0 to 2 of `mixed` ended; 3 and 4 failed. TTFT is over requests, TBT over times between tokens."""
    log = mixed()
    requests = request_table(log.events, log.trace)
    shares = [ttft_attainment(requests, "online", limit_s) for limit_s in (0.5, 0.6, 9.0)]
    assert shares == [2 / 5, 3 / 5, 3 / 5] and ttft_attainment(requests, "nobody", 9.0) is None
    shares = [tbt_attainment(log.events, requests, "online", limit_s) for limit_s in (0.2, 0.299, 0.3)]
    assert shares == [5 / 6, 5 / 6, 1.0] and tbt_attainment(log.events, requests, "nobody", 9.0) is None
    waiting = request_table(with_backlog().events, with_backlog().trace)
    assert ttft_attainment(waiting, "batch", 9.0) == 1.0  # aborted ones do not count


def test_classes_come_after_the_overall_metrics_and_the_most_urgent_first():
    metrics = summary(mixed())
    wanted = [in_class(name, metric) for name in ("online", "batch") for metric in CLASS_DEFINITIONS]
    assert sorted([*DEFINITIONS, *wanted]) == sorted(metrics)
    assert list(metrics)[: len(DEFINITIONS)] == list(DEFINITIONS)
    classes = [name.partition(".")[0] for name in metrics if "." in name]
    assert list(dict.fromkeys(classes)) == ["online", "batch"]
    for name, metric in metrics.items():
        assert metric.unit == definition(name).unit
        assert metric.value is None or type(metric.value) is float
        assert type(metric.n) is int and type(metric.missing) is int


def test_the_overall_metrics_do_not_depend_on_classes():
    log = mixed()
    labelled = summary(log)
    log.labels.clear()
    plain = summary(log)
    assert list(plain) == list(DEFINITIONS)
    assert plain == {name: labelled[name] for name in DEFINITIONS}
    assert list(request_table(log.events, log.trace)) == list(COLUMNS)
    assert list(request_table(mixed().events, mixed().trace)) == [*COLUMNS, *CLASS_COLUMNS]


def test_a_run_without_a_window_has_rates_over_its_whole_length():
    log = EventLog().start(0, spoken=False).label(0, name="a", tbt=1.0).text((2.0, 1), session=0).produce(0)
    metrics = summary(log, run_end_s=10.0)
    assert parts(metrics["a.output_tps"]) == (0.1, 1, 0)
    assert parts(metrics["a.goodput_rps"]) == (None, 0, 0)
    assert parts(metrics["a.tbt_in_deadline"]) == (0.0, 1, 1)


def test_one_late_token_in_a_hundred_is_late_and_yet_within_the_deadline_of_the_99th_percentile():
    times = [(2.0 + 0.01 * index, 1) for index in range(150)]
    log = EventLog().start(0, spoken=False).label(0, name="a", tbt=0.2)
    log.text(*times, (times[-1][0] + 1.0, 1), session=0).done(6.0, 0)
    metrics = summary(log)
    assert (metrics["a.tbt_in_deadline"].value, metrics["a.tbt_p99_in_deadline"].value) == (0.0, 1.0)
    assert metrics["a.deadlines_met"].value == 0.0


def test_tokens_of_one_message_have_no_time_between_them():
    log = EventLog().start(0, spoken=False).label(0, name="a").text((2.0, 60), (3.0, 60), session=0).done(3.0)
    [row] = request_table(log.events, log.trace).to_dict("records")
    assert row["tbt_p99_s"] == pytest.approx(np.percentile([0.0] * 118 + [1.0], 99))


def test_turns_without_a_class_are_of_the_default_one_where_others_have_one():
    log = EventLog().start(0, spoken=False).label(0, name="a").start(1, spoken=False).done(2.0, 1)
    metrics = summary(log)
    assert parts(metrics["default.completed"]) == (1.0, 1, 0) and parts(metrics["a.completed"]) == (0.0, 1, 0)


def test_deadlines_are_met_to_the_microsecond():
    log = EventLog().start(0, spoken=False).label(0, name="a", ttft=0.3)
    log.text((1.3, 1), session=0).done(2.0, 0)
    assert 1.3 - 1.0 > 0.3
    assert summary(log)["a.ttft_in_deadline"].value == 1.0


def test_names_say_whose_number_they_are():
    for unknown in ("online.continuity", ".ttft_p90", "online.", "a.b.ttft_p90", "a.ttft"):
        with pytest.raises(KeyError):
            definition(unknown)


reply = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["", "a", "b"]),
        "ttft": st.none() | st.integers(1, 8),
        "tbt": st.none() | st.integers(1, 8),
        "waits": st.lists(st.integers(0, 8), max_size=4),
        "end": st.sampled_from(["done", "failed", "unfinished"]),
    }
)


@settings(max_examples=60)
@given(st.lists(reply, min_size=1, max_size=8))
def test_laws_of_classes(replies: list[dict]):
    log = EventLog()
    for session, each in enumerate(replies):
        t = 1.0
        log.start(session, spoken=False)
        due = {key: None if each[key] is None else each[key] / 8 for key in ("ttft", "tbt")}
        log.label(session, name=each["name"], priority=session, **due)
        arrivals = [t := t + wait / 8 for wait in each["waits"]]
        log.text(*((at, 1) for at in arrivals), session=session)
        if each["end"] == "done":
            log.done(t, session)
        elif each["end"] == "failed":
            log.add(t, "turn_failed", session)
    metrics = summary(log)
    classes = {found for name in metrics if (found := parsed(name).request_class)}
    labelled = any(each["name"] or each["ttft"] or each["tbt"] for each in replies)
    assert classes == ({each["name"] or "default" for each in replies} if labelled else set())
    if not labelled:
        return
    of_classes = {metric: [metrics[f"{name}.{metric}"] for name in classes] for metric in CLASS_DEFINITIONS}
    assert sum(metric.value for metric in of_classes["completed"]) == metrics["completed"].value
    assert sum(metric.n for metric in of_classes["ttft_p50"]) == metrics["ttft_p50"].n
    for name in classes:
        own = {metric: metrics[f"{name}.{metric}"] for metric in CLASS_DEFINITIONS}
        for metric in ("ttft_in_deadline", "tbt_in_deadline", "tbt_p99_in_deadline", "deadlines_met"):
            share = own[metric]
            assert (share.value is None) == (share.n == 0) and 0 <= share.missing <= share.n
            assert share.value is None or 0 <= share.value <= 1
        if own["tbt_in_deadline"].n:
            assert own["tbt_in_deadline"].value <= own["tbt_p99_in_deadline"].value
