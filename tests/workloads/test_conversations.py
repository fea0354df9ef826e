"""Conversations told by blocks: a user who goes on is found, strangers under one system prompt stay strangers."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.registry import make_trace
from workloads.replays.mooncake import ALIKE, BLOCK, FORK, Log, Rule, follow

Request = tuple[str, int, int]  # who asks, tokens of the prompt, tokens of the reply


def log(requests: Sequence[Request], system_tokens: int) -> Log:
    """A log of requests one second apart, each under the same system prompt and with all that its user said before."""
    ids: dict[tuple[object, ...], int] = {}
    blocks = []
    for row, (who, prompt, _) in enumerate(requests):
        ends = [min(end, prompt) for end in range(BLOCK, prompt + BLOCK, BLOCK)]
        # What a block holds: the system prompt, the user's words, and in a last one that is not full nothing else.
        held = [("all" if end <= system_tokens else who, end, row if end % BLOCK else "") for end in ends]
        blocks.append([ids.setdefault(key, len(ids)) for key in held])
    full = [prompt // BLOCK for _, prompt, _ in requests]
    return Log(blocks, full, [r[1] for r in requests], [r[2] for r in requests], list(range(len(requests))))


def joined(found: Log, rule: Rule) -> list[int]:
    """For each request the first of its conversation."""
    return follow(found, rule).conversation.tolist()


@settings(max_examples=60)
@given(
    system_blocks=st.integers(1, 6),
    asked=st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 300)), min_size=2, max_size=12),
)
def test_strangers_under_one_system_prompt_are_never_joined(system_blocks: int, asked: list[tuple[int, int]]) -> None:
    system = system_blocks * BLOCK
    requests = [(str(who), system + own, reply) for who, (own, reply) in enumerate(asked)]
    assert joined(log(requests, system), "strict") == list(range(len(requests)))


@settings(max_examples=60)
@given(
    system_blocks=st.integers(1, 4),
    users=st.lists(
        st.tuples(st.integers(BLOCK, 2000), st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900)), max_size=5)),
        min_size=2,
        max_size=5,
    ),
    data=st.data(),
)
def test_everyone_who_goes_on_is_found(system_blocks: int, users: list, data: st.DataObject) -> None:
    """Each begins with a block of his own; whose turn it is next is any order."""
    system = system_blocks * BLOCK
    talks = []
    for who, (first, rounds) in enumerate(users):
        prompt, reply, talk = system + first, 50, []
        talk.append((str(who), prompt, reply))
        for new, answer in rounds:
            prompt += reply + new
            reply = answer
            talk.append((str(who), prompt, reply))
        talks.append(talk)
    order = data.draw(st.permutations([who for who, talk in enumerate(talks) for _ in talk]))
    turns = [iter(talk) for talk in talks]
    requests = [next(turns[who]) for who in order]
    first = {who: row for row, who in reversed(list(enumerate(order)))}
    assert joined(log(requests, system), "strict") == [first[who] for who in order]


def test_two_under_one_prompt_are_joined_only_on_request() -> None:
    """3,038 and 3,133 tokens with 5 blocks in common: one user who goes on, or two with one system prompt."""
    two = log([("a", 3038, 20), ("b", 3133, 19)], 5 * BLOCK)
    strict, likely, never = (follow(two, rule) for rule in ("strict", "likely", "never"))
    assert (strict.joined, dict(strict.refused)) == (0, {ALIKE: 1})
    assert (likely.joined, dict(likely.refused)) == (1, {})
    assert (never.joined, dict(never.refused)) == (0, {})


@pytest.mark.parametrize(
    ("second", "third"),
    [
        (3040, 3133),  # the second cannot hold the first and its reply of 20 tokens
        (3133, 3100),  # the third is shorter than the second, so it is nobody's continuation
        (3584, 3700),  # two go on from the system prompt, each with a full block of his own
    ],
)
def test_a_third_under_the_prompt_shows_that_it_is_one(second: int, third: int) -> None:
    three = log([("a", 3038, 20), ("b", second, 19), ("c", third, 5)], 5 * BLOCK)
    found = follow(three, "likely")
    assert (found.joined, set(found.refused)) == (0, {FORK})


def test_a_request_that_comes_at_once_is_no_continuation() -> None:
    at_once = log([("a", 1100, 20), ("a", 1700, 20)], 0)
    assert follow(at_once, "likely").joined == 1
    stamped = Log(at_once.blocks, at_once.full, at_once.input_tokens, at_once.output_tokens, [0.0, 0.0])
    assert follow(stamped, "likely").joined == 0


@pytest.mark.parametrize(("conversations", "sessions"), [("never", 22), ("strict", 20), ("likely", 20)])
def test_a_trace_of_many_under_one_prompt(tmp_path: Path, conversations: str, sessions: int) -> None:
    """Twenty users under a system prompt of 5 blocks, most with short questions; one of them goes on twice."""
    fresh = count(5)
    lines = []
    for user in range(20):
        tokens = 5 * BLOCK + 40 + 25 * (user % 7)
        lines.append((1000 * user, tokens, 30, [0, 1, 2, 3, 4, next(fresh)]))
    own = next(fresh)
    lines[3] = (3000, 6 * BLOCK + 10, 30, [0, 1, 2, 3, 4, own, next(fresh)])
    lines.append((50_000, 6 * BLOCK + 80, 100, [0, 1, 2, 3, 4, own, next(fresh)]))
    lines.append((60_000, 7 * BLOCK + 80, 100, [0, 1, 2, 3, 4, own, next(fresh), next(fresh)]))
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(json.dumps(dict(zip(names, line, strict=True))) for line in lines))
    trace = make_trace("mooncake", {"path": str(path), "conversations": conversations}, 0)
    assert len(trace.sessions) == sessions
    notes = trace.header.notes
    assert notes[0].startswith(f"conversations={conversations}: {22 - sessions} of 22 requests joined to an earlier")
    assert notes[1:-1] == ([] if conversations == "never" else [f"19 requests not joined to such a one: {FORK}"])
    if sessions == 20:
        talk = next(session for session in trace.sessions if len(session.turns) == 3)
        assert [turn.history_tokens for turn in talk.turns] == [0, 6 * BLOCK + 40, 6 * BLOCK + 180]
