"""The exchanges in a file of conversations, their lengths or their text: ShareGPT's layouts and others like them.

    V3          JSON list of {"id", "conversations": [{"from": "human" | "gpt", "value"}]}
    chat        JSON list or lines of {"conversations" | "conversation" | "messages": [{"role", "content"}]}
    shareAI     JSON lines of {"conversation_id", "conversation": [{"human", "assistant"}]}
    custom      JSON lines of {"prompt", "output_tokens"}, as vLLM's benchmark takes them: an exchange each
    lengths     CSV of conv_id, msg_index, from, n_chars: V3 without its texts

All may be packed, and those of JSON may be Parquet. V3 is cut into pieces of some 2,000 tokens, so a third of its
conversations begin with an answer to a question that is in another piece. An exchange is a human's message followed by
the model's. Every message that is in none is counted in the notes by the reason. With their text, conversations also
have their system prompts, content parts, and a last question without an answer.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import UserError, printable
from workloads.files.any_file import open_rows
from workloads.files.csv_file import CsvFile
from workloads.files.row_file import RowFile

# The V3 sample's answers have a median of 1,224 characters, ShareGPT-90k's answers one of 300 tokens.
CHARS_PER_TOKEN = 4.0
CJK_PER_TOKEN = 1.5  # choice: tokenizers of today give a Chinese character some two thirds of a token
ROLES = {"human": "human", "user": "human", "gpt": "model", "chatgpt": "model", "assistant": "model"}
SYSTEM = ("system", "developer")
TALKS = ("conversations", "conversation", "messages")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

Message = tuple[str, float]  # role, tokens


@dataclass(frozen=True)
class Exchanges:
    """Questions with their answers, arrays of shape (exchanges,): conversation 0.., turn in it 0.., tokens."""

    conversation: np.ndarray
    turn: np.ndarray
    prompt_tokens: np.ndarray
    reply_tokens: np.ndarray


def tokens_of(text: str) -> float:
    """About how many tokens a text has."""
    cjk = len(_CJK.findall(text))
    return (len(text) - cjk) / CHARS_PER_TOKEN + cjk / CJK_PER_TOKEN


def read_sharegpt(path: Path, notes: list[str], skip_bad: bool = False) -> Exchanges:
    """The exchanges of a file, in its order; UserError names file, entry and field of bad input."""
    left_out: Counter[str] = Counter()
    file = open_rows(path, None, skip_bad)
    conversations = _lengths(file) if isinstance(file, CsvFile) else _texts(file, left_out)
    notes += file.notes()
    notes += [f"{n} parts of messages left out: {kind}" for kind, n in sorted(left_out.items())]
    if unused := file.unused(("id", "conv_id", "n_words")):
        notes.append(f"columns that are not used: {printable(', '.join(unused))}")
    if not file.good.any():
        raise file.nothing_left()
    return _exchanges(conversations, path, notes)


def _texts(file: RowFile, left_out: Counter[str]) -> list[list[Message]]:
    column = file.require([*TALKS, "prompt"])
    if column == "prompt":
        return [[("human", tokens_of(text)), ("assistant", float(reply))] for text, reply in _custom(file)]
    return [
        [(role, tokens_of(text_of(content, left_out) or "")) for role, content in talk] for talk in _talks(file, column)
    ]


def _talks(file: RowFile, column: str) -> list[list[tuple[str, Any]]]:
    """Return the messages of each good conversation as (role, content): a text, or a list of parts."""
    talks = [_talk(talk) for talk in file.values(column, list, "a list of messages")]
    wanted = "'from' and 'value', 'role' and 'content', or 'human' and 'assistant'"
    file.refuse(np.array([talk is None for talk in talks]), column, f"has messages without the texts {wanted}")
    return [talk for talk in talks if talk is not None]


def _talk(messages: list[Any] | None) -> list[tuple[str, Any]] | None:
    """The messages of a conversation, "" for a call of tools without text; None when one of them has no speaker or no
    content."""
    if messages is None or not all(isinstance(message, dict) for message in messages):
        return None
    turns: list[tuple[Any, Any]] = []
    for message in messages:
        if "human" in message:
            turns += [(role, message[role]) for role in ("human", "assistant") if role in message]
        elif "value" in message or "content" in message or message.get("tool_calls"):
            turns.append((_either(message, "from", "role"), _either(message, "value", "content")))
        else:
            return None
    if not all(isinstance(role, str) and text_of(content, Counter()) is not None for role, content in turns):
        return None
    return [(role, "" if content is None else content) for role, content in turns]


def text_of(content: Any, left_out: Counter[str]) -> str | None:
    """Return the text of a message: as it is, of its parts of type text, or "" of a call of tools, which has none; None
    for anything else. Parts of other types are counted in `left_out`."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return None
    texts = [part.get("text") for part in content]
    left_out.update(
        str(part.get("type")) for part, text in zip(content, texts, strict=True) if not isinstance(text, str)
    )
    return "".join(text for text in texts if isinstance(text, str))


def _either(message: dict[str, Any], name: str, other: str) -> Any:
    value = message.get(name)
    return message.get(other) if value is None else value


def _custom(file: RowFile) -> list[tuple[str, int]]:
    """Return each good prompt with the tokens of its reply."""
    prompts = file.values("prompt", str, "a text")
    replies = file.counts(file.require(["output_tokens"]))
    rows = zip(prompts, replies.tolist(), file.good, strict=True)
    return [(prompt, reply) for prompt, reply, good in rows if good]


