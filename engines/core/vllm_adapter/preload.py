"""Background loads: pieces of a session's history that return from the host before they are asked for.

Each piece is a vLLM request of its own (LiveServe section 6: preload requests use the same scheduling path): the
connector matches the host's blocks, vLLM allocates, the request waits for its KV, and when that has arrived its blocks
enter the prefix cache. It is finished then, before it computes anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.request import Request, RequestStatus

from engines.core.vllm_adapter.history import History, block_hasher
from engines.core.vllm_adapter.kv_scheduler import KvScheduler


@dataclass(slots=True, eq=False)
class Piece:
    """One background request. `blocks`: its blocks under way; 0 until vLLM has admitted it."""

    session: int
    request: Request
    blocks: int = 0


class Preloads:
    """The background loads of one replica, at most one for each session.

    A piece that vLLM cannot admit now (no blocks, no slot, its host blocks are still being written) is set aside and
    offered again in the next round, behind all others. It never takes part in a step. `ids`: of the requests. `landed`:
    (session, blocks) of the pieces that have arrived, until somebody takes them.
    """

    def __init__(self, scheduler: KvScheduler) -> None:
        self.scheduler = scheduler
        self.ids: frozenset[str] = frozenset()
        self.landed: list[tuple[int, int]] = []
        self._pieces: dict[int, Piece] = {}
        self._begun = 0
        self._brought: dict[int, set[int]] = {}

    @property
    def offered(self) -> list[Piece]:
        """Pieces that vLLM has yet to admit."""
        return [piece for piece in self._pieces.values() if not piece.blocks]

    def start(self, session: int, history: History, blocks: int) -> bool:
        """Load the next `blocks` of the `missing` ones; False when there are none, or a piece is under way."""
        if session in self._pieces or blocks < 1 or not self.missing(history):
            return False
        scheduler = self.scheduler
        size = scheduler.block_size
        until = self.resident(history) + min(blocks, self.missing(history))
        tokens = history.tokens[: until * size]
        request = Request(
            f"preload.{session}.{self._begun}",
            [*tokens, 0],  # the last token of a prompt is never loaded
            SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": {"max_load_tokens": blocks * size}}),
            None,
            arrival_time=0.0,
            mm_features=[f for f in history.features if f.mm_position.offset < len(tokens)] or None,
            session_id=str(session),
        )
        request.block_hashes = history.hashes[:until]
        request._block_hasher = block_hasher(size, scheduler.short_keys)
        self._begun += 1
        self._pieces[session] = Piece(session, request)
        self.ids |= {request.request_id}
        scheduler.add_request(request)
        scheduler.waiting.remove_requests([request])
        return True

    def cancel(self, session: int) -> None:
        """Give up the session's piece. Blocks on their way are dropped when they come, and are free then."""
        piece = self._pieces.get(session)
        if piece is not None:
            self._finish(piece)

    def offer(self) -> list[Piece]:
        """Put the pieces that vLLM has yet to admit behind the waiting requests, for one round.

        A piece ends now if its blocks have come by themselves, or have left the host.
        """
        offered = []
        for piece in self.offered:
            if self._missing(piece.request.block_hashes):
                self.scheduler.waiting.add_request(piece.request)
                offered.append(piece)
            else:
                self.landed.append((piece.session, 0))
                self._finish(piece)
        return offered

    def set_aside(self, offered: list[Piece]) -> None:
        """Sort the pieces after the round: admitted pieces are loading, the others wait for the next round."""
        for piece in offered:
            if piece.request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
                hit = self.scheduler.offloading._req_status[piece.request.request_id].num_locally_computed_tokens
                piece.blocks = (piece.request.num_computed_tokens - hit) // self.scheduler.block_size
        waiting = [piece.request for piece in offered if not piece.blocks]
        if waiting:
            self.scheduler.waiting.remove_requests(waiting)
            self.scheduler.deferred_waiting.difference_update(waiting)

    def receive(self, request_ids: Iterable[str]) -> None:
        """Take the KV that has arrived for these requests: pieces among them enter the prefix cache and end."""
        if self.ids.isdisjoint(request_ids):
            return
        for piece in [p for p in self._pieces.values() if p.request.request_id in request_ids]:
            self.scheduler._handle_blocked_waiting_request(piece.request)
            held = self.scheduler.block_ids(piece.request.request_id)
            last = piece.request.num_computed_tokens // self.scheduler.block_size
            self._brought.setdefault(piece.session, set()).update(held[max(0, last - piece.blocks) : last])
            self.landed.append((piece.session, piece.blocks))
            self._finish(piece)

    def hit(self, session: int, block_ids: Iterable[int]) -> int:
        """Return the number of a turn's found blocks that were loaded early for it; call it once a turn."""
        brought = self._brought.pop(session, None)
        return len(brought.intersection(block_ids)) if brought else 0

    def resident(self, history: History) -> int:
        """Leading blocks of the history in the GPU's prefix cache."""
        return self._resident(history.hashes)

    def missing(self, history: History) -> int:
        """Blocks that follow the resident ones in host memory, including those still being written there."""
        return self._missing(history.hashes)

    def _resident(self, hashes: Sequence[Any]) -> int:
        pool = self.scheduler.kv_cache_manager.block_pool
        return next((i for i, h in enumerate(hashes) if not pool.get_cached_block(h, [0])), len(hashes))

    def _missing(self, hashes: Sequence[Any]) -> int:
        if not self.scheduler.offloads:
            return 0
        manager, missing = self.scheduler.offloading.manager, 0
        for block_hash in hashes[self._resident(hashes) :]:
            if manager.lookup(make_offload_key(block_hash, 0), _NOBODY) is LookupResult.MISS:
                break
            missing += 1
        return missing

    def _finish(self, piece: Piece) -> None:
        del self._pieces[piece.session]
        self.ids -= {piece.request.request_id}
        self.scheduler.finish_requests(piece.request.request_id, RequestStatus.FINISHED_ABORTED)


_NOBODY: Any = ReqContext("lookup")
