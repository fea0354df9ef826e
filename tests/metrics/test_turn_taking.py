"""Turn-taking: each rate and delay by hand, and what holds of any call."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.definitions import HEADLINES
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS, summarise_turn_taking
from harness.request_tables.turn_taking_table import PARTS, SERVER_PARTS, Stretch, overlap_s, turn_taking_table
from tests.metrics.event_log import OpenCalls


def measured(call: OpenCalls, name: str) -> tuple[float | None, int, int]:
    metric = summarise_turn_taking(call.table())[name]
    return metric.value, metric.n, metric.missing


def near(value: float, n: int, missing: int = 0) -> tuple:
    return pytest.approx(value), n, missing


def answered() -> OpenCalls:
    """The user says a turn until 2 s; the server takes it for over at 2.5 s; the reply can be heard from 3.1 to 9 s."""
    call = OpenCalls().turn(0, (0, 2))
    call.told("committed", 2.5).told("reply_begun", 2.6, 0).told("first_packet", 3.0, 0)
    return call


def test_the_delay_of_an_answer_and_its_parts() -> None:
    call = answered().agent(3.1, 9)
    assert measured(call, "end_of_turn_delay_p50") == near(1.1, 1)
    for name, part_s in (("endpointing", 0.5), ("server", 0.5), ("playout", 0.1)):
        assert measured(call, f"{name}_mean") == near(part_s, 1)
    assert measured(call, "queue_mean") == (None, 0, 1)


def test_the_servers_own_log_divides_its_part() -> None:
    call = OpenCalls().turn(0, (0, 2), network_s=0.05).agent(3.1, 9)
    call.told("committed", 2.55).told("reply_begun", 2.6, 0).told("first_packet", 3.05, 0)
    for kind, t in (("arrive", 2.5), ("start", 2.6), ("token", 2.8), ("token", 2.9)):
        call.event(kind, t, stage="thinker")
    call.event("arrive", 2.85, stage="talker")
    parts = {"endpointing": 0.45, "network": 0.1, "queue": 0.1, "prefill": 0.2, "first_packet": 0.2, "playout": 0.05}
    for name, part_s in parts.items():
        assert measured(call, f"{name}_mean") == near(part_s, 1)
    assert sum(parts.values()) == pytest.approx(measured(call, "end_of_turn_delay_mean")[0])


def test_a_turn_that_nobody_answers_is_infinitely_late() -> None:
    call = answered().agent(3.1, 9).turn(1, (10, 12)).turn(2, (20, 21)).agent(21.5, 25, 1, 2)
    assert measured(call, "end_of_turn_delay_p50") == near(1.1, 3)
    assert call.table()["end_of_turn_delay_s"].tolist() == [pytest.approx(1.1), np.inf, pytest.approx(0.5)]
    assert measured(call, "endpointing_p50") == near(0.5, 1, 1)
    call.told("first_packet", 21.4, 1)
    # What was told of the turn before is of no use
    assert measured(call, "endpointing_p50") == near(0.5, 1, 1)
    call.told("committed", 21.3)
    assert measured(call, "endpointing_p50") == near(0.4, 2)


@pytest.mark.parametrize(("begins_s", "takeover"), [(1.2, 1), (1.9, 1), (2.5, 1), (3.4, 0), (0.5, 0)])
def test_a_reply_that_begins_in_a_hesitation_or_after_it_takes_the_turn_over(begins_s, takeover) -> None:
    """The user speaks to 1 s, falls silent and goes on from 2 to 3 s. A reply that began before is an old one."""
    call = OpenCalls().turn(0, (0, 1), (2, 3)).agent(begins_s, 5)
    assert measured(call, "takeover") == near(takeover, 1)
    assert measured(call, "cut_in") == (None, 0, 0)
    assert measured(call, "end_of_turn_delay_p50") == (near(0.4, 1) if begins_s == 3.4 else (None, 0, 1))


def test_a_takeover_and_the_answer_after_it() -> None:
    call = OpenCalls().turn(0, (0, 1), (2, 3)).agent(1.5, 2.25, 0, done=False).told("stopped", 2.25, 0)
    call.agent(3.5, 9, 1)
    assert measured(call, "takeover") == near(1, 1)
    assert measured(call, "end_of_turn_delay_p50") == near(0.5, 1)
    assert measured(call, "talk_over_mean") == near(0.25, 1)
    assert measured(call, "talk_over_share") == near(0.125, 1)


def test_cutting_into_a_turn_without_a_hesitation() -> None:
    call = OpenCalls().turn(0, (0, 2)).agent(1.5, 1.8).turn(1, (5, 7)).agent(7.5, 9, 1, 1)
    assert measured(call, "cut_in") == near(0.5, 2)


@pytest.mark.parametrize("kind", ["backchannel", "side_speech", "background_speech", "noise"])
@pytest.mark.parametrize(
    ("silent_s", "told", "interrupted"), [(5.4, True, 1), (6.9, True, 1), (7.1, True, 0), (5.4, False, 0)]
)
def test_a_reply_cut_within_two_seconds_of_a_murmur(kind, silent_s, told, interrupted) -> None:
    """One that has been said to its end shortly after was not cut."""
    call = OpenCalls().turn(0, (0, 2), event=kind).beside(kind, 5, 5.3).agent(3, silent_s, done=not told)
    if told:
        call.told("stopped", silent_s, 0)
    assert measured(call, "false_interruption") == near(interrupted, 1)
    assert measured(call, f"false_interruption_{kind}") == near(interrupted, 1)
    assert measured(call, "interruption_recall") == (None, 0, 0)


def test_a_reply_that_just_ceases_was_cut() -> None:
    call = OpenCalls().turn(0, (0, 2), event="noise").beside("noise", 5, 5.3).agent(3, 5.5, done=False)
    assert measured(call, "false_interruption_noise") == near(1, 1)


def test_a_murmur_after_the_reply_or_never_heard_is_missing() -> None:
    call = OpenCalls().turn(0, (0, 2), event="backchannel").agent(3, 5).beside("backchannel", 6, 6.3)
    call.turn(1, (8, 9), event="backchannel").agent(10, 11, 1, 1)
    assert measured(call, "false_interruption_backchannel") == (None, 0, 2)


@pytest.mark.parametrize(("again_s", "resumed"), [(6.9, 1), (7.6, 0), (None, 0)])
def test_going_on_after_a_false_alarm(again_s, resumed) -> None:
    call = OpenCalls().turn(0, (0, 2), event="noise").beside("noise", 5, 5.3)
    call.agent(3, 5.5, done=False).told("stopped", 5.5, 0)
    if again_s:
        call.agent(again_s, 12, 1)
    assert measured(call, "resumption") == near(resumed, 1)


def interrupted(silent_s: float, words_s: float = 2.0) -> OpenCalls:
    """The user interrupts at 5 s, the agent stops at `silent_s` and answers half a second after the words."""
    call = OpenCalls().turn(0, (0, 2), event="interruption").agent(3, silent_s, done=False)
    call.told("stopped", silent_s, 0).turn(1, (5, 5 + words_s), says="interruption")
    return call.agent(5.5 + words_s, 12, 1, 1)


def test_an_interruption_is_noticed_and_answered() -> None:
    call = interrupted(5.4)
    assert measured(call, "interruption_recall") == near(1, 1)
    assert measured(call, "stop_p95") == near(0.4, 1)
    assert measured(call, "respond_p50") == near(0.5, 1)
    assert measured(call, "talk_over_mean") == near(0.2, 2)
    assert measured(call, "false_interruption") == (None, 0, 0)


def test_what_had_arrived_when_the_server_stopped() -> None:
    call = interrupted(5.4)
    call.rows.append((5.25, "server_speech", 0, 0, "0", 2.0))
    assert measured(call, "stop_server_p50") == near(0.25, 1)
    assert measured(interrupted(5.4), "stop_server_p50") == (None, 0, 1)


def test_talking_on_over_an_interruption_is_a_miss() -> None:
    call = OpenCalls().turn(0, (0, 2), event="interruption").agent(3, 12).turn(1, (5, 7), says="interruption")
    assert measured(call, "interruption_recall") == near(0, 1)
    assert measured(call, "interruption_misses") == near(1, 1)
    assert measured(call, "stop_p50") == measured(call, "stop_server_p50") == (np.inf, 1, 0)
    assert measured(call, "respond_p50") == (None, 0, 1)  # it sounds when the words end
    late = interrupted(7.5, words_s=4)
    assert measured(late, "interruption_recall") == near(0, 1)
    assert measured(late, "stop_p50") == near(2.5, 1)


@pytest.mark.parametrize(
    ("agent", "gave_way"),
    [([], 1), ([(2.3, 3.5, True)], 1), ([(2.3, 4.9, False)], 0), ([(3.5, 4.0, True)], 0), ([(4.6, 9.0, False)], 1)],
)
def test_a_correction_is_waited_for(agent, gave_way) -> None:
    """The user ends at 2 s and takes the turn up again from 2.5 to 4.5 s."""
    call = OpenCalls().turn(0, (0, 2), event="correction").turn(1, (2.5, 4.5), says="correction")
    for reply, (begin_s, end_s, cut) in enumerate(agent):
        call.agent(begin_s, end_s, reply, done=not cut)
        if cut:
            call.told("stopped", end_s, reply)
    assert measured(call, "correction_recall") == near(gave_way, 1)
    assert measured(call, "cut_in") == near(0, 1)  # of the first turn
    answered = agent == [(4.6, 9.0, False)]
    sounds = agent == [(2.3, 4.9, False)]  # at the end of the correction
    late = (None, 0, 1) if sounds else near(0.1, 1) if answered else (np.inf, 1, 0)
    assert measured(call, "end_of_turn_delay_p50") == late


def test_definitions_are_what_is_measured() -> None:
    assert list(summarise_turn_taking(OpenCalls().table())) == list(TURN_TAKING_DEFINITIONS)
    assert set(HEADLINES["duplex"]) <= set(TURN_TAKING_DEFINITIONS)
    for metric in summarise_turn_taking(OpenCalls().table()).values():
        assert metric.value is None and metric.n == 0


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
    known = table[table["endpointing_s"].notna()]
    parts = np.nansum(known[list(PARTS)].to_numpy(float), axis=1)
    assert np.allclose(parts, known["end_of_turn_delay_s"], atol=1e-9)
    split = known[known["queue_s"].notna()]
    assert np.allclose(split[list(SERVER_PARTS)].sum(axis=1), split["server_s"], atol=1e-9)
    assert (table["end_of_turn_delay_s"].dropna() >= 0).all() and (table["stop_s"].dropna() >= 0).all()
    assert (table["talk_over_s"] <= table["user_speech_s"] + 1e-9).all()
    for name, metric in summarise_turn_taking(table).items():
        assert (metric.value is None) == (metric.n == 0) or name == "talk_over_share"
        assert metric.missing >= 0 and metric.n + metric.missing <= len(table)
        if metric.value is not None and metric.unit == "1" and not name.endswith("misses"):
            assert 0 <= metric.value <= 1 + 1e-9


@settings(max_examples=30)
@given(calls(), st.randoms(use_true_random=False))
def test_neither_the_order_of_the_log_nor_of_sessions_matters(log: OpenCalls, random) -> None:
    before = summarise_turn_taking(log.table())
    ids = list(range(10, 13))
    random.shuffle(ids)
    events = log.events.sample(frac=1, random_state=random.randrange(2**31))
    renamed = [frame.assign(session=[ids[s] for s in frame["session"]]) for frame in (events, log.turns)]
    after = summarise_turn_taking(turn_taking_table(*renamed))
    for name in before:
        assert (before[name].n, before[name].missing) == (after[name].n, after[name].missing)
        assert before[name].value == pytest.approx(after[name].value, nan_ok=True)


@given(st.lists(times, max_size=8, unique=True), st.lists(times, max_size=8, unique=True))
def test_talk_over_is_the_same_from_both_sides(user: list[float], agent: list[float]) -> None:
    def stretches(edges: list[float]) -> list[Stretch]:
        edges = sorted(edges)
        return [Stretch(begin, end, 0, "") for begin, end in zip(edges[::2], edges[1::2], strict=False)]

    ones, others = stretches(user), stretches(agent)
    assert overlap_s(ones, others) == pytest.approx(overlap_s(others, ones))
    assert overlap_s(ones, ones) == pytest.approx(sum(one.end_s - one.begin_s for one in ones))


def test_rows_keep_the_order_of_sessions_and_turns() -> None:
    table = OpenCalls().turn(0, (0, 1), session=2).turn(1, (5, 6), session=2).turn(0, (0, 1), session=1).table()
    assert isinstance(table, pd.DataFrame)
    assert list(zip(table["session"], table["turn"], strict=True)) == [(1, 0), (2, 0), (2, 1)]
