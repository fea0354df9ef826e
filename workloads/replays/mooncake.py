"""Replay of Mooncake's traces: workload `mooncake`. Times are de-quantised, conversations found by their blocks.

The conversation trace was recorded with a clock of about 3 s: 10 requests share each stamp, which replayed as it
stands makes bursts that no user made. Each request is moved by a uniform draw within the step of the clock; the
header says so. A trace whose stamps differ is left alone.

Mooncake names no sessions, but `hash_ids` name the blocks of 512 tokens of each prompt, and equal ids mean equal
content up to there: `follow` finds requests that continue an earlier one. What other sessions share (a system prompt, a
document) is not kept: the notes say how much reuse that was. A continuation begins with all full blocks of the request
before it, is longer than that and its reply, and comes later. An unrelated request with the same system prompt may look
the same, if the full blocks of the earlier request are only that prompt. Two signs distinguish them:

* strangers part: the holders of the last full block of a conversation are one line, each with room for the one before.
  Where they fork, the block is a shared prefix;
* a conversation has blocks of its own: some request holds its first block and not its last full one. Without such
  a request, a conversation and a system prompt with a few users look alike.

Where a file names sessions in `session_id`, as aiperf's do, these are taken; a request with a `delay` in place of a
time comes that many ms after the reply before it.

Alibaba Cloud's traces (github.com/alibaba-edu/qwen-bailian-usagetraces-anon) have the same columns with times in s,
blocks of 16 tokens and, in `chat_id` and `parent_chat_id`, the request that each continues.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field

from workloads.errors import UserError
from workloads.files.json_file import JsonFile
from workloads.replays.replay import ReplayParams, Rows, clean, replay, split_sessions, timed
from workloads.seeds import stream
from workloads.trace import Trace

Rule = Literal["never", "strict", "likely"]
"""Rule for joining requests: never; only if both signs agree; or unless the first sign speaks against it."""

FORK = "all who hold those blocks cannot be one conversation"
ALIKE = "those blocks may be a prefix that strangers share (conversations=likely joins them)"


@dataclass(frozen=True)
class Log:
    """Requests, one value each: ids of blocks, the first `full` of them full; tokens of prompt and reply; s."""

    blocks: Sequence[Sequence[int]]
    full: Sequence[int]
    input_tokens: Sequence[int]
    output_tokens: Sequence[int]
    time_s: Sequence[float]

    def end(self, row: int) -> int | None:
        return self.blocks[row][self.full[row] - 1] if self.full[row] else None

    def has_room(self, row: int, later: int) -> bool:
        """Return whether `later` has room for prompt and reply of `row`."""
        held = self.input_tokens[row] + self.output_tokens[row]
        return self.input_tokens[later] > held and self.time_s[later] > self.time_s[row]

    @cached_property
    def order(self) -> list[int]:
        return np.argsort(np.asarray(self.time_s), kind="stable").tolist()

    @cached_property
    def holders(self) -> dict[int, list[int]]:
        """Block -> the requests that hold it, in the order of time."""
        holders: dict[int, list[int]] = {}
        for row in self.order:
            for block in dict.fromkeys(self.blocks[row]):
                holders.setdefault(block, []).append(row)
        return holders

    def is_line(self, row: int) -> bool:
        """Return whether all holders of the last full block of `row` can be one conversation, judged by this block.

        First the requests that end in it, each with room for the one before; then the longer ones, all with the same
        next block.
        """
        end, depth = self.end(row), self.full[row]
        assert end is not None
        before, onward = None, None
        for holder in self.holders[end]:
            if before is not None and self.end(before) == end and not self.has_room(before, holder):
                return False
            goes_on = self.end(holder) != end
            following = self.blocks[holder][depth : depth + 1] if goes_on else None
            if onward is not None and following != onward:
                return False
            before, onward = holder, following
        return True

    def is_own(self, row: int) -> bool:
        """Return whether some request holds the first block of `row` and not its last full one."""
        end = self.end(row)
        assert end is not None
        return len(self.holders[self.blocks[row][0]]) > len(self.holders[end])


@dataclass(frozen=True)
class Conversations:
    """Number of the conversation of each request, int64 of shape (requests,), and what was found on the way.

    joined: requests that continue an earlier one; refused: requests that begin with all full blocks of one and
    do not, by reason. shared, kept: share of all blocks that came before at all, and in the same conversation.
    """

    conversation: np.ndarray
    joined: int
    refused: Counter[str]
    shared: float
    kept: float


def follow(log: Log, rule: Rule) -> Conversations:
    """Go through the requests in the order of time and join each to the latest that it continues."""
    conversation = np.arange(len(log.blocks))
    latest: dict[int, int] = {}  # last full block of a conversation so far -> its latest request
    seen: set[int] = set()
    refused: Counter[str] = Counter()
    joined = total = shared = kept = 0
    for row in log.order:
        ids, end = log.blocks[row], log.end(row)
        depth = next((i for i in range(len(ids), 0, -1) if ids[i - 1] in latest), 0)
        if depth and rule != "never":
            before = latest[ids[depth - 1]]
            if not log.is_line(before):
                refused[FORK] += 1
            elif rule == "strict" and not log.is_own(before):
                refused[ALIKE] += 1
            else:
                conversation[row] = conversation[before]
                del latest[ids[depth - 1]]
                joined, kept = joined + 1, kept + depth
        total += len(ids)
        shared += next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
        if end is not None:
            latest[end] = row
    return Conversations(conversation, joined, refused, shared / max(total, 1), kept / max(total, 1))


BLOCK = 512  # tokens per hash id (Mooncake, FAST'25 release)
LINKED_BLOCK = 16  # and in Alibaba Cloud's (qwen-bailian-usagetraces-anon), which name the request before
LINKS = "chat_id", "parent_chat_id"
_SIZES = [2**n for n in range(3, 14)]
SHARED_STAMPS = 0.5  # choice: quantised when more than half of the requests share the stamp of the one before


class MooncakeParams(ReplayParams):
    """Extends ReplayParams by the clock of the recording and the conversations that it does not name."""

    jitter_s: float | None = Field(
        None, ge=0, le=3600, description="move each request by up to so much, s; default: the step of the clock"
    )
    block_tokens: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        exclude_if=lambda value: value is None,
        description="tokens that an id of hash_ids stands for; default: 512, or 16 where requests name the one before",
    )
    conversations: Rule = Field(
        "strict",
        description="join requests by their blocks: never, where they tell a conversation from strangers under one "
        "prompt, or also where they do not but nothing speaks against it",
    )


def mooncake(params: MooncakeParams, seed: int) -> Trace:
    """Typed requests near their recorded times; UserError names file, line and field of bad input."""
    notes: list[str] = []
    rows = read_mooncake(params, notes)
    if rows.delay_s is None:
        rows.time_s = _dequantised(rows.time_s, params.jitter_s, seed, notes)
    return replay("mooncake", rows, params, seed, notes)


def read_mooncake(params: MooncakeParams, notes: list[str]) -> Rows:
    """Return the answered requests of a file in the order of time."""
    file = JsonFile(params.path, params.limit, params.skip_bad)
    linked = all(name in file.columns for name in LINKS)
    session = np.full(len(file), "", object)
    named, delay = file.find(["session_id"]), file.find(["delay"])
    if named:
        session = file.text(named)
    column = file.find(["timestamp"]) if named and delay else file.require(["timestamp"])
    time_s, delay_s = timed(file, column, delay if named else None, session, params, "s" if linked else "ms", notes)
    inputs = file.counts(file.require(["input_length"]))
    outputs = file.counts(file.require(["output_length"]))
    column = file.find(["hash_ids"])
    if column:
        blocks = [ids if _is_list_of_ids(ids) else None for ids in file.values(column, list, "a list")]
        file.refuse(np.array([ids is None for ids in blocks]), column, "is not a list of whole numbers")
        counts = np.array([len(ids or ()) for ids in blocks])
        block = params.block_tokens or (LINKED_BLOCK if linked else BLOCK)
        if params.block_tokens is None:
            _check_blocks(file, counts, inputs, block)
        file.refuse(counts > -(-inputs // block), column, "has more blocks than the input has")
        blocks = [ids if ids and good else [] for ids, good in zip(blocks, file.good, strict=True)]
        if not linked and not named:
            session = _conversations(blocks, inputs, outputs, time_s, block, params.conversations, notes)
    if linked:
        session = _linked(file, time_s, params.conversations, notes)
    rows = clean(Rows(time_s, session, inputs, outputs, None, delay_s), file, notes, ["turn"])
    return split_sessions(rows, None if named else "whole", notes)


def _check_blocks(file: JsonFile, counts: np.ndarray, inputs: np.ndarray, block: int) -> None:
    """UserError if blocks of another size fit the inputs and those of `block` tokens do not."""

    def share(size: int) -> float:
        """Return the share of requests whose number of blocks fits their input: full blocks, or also a partial last
        block."""
        n, tokens = counts[file.good & (counts > 0)], inputs[file.good & (counts > 0)]
        return float(np.mean((n == tokens // size) | (n == -(-tokens // size)))) if len(n) else 1.0

    if share(block) >= 0.5:
        return
    best = max(_SIZES, key=share)
    if share(best) > 0.9:
        raise UserError(
            f"{file.path}: blocks of {block} tokens do not fit the inputs: are they of {best} tokens? "
            f"--set block_tokens={best} (or --set block_tokens={block}, if not)."
        )


def _linked(file: JsonFile, time_s: np.ndarray, rule: Rule, notes: list[str]) -> np.ndarray:
    """Return the conversation of each request, by the request that it names as its predecessor."""
    ids, parents = (file.optional(file.require([name])) for name in LINKS)
    valid = [isinstance(id, int | str) for id in ids]
    file.refuse(~np.array(valid), LINKS[0], "is not a number or a text")
    place: dict[object, int] = {}
    for row in np.flatnonzero(file.good).tolist():
        if place.setdefault(ids[row], row) != row:
            file.refuse(np.arange(len(ids)) == row, LINKS[0], "is that of an earlier request, too")
    conversation, continued = np.arange(len(ids)), set[int]()
    forks = lost = joined = 0
    for row in np.argsort(time_s, kind="stable").tolist():
        parent = parents[row]
        if rule == "never" or not file.good[row] or parent in (None, "", -1, "-1"):
            continue
        before = place.get(parent) if isinstance(parent, int | str) else None
        if before is None or not file.good[before] or time_s[before] >= time_s[row]:
            lost += 1
        elif before in continued:
            forks += 1
        else:
            conversation[row] = conversation[before]
            continued.add(before)
            joined += 1
    notes.append(f"conversations: {joined} of {len(ids)} requests continue the one that {LINKS[1]} names")
    if lost:
        notes.append(f"{lost} requests name one that is not in the file before them: they begin a conversation")
    if forks:
        notes.append(f"{forks} requests continue one that another continues already: they begin a conversation")
    return conversation.astype(str).astype(object)


def _is_list_of_ids(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _conversations(
    blocks: list[list[int]],
    inputs: np.ndarray,
    outputs: np.ndarray,
    time_s: np.ndarray,
    block: int,
    rule: Rule,
    notes: list[str],
) -> np.ndarray:
    full = [min(tokens // block, len(ids)) for tokens, ids in zip(inputs.tolist(), blocks, strict=True)]
    result = follow(Log(blocks, full, inputs.tolist(), outputs.tolist(), time_s.tolist()), rule)
    notes.append(
        f"conversations={rule}: {result.joined} of {len(blocks)} requests joined to an earlier one whose full blocks "
        f"they begin with; {result.shared:.1%} of the blocks came before, {result.kept:.1%} in the same conversation; "
        "sharing between others is not kept"
    )
    notes += [f"{n} requests not joined to such a one: {why}" for why, n in result.refused.most_common()]
    return result.conversation.astype(str).astype(object)


def _dequantised(time_s: np.ndarray, jitter_s: float | None, seed: int, notes: list[str]) -> np.ndarray:
    """Times moved by U(0, jitter_s), handed out in the order of the file so that no two requests swap."""
    steps = np.diff(np.unique(time_s))
    if jitter_s is None:
        quantised = len(steps) and np.mean(np.diff(time_s) == 0) > SHARED_STAMPS
        jitter_s = float(np.median(steps)) if quantised else 0.0
    if jitter_s == 0:
        return time_s
    notes.append(
        f"recorded on {len(steps) + 1} distinct times, {np.median(steps) if len(steps) else 0:g} s apart: "
        f"each request moved by a uniform draw within {jitter_s:g} s"
    )
    return np.sort(time_s + jitter_s * stream(seed, "dequantise").random(len(time_s)))
