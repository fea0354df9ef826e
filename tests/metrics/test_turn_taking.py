"""Turn-taking: each rate and delay by hand, and what holds of any call."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.definitions import HEADLINES
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS, summarise_turn_taking
from harness.request_tables.turn_taking_table import PARTS, SERVER_PARTS, turn_taking_table
from tests.metrics.event_log import OpenCalls, are

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


def test_the_servers_own_log_divides_its_part() -> None:
    call = OpenCalls().turn(0, (0, 2), network_s=0.05).agent(3.1, 9)
    call.told("committed", 2.55).told("reply_begun", 2.6, 0).told("first_packet", 3.05, 0)
    for kind, t in (("arrive", 2.5), ("start", 2.6), ("token", 2.8), ("token", 2.9)):
        call.event(kind, t, stage="thinker")
    call.event("arrive", 2.85, stage="talker")
    measures(call, endpointing_mean=0.45, network_mean=0.1, queue_mean=0.1, prefill_mean=0.2, first_packet_mean=0.2)
    measures(call, playout_mean=0.05, end_of_turn_delay_mean=0.45 + 0.1 + 0.1 + 0.2 + 0.2 + 0.05)


def test_a_turn_that_nobody_answers_is_infinitely_late() -> None:
    call = answered().turn(1, (10, 12)).turn(2, (20, 21)).agent(21.5, 25, 1, 2)
    assert call.table()["end_of_turn_delay_s"].tolist() == pytest.approx([1.1, np.inf, 0.5])
    measures(call, end_of_turn_delay_p50=(1.1, 3, 0), endpointing_p50=(0.5, 1, 1))
    call.told("first_packet", 21.4, 1)
    measures(call, endpointing_p50=(0.5, 1, 1))  # what was told of the turn before is of no use
    call.told("committed", 21.3)
    measures(call, endpointing_p50=(0.4, 2, 0))


@pytest.mark.parametrize(("begins_s", "takeover"), [(0.9, 0), (1.0, 1), (1.9, 1), (2.5, 1), (3.0, 0), (3.4, 0)])
def test_a_reply_that_begins_in_a_hesitation_or_after_it_takes_the_turn_over(begins_s: float, takeover: int) -> None:
    """The user speaks to 1 s, falls silent and goes on from 2 to 3 s. A reply that began before is an old one."""
    call = OpenCalls().turn(0, (0, 1), (2, 3)).agent(begins_s, 5)
    measures(call, takeover=takeover, cut_in=NONE)
    measures(call, end_of_turn_delay_p50=begins_s - 3 if begins_s >= 3 else UNKNOWN)


def test_a_takeover_and_the_answer_after_it() -> None:
    call = OpenCalls().turn(0, (0, 1), (2, 3)).agent(1.5, 2.25, 0, done=False).told("stopped", 2.25, 0).agent(3.5, 9, 1)
    measures(call, takeover=1, end_of_turn_delay_p50=0.5, talk_over_mean=0.25, talk_over_share=0.125)


def test_cutting_into_a_turn_without_a_hesitation() -> None:
    call = OpenCalls().turn(0, (0, 2)).agent(1.5, 1.8).turn(1, (5, 7)).agent(7.5, 9, 1, 1)
    measures(call, cut_in=(0.5, 2, 0))


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


def test_a_murmur_after_the_reply_or_never_heard_is_missing() -> None:
    call = OpenCalls().turn(0, (0, 2), event="backchannel").agent(3, 5).beside("backchannel", 6, 6.3)
    call.turn(1, (8, 9), event="backchannel").agent(10, 11, 1, 1)
    measures(call, false_interruption_backchannel=(None, 0, 2))


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


def test_the_headlines_of_duplex_calls_are_defined() -> None:
    assert set(HEADLINES["duplex"]) <= set(TURN_TAKING_DEFINITIONS)


times = st.floats(0, 60, allow_nan=False).map(lambda t: round(t, 3))


@st.composite
def calls(draw) -> OpenCalls:
    """Any log that could be written: turns one after the other, replies, events and claims at any time."""
    log = OpenCalls()
    for session in range(draw(st.integers(1, 3))):
        at = sorted(draw(st.lists(times, min_size=4, max_size=16, unique=True)))
        turn, said = 0, "turn"
        while len(at) >= 4:
            hesitates = draw(st.booleans()) and len(at) >= 4
            ends, at = (at[:4], at[4:]) if hesitates else (at[:2], at[2:])
            stretches = list(zip(ends[::2], ends[1::2], strict=True))
            event = draw(st.sampled_from(["", "noise", "backchannel", "interruption", "correction"]))
            log.turn(turn, *stretches, says=said, event=event, session=session)
            if event in ("noise", "backchannel") and draw(st.booleans()):
                begin = draw(times)
                log.beside(event, begin, begin + 0.3, turn, session)
            said = event if event in ("interruption", "correction") else "turn"
            turn += 1
        begin = 0.0
        for reply in range(draw(st.integers(0, 4))):
            begin, length = begin + draw(st.floats(0.1, 15)), draw(st.floats(0.1, 9))
            log.agent(
                begin, begin + length, reply, draw(st.integers(0, max(0, turn - 1))), session, draw(st.booleans())
            )
            for label in draw(st.sets(st.sampled_from(["reply_begun", "first_packet", "stopped"]))):
                log.told(label, begin + (length if label == "stopped" else -0.05), reply, session)
            if draw(st.booleans()):
                log.told("committed", begin - 0.1, session=session)
            if draw(st.booleans()):
                for kind, before_s in (("arrive", 0.09), ("start", 0.08), ("token", 0.07)):
                    log.event(kind, begin - before_s, session=session, stage="thinker")
            begin += length
    return log


@settings(max_examples=80)
@given(calls())
def test_what_holds_of_any_call(log: OpenCalls) -> None:
    table = log.table()
    known = table.loc[table["endpointing_s"].notna()]
    whole_s = np.nansum(known[list(PARTS)].to_numpy(float), axis=1)
    assert np.allclose(whole_s, known["end_of_turn_delay_s"], atol=1e-9)
    split = known.loc[known["queue_s"].notna()]
    assert np.allclose(split[list(SERVER_PARTS)].sum(axis=1), split["server_s"], atol=1e-9)
    assert np.all(table["end_of_turn_delay_s"].dropna() >= 0) and np.all(table["stop_s"].dropna() >= 0)
    assert np.all(table["talk_over_s"] <= table["user_speech_s"] + 1e-9)
    for name, metric in summarise_turn_taking(table).items():
        assert (metric.value is None) == (metric.n == 0) or name == "talk_over_share"
        assert metric.missing >= 0 and metric.n + metric.missing <= len(table)
        if metric.value is not None and metric.unit == "1" and not name.endswith("misses"):
            assert 0 <= metric.value <= 1 + 1e-9


@settings(max_examples=30)
@given(calls(), st.permutations([10, 11, 12]), st.integers(0, 2**31 - 1))
def test_shuffled_events_and_renumbered_sessions_have_the_same_metrics(
    log: OpenCalls, numbers: list[int], seed: int
) -> None:
    shuffled = log.events.sample(frac=1, random_state=seed)
    events, turns = (
        frame.assign(session=[numbers[session] for session in frame["session"]]) for frame in (shuffled, log.turns)
    )
    before, after = summarise_turn_taking(log.table()), summarise_turn_taking(turn_taking_table(events, turns))
    for name, metric in before.items():
        assert (after[name].n, after[name].missing) == (metric.n, metric.missing), name
        assert after[name].value == pytest.approx(metric.value, nan_ok=True), name


def test_rows_keep_the_order_of_sessions_and_turns() -> None:
    table = OpenCalls().turn(0, (0, 1), session=2).turn(1, (5, 6), session=2).turn(0, (0, 1), session=1).table()
    assert list(zip(table["session"], table["turn"], strict=True)) == [(1, 0), (2, 0), (2, 1)]
