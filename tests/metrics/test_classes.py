"""Metrics of request classes: values worked out by hand."""

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
from harness.request_tables.request_table import request_table
from harness.request_tables.steady_window import WHOLE, Window
from tests.metrics.event_log import EventLog, are, parts, steps


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


def test_metrics_of_two_classes_have_the_values_worked_out_by_hand():
    """TTFT is of 0.4, 0.5, 0.6 and two that failed, one of them after its first token; TBT of 0.1, 0.1 and 0.2."""
    gaps_s = [0.1, 0.1, 0.1, 0.1, 0.3, 0.1]
    online = {
        "ttft_p50": (0.6, 5, 0), "ttft_p90": (np.inf, 5, 0), "ttft_p99": (np.inf, 5, 0), "ttft_max": (np.inf, 5, 0),
        "tbt_p50": (0.2, 5, 0), "tbt_p99": (np.inf, 5, 0),
        "ttft_in_deadline": (2 / 5, 5, 1),  # a failed one is late in any case
        "tbt_in_deadline": (2 / 5, 5, 2), "tbt_p99_in_deadline": (2 / 5, 5, 2), "deadlines_met": (1 / 5, 5, 2),
        "goodput_rps": (None, 3, 0),  # three completions give no rate
        "output_tps": (8 / 2, 5, 0), "tps": ((8 + 3 * 100) / 2, 5, 0),  # without tokens of the one that failed
        "completed": (3, 5, 0), "aborted": (0, 5, 0), "priority": (-1, 5, 0), "backlog_dry_s": (None, 0, 0),
        "itl_p50": (np.percentile(gaps_s, 50), 6, 0), "itl_p99": (np.percentile(gaps_s, 99), 6, 0),
    }  # fmt: skip
    batch = {
        "ttft_in_deadline": (1, 1, 0), "tbt_in_deadline": (None, 0, 0), "deadlines_met": (1, 1, 0),
        "output_tps": (4 / 2, 2, 0), "tps": ((4 + 100) / 2, 2, 0),  # the others came after the window
        "tbt_p50": (5 / 7, 1, 1),  # all of one message: no time between tokens
        "itl_p99": (5, 1, 0), "priority": (5, 2, 0), "preemptions": (0, 2, 0), "backlog_dry_s": (None, 0, 0),
    }  # fmt: skip
    found = summary(mixed(), Window(0.0, 2.0))
    are(found, **{f"online.{name}": value for name, value in online.items()})
    are(found, **{f"batch.{name}": value for name, value in batch.items()})


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
    found = summary(with_backlog(), USERS_COME, 11.1)
    are(found, **{"online.tps": ((100 + 2) / 5, 2, 0), "batch.tps": ((1 + (100 + 5) + (100 + 3)) / 5, 5, 0)})
    are(found, **{"batch.completed": (2, 5, 0), "batch.aborted": (3, 5, 0)})
    are(found, **{"batch.backlog_dry_s": (0, 5, 0), "online.backlog_dry_s": (None, 0, 0)})


def test_what_was_aborted_misses_no_deadline_and_is_no_failure():
    metrics = summary(with_backlog())
    are(metrics, **{"batch.ttft_in_deadline": (0, 2, 0)})  # of those that ended
    are(metrics, failed=(0, 7, 0), unfinished=(0, 7, 0))
    assert parts(metrics["e2e_p50"])[1:] == (4, 0)


@pytest.mark.parametrize(("at_s", "dry_s"), [(2.0, 5.0), (5.0, 5.0), (7.5, 2.5), (10.0, 0.0), (10.5, 0.0)])
def test_a_backlog_that_ran_dry_tells_since_when(at_s: float, dry_s: float):
    log = with_backlog().add(at_s, "backlog_dry", 5)
    are(summary(log, USERS_COME), **{"batch.backlog_dry_s": (dry_s, 5, 0)})
    begun = request_table(log.events, log.trace).query("session != 5")
    are(of_log(log.events, log.trace, begun, (5.0, 10.0)), **{"batch.backlog_dry_s": (dry_s, 4, 0)})
    for session in range(1, 6):
        log.label(session, priority=1, backlog=2)
    are(summary(log, USERS_COME), **{"default.backlog_dry_s": (dry_s, 5, 0)})


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


