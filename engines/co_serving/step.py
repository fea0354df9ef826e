"""The step that is being put together: who takes how many tokens, and what is left of its limits."""

from typing import Protocol

from engines.core.policy import RequestView, StageView


class StepTime(Protocol):
    """The predicted time of a step that is being put together, against its limit."""

    @property
    def left_s(self) -> float:
        """Seconds until the limit; below 0: it is exceeded."""
        ...

    def most(self, request: RequestView, need: int) -> int:
        """Tokens, at most `need`, that this request can take besides; 0: none."""
        ...

    def add(self, request: RequestView, tokens: int) -> None:
        """It takes them."""
        ...


class Step:
    """Its time, tokens, slots and blocks. `time`: None: of any length; `by_chunk`: a waiting request is let in when its
    first chunk fits into the pool, else when all of its prompt does."""

    def __init__(self, view: StageView, time: StepTime | None, tokens: int, by_chunk: bool) -> None:
        self.by_chunk = by_chunk
        self.time = time
        self.tokens = min(tokens, view.token_budget)
        self.free = view.free_blocks
        self.slots = view.slot_budget - sum([request.running for request in view.requests])
        self.size = view.block_size
        self.given: dict[str, int] = {}

    @property
    def has_time(self) -> bool:
        return self.time is None or self.time.left_s > 0.0

    def most(self, request: RequestView) -> int:
        """Tokens that it can take by time and budget."""
        need = min(request.new, self.tokens)
        return need if self.time is None or not need else self.time.most(request, need)

    def blocks(self, request: RequestView, tokens: int) -> int:
        """What it needs besides what it holds; a waiting one may have to find room for all of its prompt."""
        until = request.computed + tokens if request.running or self.by_chunk else request.tokens
        return max(0, -(-until // self.size) - request.blocks)

    def within(self, request: RequestView, tokens: int, free: int) -> int:
        """Tokens, of so many, for which `free` blocks suffice."""
        if request.running or self.by_chunk:
            room = (request.blocks + max(0, free)) * self.size - request.computed
            return max(0, min(tokens, room))  # what is to come from another replica has no block yet
        return tokens if self.blocks(request, tokens) <= free else 0

    def add(self, request: RequestView, tokens: int) -> None:
        self.given[request.id] = tokens
        self.tokens -= tokens
        self.free -= self.blocks(request, tokens)
        self.slots -= not request.running
        if self.time is not None:
            self.time.add(request, tokens)

    def take_back(self, victim: RequestView) -> None:
        """The victim's blocks and slot are free."""
        self.free += victim.blocks
        self.slots += victim.running
