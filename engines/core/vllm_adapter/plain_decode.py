"""Which decode rows are plain: those that write one more token into a block which their request holds."""

from dataclasses import dataclass, field

from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager
from vllm.v1.request import Request

from engines.core.device import Row
from engines.core.vllm_adapter.bounded import SinkWindowManager
from engines.core.vllm_adapter.scheduling import StageScheduler


@dataclass(slots=True)
class Decode:
    """A request whose next rows are plain up to the one on a context of `until` tokens. `row`: the next of them, of a
    quiet one that of round `quiet_from`; `together`: in the chorus; `blocks`: that it holds; `owed`: tokens sampled
    that vLLM's request has yet to be given.

    `lasts`: the context up to which it holds blocks and does not end, a row further than `until` where the row there
    fills a block that others may hit. In the chorus that row stays quiet unless somebody could: it is that of round
    `filled`, of which vLLM has yet to be told.
    """

    request: Request
    row: Row
    until: int
    blocks: int
    owed: list[int] = field(default_factory=list)
    quiet_from: int = 0
    together: bool = False
    lasts: int = 0
    filled: int | None = None


class PlainDecodes:
    """Tells of a scheduler's requests up to which context their rows are plain.

    `groups`: of layers, each of which takes blocks of its own. `one_call_will_do`: vLLM's `cache_blocks`, where a row
    fills its block and needs none; a window takes blocks back, too.
    """

    def __init__(self, scheduler: StageScheduler) -> None:
        self.scheduler = scheduler
        managers = scheduler.kv_cache_manager.coordinator.single_type_managers
        self.groups = len(managers)
        self._windows = [each for each in managers if isinstance(each, SlidingWindowManager)]
        self.one_call_will_do = self.groups == 1 and not self._windows

    def look(self, request: Request) -> Decode | None:
        """The request as a plain decode; None when its next row is none."""
        context, params = request.num_computed_tokens, request.sampling_params
        if request.num_tokens - context != 1 or request.has_encoder_inputs:
            return None
        if params is None or params.stop_token_ids or self.last(request) <= context:
            return None
        return self.of(request)

    def of(self, request: Request) -> Decode:
        """One whose next row is a decode with a block to write to."""
        context, size = request.num_computed_tokens, self.scheduler.block_size
        blocks = self.scheduler.blocks_held(request.request_id)
        until = lasts = min(self.last(request), blocks * size)
        if request._block_hasher is not None:
            until = min(until, context // size * size + size - 1)
            if not self._told_of_blocks:
                lasts = until
        for manager in self._windows:
            until = lasts = min(until, _taken_back(manager, request.request_id, context))
        return Decode(request, Row(request.request_id, 1, context, True), until, blocks, lasts=lasts)

    def last(self, request: Request) -> int:
        """The context on which its last token is sampled."""
        left = request.max_tokens - request.num_output_tokens
        return min(request.num_computed_tokens + left - 1, self.scheduler.max_model_len - 2)

    @property
    def _told_of_blocks(self) -> bool:
        """Whether vLLM can be told of a full block later than it is: nobody takes its events, and one call will do."""
        scheduler = self.scheduler
        events = scheduler.kv_cache_manager.block_pool.enable_kv_cache_events
        return self.groups == 1 and not scheduler.offloads and not events


def _taken_back(manager: SlidingWindowManager, request_id: str, context: int) -> int:
    """The context, this one or a later, on which vLLM next takes a block back that the window has left."""
    size = manager.block_size
    pinned = manager.sink_blocks if isinstance(manager, SinkWindowManager) else 0
    left = manager.get_num_skipped_tokens(context) // size
    if left > pinned and not manager.req_to_blocks[request_id][left - 1].is_null:
        return context
    return manager.sliding_window - 1 + (max(left, pinned) + 1) * size
