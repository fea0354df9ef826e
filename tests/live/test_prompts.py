"""The words of typed turns where a trace has no text."""

from collections import Counter

from harness.live.endpoints.prompts import WORDS, words


def test_words_come_as_often_as_in_english_and_no_two_turns_begin_alike() -> None:
    prompts = [words(7, session, 0, 200) for session in range(100)]

    counts = Counter(word for prompt in prompts for word in prompt.split())
    assert sum(counts.values()) == 20_000 and counts.keys() <= {*WORDS}
    assert counts["the"] > counts["would"] > counts["among"] and 0.04 < counts["the"] / 20_000 < 0.08
    assert len({" ".join(prompt.split()[:16]) for prompt in prompts}) == 100
    assert words(7, 3, 0, 200) == prompts[3] != words(8, 3, 0, 200)
