"""Metrics of turn-taking: rates and delays worked out by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS, summarise_turn_taking
from harness.request_tables.turn_taking_table import turn_taking_table
from tests.metrics.event_log import OpenCalls, are, parts

UNKNOWN = (None, 0, 1)
NONE = (None, 0, 0)
MURMURS = ["backchannel", "side_speech", "background_speech", "noise"]


def measures(call: OpenCalls, **expected: Any) -> None:
    """Fail unless each metric has this value of one turn, or this value, n and missing."""
    wanted = {name: each if isinstance(each, tuple) else (each, 1, 0) for name, each in expected.items()}
    are(summarise_turn_taking(call.table()), **wanted)


def answered() -> OpenCalls:
    """The user says a turn until 2 s; the server takes it for over at 2.5 s; the reply can be heard from 3.1 to 9 s."""
    call = OpenCalls().turn(0, (0, 2)).agent(3.1, 9)
    return call.told("committed", 2.5).told("reply_begun", 2.6, 0).told("first_packet", 3.0, 0)


def test_the_delay_of_an_answer_and_its_parts() -> None:
    measures(answered(), end_of_turn_delay_p50=1.1, endpointing_mean=0.5, server_mean=0.5, playout_mean=0.1)
    measures(answered(), queue_mean=UNKNOWN)


@pytest.mark.parametrize(("begins_s", "takeover"), [(0.9, 0), (1.0, 1), (1.9, 1), (2.5, 1), (3.0, 0), (3.4, 0)])
def test_a_reply_that_begins_in_a_hesitation_or_after_it_takes_the_turn_over(begins_s: float, takeover: int) -> None:
    """The user speaks to 1 s, falls silent and goes on from 2 to 3 s. A reply that began before is an old one."""
    call = OpenCalls().turn(0, (0, 1), (2, 3)).agent(begins_s, 5)
    measures(call, takeover=takeover, cut_in=NONE)
    measures(call, end_of_turn_delay_p50=begins_s - 3 if begins_s >= 3 else UNKNOWN)


def test_a_takeover_and_the_answer_after_it() -> None:
    call = OpenCalls().turn(0, (0, 1), (2, 3)).agent(1.5, 2.25, 0, done=False).told("stopped", 2.25, 0).agent(3.5, 9, 1)
    measures(call, takeover=1, end_of_turn_delay_p50=0.5, talk_over_mean=0.25, talk_over_share=0.125)


@pytest.mark.parametrize("kind", MURMURS)
@pytest.mark.parametrize(
    ("silent_s", "told", "interrupted"),
    [(5.25, True, 1), (7.0, True, 1), (7.125, True, 0), (5.25, False, 0)],  # the murmur begins at 5 s
)
def test_a_reply_cut_within_two_seconds_of_a_murmur(kind: str, silent_s: float, told: bool, interrupted: int) -> None:
    """One that has been said to its end shortly after was not cut."""
    call = OpenCalls().turn(0, (0, 2), event=kind).beside(kind, 5, 5.25).agent(3, silent_s, done=not told)
    if told:
        call.told("stopped", silent_s, 0)
    measures(call, false_interruption=interrupted, interruption_recall=NONE)
    measures(call, **{f"false_interruption_{kind}": interrupted})


def noisy() -> OpenCalls:
    """The reply just ceases at 5.5 s, half a second into a noise."""
    return OpenCalls().turn(0, (0, 2), event="noise").beside("noise", 5, 5.25).agent(3, 5.5, done=False)


def test_a_reply_that_just_ceases_was_cut() -> None:
    measures(noisy(), false_interruption_noise=1)


@pytest.mark.parametrize(("again_s", "resumed"), [(7.5, 1), (7.625, 0), (None, 0)])
def test_going_on_after_a_false_alarm(again_s: float | None, resumed: int) -> None:
    call = noisy().told("stopped", 5.5, 0)
    if again_s:
        call.agent(again_s, 12, 1)
    measures(call, resumption=resumed)


def interrupted(silent_s: float, words_s: float = 2.0) -> OpenCalls:
    """The user interrupts at 5 s, the agent stops at `silent_s` and answers half a second after the words."""
    call = OpenCalls().turn(0, (0, 2), event="interruption").agent(3, silent_s, done=False)
    call.told("stopped", silent_s, 0).turn(1, (5, 5 + words_s), says="interruption")
    return call.agent(5.5 + words_s, 12, 1, 1)


def test_an_interruption_is_noticed_and_answered() -> None:
    call = interrupted(5.4)
    measures(call, interruption_recall=1, stop_p95=0.4, stop_server_p50=UNKNOWN, respond_p50=0.5)
    measures(call, talk_over_mean=(0.2, 2, 0), false_interruption=NONE)
    call.rows.append((5.25, "server_speech", 0, 0, "0", 2.0))  # what had arrived when the server stopped
    measures(call, stop_server_p50=0.25)


def test_talking_on_over_an_interruption_is_a_miss() -> None:
    call = OpenCalls().turn(0, (0, 2), event="interruption").agent(3, 12).turn(1, (5, 7), says="interruption")
    measures(call, interruption_recall=0, interruption_misses=1, stop_p50=np.inf, stop_server_p50=np.inf)
    measures(call, respond_p50=UNKNOWN)  # it sounds when the words end
    measures(interrupted(7.5, words_s=4), interruption_recall=0, stop_p50=2.5)


@pytest.mark.parametrize(
    ("agent", "gave_way", "delay"),
    [
        ([], 1, np.inf),
        ([(2.3, 3.5, True)], 1, np.inf),
        ([(2.3, 4.9, False)], 0, UNKNOWN),  # it sounds at the end of the correction
        ([(2.5, 4.0, True)], 0, np.inf),
        ([(3.5, 4.0, True)], 0, np.inf),
        ([(4.6, 9.0, False)], 1, 0.1),
    ],
)
def test_a_correction_is_waited_for(agent: list[tuple[float, float, bool]], gave_way: int, delay: Any) -> None:
    """The user ends at 2 s and takes the turn up again from 2.5 to 4.5 s."""
    call = OpenCalls().turn(0, (0, 2), event="correction").turn(1, (2.5, 4.5), says="correction")
    for reply, (begin_s, end_s, cut) in enumerate(agent):
        call.agent(begin_s, end_s, reply, done=not cut)
        if cut:
            call.told("stopped", end_s, reply)
    measures(call, correction_recall=gave_way, cut_in=0, end_of_turn_delay_p50=delay)  # cut in: of the first turn


def test_a_log_without_turns_has_every_defined_metric_without_a_value() -> None:
    metrics = summarise_turn_taking(OpenCalls().table())
    are(metrics, **dict.fromkeys(TURN_TAKING_DEFINITIONS, NONE))
    assert list(metrics) == list(TURN_TAKING_DEFINITIONS)


def three_calls() -> OpenCalls:
    log = OpenCalls()
    for session, call in enumerate((answered(), noisy(), interrupted(5.4))):
        log.rows += [(*row[:2], session, *row[3:]) for row in call.rows]
        log.planned += [(session, *row[1:]) for row in call.planned]
    return log


@settings(max_examples=30)
@given(numbers=st.permutations([10, 11, 12]), seed=st.integers(0, 2**31 - 1))
def test_shuffled_events_and_renumbered_sessions_have_the_same_metrics(numbers: list[int], seed: int) -> None:
    log = three_calls()
    shuffled = log.events.sample(frac=1, random_state=seed)
    events, turns = (frame.assign(session=frame["session"].map(numbers.__getitem__)) for frame in (shuffled, log.turns))
    after = summarise_turn_taking(turn_taking_table(events, turns))
    for name, metric in summarise_turn_taking(log.table()).items():
        assert parts(after[name]) == pytest.approx(parts(metric), nan_ok=True), name


def test_rows_keep_the_order_of_sessions_and_turns() -> None:
    table = OpenCalls().turn(0, (0, 1), session=2).turn(1, (5, 6), session=2).turn(0, (0, 1), session=1).table()
    assert list(zip(table["session"], table["turn"], strict=True)) == [(1, 0), (2, 0), (2, 1)]