def test_the_overall_metrics_do_not_depend_on_classes_which_follow_the_most_urgent_first():
    log = mixed()
    labelled = summary(log)
    log.labels.clear()
    assert summary(log) == {name: labelled[name] for name in DEFINITIONS}
    of_classes = list(labelled)[len(DEFINITIONS) :]
    assert set(of_classes) == {in_class(each, name) for each in ("online", "batch") for name in CLASS_DEFINITIONS}
    assert list(dict.fromkeys(name.partition(".")[0] for name in of_classes)) == ["online", "batch"]
    for name, metric in labelled.items():
        assert metric.unit == definition(name).unit


def test_one_late_token_in_a_hundred_is_late_and_yet_within_the_deadline_of_the_99th_percentile():
    times = [(2.0 + 0.01 * index, 1) for index in range(150)]
    log = EventLog().start(0, spoken=False).label(0, name="a", tbt=0.2)
    metrics = summary(log.text(*times, (times[-1][0] + 1.0, 1)).done(6.0, 0))
    are(metrics, **{"a.tbt_in_deadline": (0, 1, 0), "a.tbt_p99_in_deadline": (1, 1, 0), "a.deadlines_met": (0, 1, 0)})


@pytest.mark.parametrize(("first_s", "met"), [(1.3, 1), (1.3000004, 1), (1.300001, 0), (1.2, 1)])
def test_deadlines_are_met_to_the_microsecond(first_s: float, met: int):
    """The difference of two times has an error in its last bits: 1.3 - 1.0 > 0.3."""
    log = EventLog().start(0, spoken=False).label(0, name="a", ttft=0.3).text((first_s, 1)).done(2.0, 0)
    are(summary(log), **{"a.ttft_in_deadline": (met, 1, 0), "a.deadlines_met": (met, 1, 0)})


def test_tokens_of_one_message_have_no_time_between_them():
    log = EventLog().start(0, spoken=False).label(0, name="a").text((2.0, 60), (3.0, 60), session=0).done(3.0)
    [row] = request_table(log.events, log.trace).to_dict("records")
    assert row["tbt_p99_s"] == pytest.approx(np.percentile([0.0] * 118 + [1.0], 99))


SHARES = ("ttft_in_deadline", "tbt_in_deadline", "tbt_p99_in_deadline", "deadlines_met")
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
        due = {key: each[key] and each[key] / 8 for key in ("ttft", "tbt")}
        log.start(session, spoken=False).label(session, name=each["name"], priority=session, **due)
        arrivals = 1.0 + np.cumsum(each["waits"]) / 8
        log.text(*((at, 1) for at in arrivals), session=session)
        ended_s = max(arrivals, default=1.0)
        if each["end"] == "done":
            log.done(ended_s, session)
        elif each["end"] == "failed":
            log.add(ended_s, "turn_failed", session)
    metrics = summary(log)
    classes = {found for name in metrics if (found := parsed(name).request_class)}
    labelled = any(each["name"] or each["ttft"] or each["tbt"] for each in replies)
    assert classes == ({each["name"] or "default" for each in replies} if labelled else set())
    completed = sum(metrics[f"{name}.completed"].value or 0.0 for name in classes)
    timed = sum(metrics[f"{name}.ttft_p50"].n for name in classes)
    assert not labelled or (completed, timed) == (metrics["completed"].value, metrics["ttft_p50"].n)
    for share in (metrics[f"{name}.{share}"] for name in classes for share in SHARES):
        assert (share.value is None) == (share.n == 0)
        assert 0 <= share.missing <= share.n
        assert 0 <= (share.value or 0) <= 1
