import json
from collections.abc import Sequence
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
def test_users_with_one_system_prompt_are_never_joined(system_blocks: int, asked: list[tuple[int, int]]) -> None:
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
def test_every_request_that_continues_a_conversation_is_joined(
    system_blocks: int, users: list, data: st.DataObject
) -> None:
    """Each begins with a block of his own; whose turn it is next is any order."""
    system = system_blocks * BLOCK
    talks: dict[int, list[Request]] = {}
    for who, (first, rounds) in enumerate(users):
        talk = [(str(who), system + first, 50)]
        for new, answer in rounds:
            _, prompt, reply = talk[-1]
            talk.append((str(who), prompt + reply + new, answer))
        talks[who] = talk
    order = data.draw(st.permutations([who for who, talk in talks.items() for _ in talk]))
    requests = [talks[who].pop(0) for who in order]
    assert joined(log(requests, system), "strict") == [order.index(who) for who in order]


def test_two_requests_with_one_prefix_are_joined_only_by_likely() -> None:
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
def test_a_third_request_under_a_system_prompt_shows_that_users_are_strangers(second: int, third: int) -> None:
    three = log([("a", 3038, 20), ("b", second, 19), ("c", third, 5)], 5 * BLOCK)
    found = follow(three, "likely")
    assert (found.joined, set(found.refused)) == (0, {FORK})


def test_a_request_at_the_same_time_is_no_continuation() -> None:
    at_once = log([("a", 1100, 20), ("a", 1700, 20)], 0)
    assert follow(at_once, "likely").joined == 1
    stamped = Log(at_once.blocks, at_once.full, at_once.input_tokens, at_once.output_tokens, [0.0, 0.0])
    assert follow(stamped, "likely").joined == 0


@pytest.mark.parametrize(("conversations", "sessions"), [("never", 4), ("strict", 2), ("likely", 2)])
def test_a_trace_joins_the_requests_of_a_user_and_notes_the_rest(
    tmp_path: Path, conversations: str, sessions: int
) -> None:
    """Two users under a system prompt of 5 blocks; the first goes on twice, with blocks 13, 30 and so on of his own."""
    system = [0, 1, 2, 3, 4]
    requests = [
        (0, 7 * BLOCK + 10, [*system, 13, 30, 31]),
        (1000, 5 * BLOCK + 40, [*system, 14]),
        (50_000, 7 * BLOCK + 80, [*system, 13, 30, 32]),
        (60_000, 8 * BLOCK + 80, [*system, 13, 30, 33, 34]),
    ]
    lines = [{"timestamp": t, "input_length": n, "output_length": 30, "hash_ids": ids} for t, n, ids in requests]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    trace = make_trace("mooncake", {"path": str(path), "conversations": conversations}, 0)
    assert len(trace.sessions) == sessions
    joined = 4 - sessions
    assert trace.header.notes[0].startswith(f"conversations={conversations}: {joined} of 4 requests joined to an")
    longest = max(trace.sessions, key=lambda session: len(session.turns))
    history = [0, 7 * BLOCK + 40, 7 * BLOCK + 110] if joined else [0]
    assert [turn.history_tokens for turn in longest.turns] == history
