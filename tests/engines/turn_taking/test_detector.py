"""Turns found in edges of speech: starts, ends, interruptions and ignored speech."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.turn_taking.detector import Decision, TurnDetector
from engines.turn_taking.endpointing import WORDS_PER_S, Accuracy, InterruptionGate, SilenceTimeout, SimulatedSemantic

EVERYTHING = InterruptionGate()
Said = list[tuple[Decision, float]]


def hear(
    detector: TurnDetector,
    stretches: list[tuple[float, float]],
    replying: tuple[float, float] = (0.0, 0.0),
    ends: tuple[bool, ...] = (),
) -> Said:
    """Decisions of the detector, which is asked at `next_s`. `stretches`: speech, s. `replying`: the reply, s. `ends`:
    whether each silence really ends the turn."""
    said: Said = []

    def under_way(at_s: float) -> bool:
        return replying[0] <= at_s < replying[1]

    def ask(until_s: float) -> None:
        while (next_s := detector.next_s()) is not None and next_s < until_s:
            while (decision := detector.due(next_s, under_way(next_s))) is not None:
                said.append((decision, pytest.approx(next_s)))  # type: ignore[arg-type]

    for index, (begin_s, end_s) in enumerate(stretches):
        ask(begin_s)
        detector.speech(begin_s, under_way(begin_s))
        ask(end_s)
        detector.ends_turn = ends[index] if ends else True
        detector.silence(end_s, under_way(end_s))
    ask(1e9)
    return said


def test_speech_over_a_reply_interrupts_at_once_unless_a_gate_holds_it_back() -> None:
    def found(gate: InterruptionGate | None, speech_s: float) -> Said:
        return hear(TurnDetector(SilenceTimeout(0.5), gate), [(1.0, 1.0 + speech_s)], (0.0, 9.0))

    assert found(EVERYTHING, 0.3) == [("started", 1.0), ("interrupt", 1.0), ("ended", 1.8)]
    assert found(InterruptionGate(0.5), 0.3) == [("started", 1.0), ("ignored", 1.8)]
    assert found(InterruptionGate(0.5), 0.7) == [("started", 1.0), ("interrupt", 1.5), ("ended", 2.2)]
    assert found(InterruptionGate(min_words=2), 0.7) == [("started", 1.0), ("ignored", 2.2)]
    two_words_s = 2 / WORDS_PER_S
    assert found(InterruptionGate(0.1, 2), 1.0)[1] == ("interrupt", pytest.approx(1 + two_words_s))
    assert found(None, 0.7) == [("started", 1.0), ("ended", 2.2)]


def test_the_gate_counts_speech_across_short_silences_and_only_over_a_reply() -> None:
    gate = InterruptionGate(0.5)
    found = hear(TurnDetector(SilenceTimeout(0.5), gate), [(1.0, 1.3), (1.5, 2.5)], (0.0, 9.0))
    assert found == [("started", 1.0), ("interrupt", 1.7), ("ended", 3.0)]
    assert hear(TurnDetector(SilenceTimeout(0.5), gate), [(1.0, 1.2)]) == [("started", 1.0), ("ended", 1.7)]
    # The reply ends while the user speaks: the floor is free. Afterwards it stays with who was never given it.
    found = hear(TurnDetector(SilenceTimeout(0.5), gate), [(1.0, 1.3)], (0.0, 1.1))
    assert found == [("started", 1.0), ("ended", 1.8)]
    found = hear(TurnDetector(SilenceTimeout(0.5), gate), [(1.0, 1.3)], (0.0, 1.5))
    assert found == [("started", 1.0), ("ignored", 1.8)]


@pytest.mark.parametrize(
    ("true_positive", "false_positive", "expected"),
    [
        (1, 0, [("started", 0.0), ("ended", 4.0 + 0.2 + 0.06)]),  # it never errs
        (
            0,
            1,
            [("started", 0.0), ("ended", 1.0 + 0.2 + 0.06), ("started", 3.0), ("ended", 4.0 + 4.0)],
        ),  # it always does
    ],
)
def test_a_semantic_detector_ends_turns_as_it_is_right_or_wrong(
    true_positive: int, false_positive: int, expected: Said
):
    """The silence from 1 to 3 s is a hesitation. The detector is asked 0.2 s into a silence and answers 0.06 s later; a
    turn that it finds unfinished is over after 4 s."""
    accuracy = Accuracy(true_positive, false_positive)
    endpointing = SimulatedSemantic(Random(0), 4.0, accuracy, inference_s=0.06, ask_s=0.2)
    found = hear(TurnDetector(endpointing, EVERYTHING), [(0.0, 1.0), (3.0, 4.0)], ends=(False, True))
    assert found == expected


gaps = st.lists(st.floats(0.01, 3.0), min_size=2, max_size=16).filter(lambda parts: len(parts) % 2 == 0)


@given(gaps, st.floats(0.1, 1.5), st.none() | st.floats(0.0, 1.0), st.floats(0.0, 20.0), st.floats(0.0, 20.0))
def test_every_turn_that_starts_is_over_once_and_only_replies_are_interrupted(
    parts: list[float], timeout_s: float, gate_s: float | None, begin_s: float, length_s: float
) -> None:
    times = [sum(parts[: count + 1]) for count in range(len(parts))]
    stretches = list(zip(times[::2], times[1::2], strict=True))
    gate = None if gate_s is None else InterruptionGate(gate_s)
    reply = begin_s, begin_s + length_s
    found = [
        (kind, at.expected)  # type: ignore[attr-defined]
        for kind, at in hear(TurnDetector(SilenceTimeout(timeout_s), gate), stretches, reply)
    ]
    kinds = [kind for kind, _ in found]
    turns = 1 + sum(after[0] - before[1] > timeout_s + 1e-5 for before, after in pairwise(stretches))
    assert kinds.count("started") == kinds.count("ended") + kinds.count("ignored")
    assert turns <= kinds.count("started") <= len(stretches)
    assert all(before <= after for (_, before), (_, after) in pairwise(found))
    assert all(reply[0] <= at < reply[1] for kind, at in found if kind == "interrupt")
    if gate is None:
        assert not {"interrupt", "ignored"} & set(kinds)
