"""A user's input before the reply begins: audio in the buffer, and items committed or typed."""

from collections import deque
from typing import Any, NamedTuple

from engines.endpoint.lengths import typed_tokens
from engines.endpoint.protocol import Refusal

MOST_S = 120.0
"""[chosen] audio of one turn at most: 6 MB at 24 kHz, and longer than anybody speaks at once."""

LEAST_S = 0.1
"""Audio of a commit at least: [config] OpenAI's limit."""

MOST_ITEMS = 256
"""[chosen] items before a reply at most."""


class UserItem(NamedTuple):
    """One item of a user: audio, `samples` long, with `pcm` if the model encodes it, or typed `tokens`."""

    samples: int = 0
    pcm: bytes = b""
    tokens: int = 0


class Buffer:
    """Audio that is not committed. `keeps`: its bytes, else only their number; `rate`: samples/s."""

    def __init__(self, rate: int, keeps: bool) -> None:
        self.rate = rate
        self.samples = 0
        self._keeps = keeps
        self._pieces: deque[bytes] = deque()

    @property
    def seconds(self) -> float:
        return self.samples / self.rate

    def append(self, pcm: bytes) -> None:
        self.samples += len(pcm) // 2
        if self._keeps:
            self._pieces.append(pcm)

    def take(self) -> UserItem:
        """Take all of it; the buffer is empty then."""
        item = UserItem(self.samples, b"".join(self._pieces))
        self.clear()
        return item

    def clear(self) -> None:
        self.samples = 0
        self._pieces.clear()

    def keep_last(self, seconds: float) -> None:
        """Drop whole pieces, as they were appended, from the front, as long as `seconds` remain."""
        least = round(seconds * self.rate)
        if not self._keeps:
            self.samples = min(self.samples, least)
        while self._pieces and self.samples - len(self._pieces[0]) // 2 >= least:
            self.samples -= len(self._pieces.popleft()) // 2


class Items:
    """A user's items since the last reply began, by id, in their order. `most_tokens`: of their typed text together."""

    def __init__(self, most_tokens: int) -> None:
        self._items: dict[str, UserItem] = {}
        self._most_tokens = most_tokens

    def __contains__(self, id: str) -> bool:
        return id in self._items

    def __len__(self) -> int:
        return len(self._items)

    def add(self, id: str, item: UserItem) -> None:
        if id in self._items:
            raise Refusal(f"there is an item {id!r} already; choose another id.", param="item.id")
        if len(self._items) >= MOST_ITEMS:
            raise Refusal(f"{MOST_ITEMS} items wait for a reply; ask for it with response.create.", param="item")
        tokens = item.tokens + sum(each.tokens for each in self._items.values())
        if tokens > self._most_tokens:
            raise Refusal(
                f"item.content has {tokens} tokens, and the model's context holds {self._most_tokens} and a reply; "
                "send fewer.",
                "context_length_exceeded",
                "item.content",
            )
        self._items[id] = item

    def remove(self, id: str) -> None:
        self._items.pop(id)

    def take(self) -> list[UserItem]:
        """Take all of them; there are none then."""
        items = list(self._items.values())
        self._items.clear()
        return items


def message_of(item: dict[str, Any] | None) -> tuple[str, str, UserItem]:
    """Return role, text and size of the item of a conversation.item.create. Raises Refusal."""
    if item is None or item.get("type") != "message":
        raise Refusal("conversation.item.create takes items of type message.", param="item.type")
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system"):
        raise Refusal("a message's role is user, assistant or system.", param="item.role")
    if not isinstance(content, list) or not content:
        raise Refusal("a message has content: [{type: input_text, text}].", param="item.content")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str) or part.get("type") not in ("input_text", "output_text", "text"):
            raise Refusal("a message's content is text here; speech comes through the buffer.", param="item.content")
        texts.append(text)
    message = " ".join(texts)
    return role, message, UserItem(tokens=typed_tokens(message))