def _lengths(file: RowFile) -> list[list[Message]]:
    names, roles = file.text(file.require(["conv_id"])), file.text(file.require(["from"]))
    order = file.counts(file.require(["msg_index"]))
    tokens = file.counts(file.require(["n_chars"])) / CHARS_PER_TOKEN
    talks: dict[str, list[tuple[int, str, float]]] = {}
    columns = [values[file.good].tolist() for values in (names, order, roles, tokens)]
    for name, index, role, length in zip(*columns, strict=True):
        talks.setdefault(name, []).append((index, role, length))
    return [[(role, n) for _, role, n in sorted(talk, key=itemgetter(0))] for talk in talks.values()]


def _exchanges(conversations: Iterable[list[Message]], path: Path, notes: list[str]) -> Exchanges:
    left_out: Counter[str] = Counter()
    exchanges: list[tuple[int, int, float, float]] = []
    total = without = 0
    for conversation, talk in enumerate(conversations):
        total += len(talk)
        pairs = _pairs(talk, left_out)
        exchanges += [(conversation, turn, *pair) for turn, pair in enumerate(pairs)]
        without += not pairs
    if not exchanges:
        raise UserError(f"{path}: no question with an answer in any conversation; give a file of dialogues.")
    notes += [f"{n} of {total} messages left out: {kind}" for kind, n in sorted(left_out.items())]
    if without:
        notes.append(f"{without} conversations without a question and its answer")
    conversation, turn, prompts, replies = (np.array(values) for values in zip(*exchanges, strict=True))
    tokens = [np.maximum(np.ceil(values), 1).astype(np.int64) for values in (prompts, replies)]
    return Exchanges(conversation, turn, *tokens)


def _pairs(talk: list[Message], left_out: Counter[str]) -> list[tuple[float, float]]:
    """(question, answer) tokens of a conversation; counts its other messages in `left_out`."""
    pairs: list[tuple[float, float]] = []
    question: float | None = None
    has_question = False
    for role, tokens in talk:
        speaker = ROLES.get(role.lower())
        if role.lower() in SYSTEM:
            left_out["system prompt, which workload conversations sends"] += 1
        elif speaker is None:
            left_out[f"said by {printable(role, 40)!r}, neither human nor model"] += 1
        elif speaker == "human":
            left_out["question without an answer"] += question is not None
            question, has_question = tokens, True
        elif question is None:
            left_out["second answer in a row" if has_question else "answer at the start"] += 1
        elif question <= 0 or tokens <= 0:
            left_out["empty, or paired with an empty one"] += 2
            question = None
        else:
            pairs.append((question, tokens))
            question = None
    left_out["question without an answer"] += question is not None
    left_out += Counter()  # drops the kinds that did not occur
    return pairs


@dataclass(frozen=True)
class ChatExchange:
    """The messages up to one reply, and the recorded reply: `said` has roles and contents, text or content parts, as a
    chat completion takes them. `reply`: None where none is recorded; `reply_tokens`: about how many it has, None where
    that is not known."""

    said: tuple[tuple[str, Any], ...]
    reply: Any
    reply_tokens: int | None

    @property
    def prompt_tokens(self) -> int:
        return max(1, ceil(sum(tokens_of(plain_text(content)) for _, content in self.said)))


def plain_text(content: Any) -> str:
    """Return the text of a message's content, which may be parts."""
    return text_of(content, Counter()) or ""


def read_chats(path: Path, notes: list[str], skip_bad: bool = False) -> list[list[ChatExchange]]:
    """Return the conversations of a file with their text, in its order; UserError names file, entry and field of bad
    input."""
    file = open_rows(path, None, skip_bad)
    column = file.require([*TALKS, "prompt"])
    left_out: Counter[str] = Counter()
    if column == "prompt":
        chats = [[ChatExchange((("user", text),), None, tokens)] for text, tokens in _custom(file)]
    else:
        chats = [_chat(talk, left_out) for talk in _talks(file, column)]
    notes += file.notes()
    if not file.good.any():
        raise file.nothing_left()
    chats = [chat for chat in chats if chat]
    if not chats:
        raise UserError(f"{path}: no conversation has a question; give a file of dialogues.")
    notes += [f"{count} messages left out: {kind}" for kind, count in sorted(left_out.items())]
    return chats


def _chat(talk: list[tuple[str, Any]], left_out: Counter[str]) -> list[ChatExchange]:
    """Return the exchanges of a conversation; counts its other messages in `left_out`."""
    exchanges: list[ChatExchange] = []
    said: list[tuple[str, Any]] = []
    for role, content in talk:
        speaker = "system" if role.lower() in SYSTEM else ROLES.get(role.lower())
        asked = any(each == "user" for each, _ in said)
        if speaker is None:
            left_out["said by neither human nor model"] += 1
        elif not plain_text(content):
            left_out["without text"] += 1
        elif speaker == "system":
            said.append(("system", content))
        elif speaker == "human":
            left_out["question without an answer"] += asked
            said = [each for each in said if each[0] != "user"] + [("user", content)]
        elif not asked:
            left_out["second answer in a row" if exchanges else "answer at the start"] += 1
        else:
            tokens = max(1, ceil(tokens_of(plain_text(content))))
            exchanges.append(ChatExchange(tuple(said), content, tokens))
            said = []
    if any(role == "user" for role, _ in said):
        exchanges.append(ChatExchange(tuple(said), None, None))
    left_out += Counter()  # drops the kinds that did not occur
    return exchanges
