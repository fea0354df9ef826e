"""Conversations of a file, their own text turn by turn: a session is a conversation, and a turn one of its questions.

A trace has lengths alone, about four characters a token; `content` numbers the exchange of the file whose text a live
client sends.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from workloads.distributions import arrivals, speech
from workloads.errors import existing_file
from workloads.files.sharegpt_file import ChatExchange, read_chats
from workloads.seeds import Streams
from workloads.trace import check_turns
from workloads.workload_params import UserParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workloads.trace import Trace

NAME = "conversations"
UNKNOWN_REPLY = 128
"""Tokens asked for where no reply is recorded. [chosen]"""


class ConversationParams(UserParams):
    """Parameters of workload `conversations`."""

    path: Path = Field(description="conversations (.json, .jsonl): ShareGPT's layouts, messages of role and content")
    conversations: int = Field(100, ge=1, le=1_000_000, description="number of conversations that begin")
    rate: float = Field(1.0, ge=1e-6, le=1e6, description="conversations that begin per second")
    turns: int | None = Field(None, ge=1, le=100_000, description="most turns of a conversation; default: all")
    think_s: float = Field(0.0, ge=0, le=1e6, description="time between a reply and the next question, s")
    max_reply_tokens: int | None = Field(None, ge=1, le=10_000_000, description="longest reply; default: as recorded")
    skip_bad: bool = Field(False, description="go on past bad rows of the file, and note how many there were")


def conversations(params: ConversationParams, seed: int) -> Trace:
    """Return the trace of conversations drawn from the file: all of them once, in an order of their own, before any
    comes again. UserError names file, entry and field of bad input."""
    from workloads.trace import Trace

    streams = Streams(seed)
    chats, notes = _chats(params.path, params.skip_bad)
    notes, n = [*notes], params.conversations
    order = streams("order")
    chosen = np.concatenate([order.permutation(len(chats)) for _ in range(0, n, len(chats))])[:n]
    begins = np.cumsum([0, *map(len, chats)])
    lengths = np.array([min(len(chats[each]), params.turns or len(chats[each])) for each in chosen])
    check_turns(float(lengths.sum()), "ask for fewer conversations or turns")
    session = np.repeat(np.arange(n), lengths)
    turn = np.concatenate([np.arange(length) for length in lengths])
    content = begins[chosen][session] + turn
    flat = [exchange for chat in chats for exchange in chat]
    replies = np.array([flat[each].reply_tokens or UNKNOWN_REPLY for each in content])
    most = params.max_reply_tokens
    if most is not None:
        notes.append(f"{np.mean(replies > most):.1%} of the replies cut to {most} tokens")
        replies = np.minimum(replies, most)
    if n > len(chats):
        notes.append(f"{n} conversations of {len(chats)} in the file: some begin more than once")
    first = turn == 0
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(first, arrivals.poisson(streams("arrivals"), params.rate, n)[session], np.nan),
        "modality": "text",
        "input_tokens": np.array([flat[each].prompt_tokens for each in content]),
        "output_tokens": replies,
        "think_s": np.where(first, np.nan, params.think_s),
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n)[session],
        "content": content,
    }
    return Trace.made(NAME, params, streams, columns, notes)


def texts_of(trace: Trace) -> Mapping[int, ChatExchange]:
    """Return the exchanges whose text the turns of the trace have, by their content; none where it has no text.
    UserError where the file is gone, or is another one than it was."""
    header = trace.header
    if header.generator != NAME:
        return {}
    chats, _ = _chats(Path(header.params["path"]), header.params["skip_bad"])
    flat = [exchange for chat in chats for exchange in chat]
    _read.cache_clear()  # a load generator needs those of its own users
    return {content: flat[content] for content in set(trace.columns()["content"].astype(int).tolist())}


def _chats(path: Path, skip_bad: bool) -> tuple[list[list[ChatExchange]], list[str]]:
    stat = existing_file(path).stat()
    return _read(path, skip_bad, stat.st_mtime_ns, stat.st_size)


@lru_cache(1)
def _read(path: Path, skip_bad: bool, *_version: int) -> tuple[list[list[ChatExchange]], list[str]]:
    notes: list[str] = []
    return read_chats(path, notes, skip_bad), notes
