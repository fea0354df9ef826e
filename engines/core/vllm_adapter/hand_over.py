"""KV that one replica computes and another continues from: a connector on both sides, through vLLM's own interface.

The scheduler of a prefill replica keeps the blocks of a request that has its first token until they have been sent. The
scheduler of a decode replica allocates the request's blocks, waits for their content, and lets it run. vLLM's own
parameters mark such requests (`do_remote_decode`, `do_remote_prefill`). This module does not move the bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

ROLE = "rehearsal_role"
"""In vLLM's `additional_config`: the role of a replica, in a stage with roles."""

TO_SEND = {"kv_transfer_params": {"do_remote_decode": True}}
"""Arguments of a request whose KV another replica fetches after its first token."""


def to_fetch() -> dict[str, Any]:
    """Return the arguments of a request whose KV comes from another replica, except its newest token's."""
    return {"kv_transfer_params": {"do_remote_prefill": True}}


def use_hand_over(config: VllmConfig) -> None:
    """Let a scheduler that is built from `config` hand KV over, or take it, as its role says."""
    additional: Any = config.additional_config
    role = additional.get(ROLE)
    if role is not None:
        config.kv_transfer_config = KVTransferConfig(
            kv_connector=HandOverConnector.__name__,
            kv_connector_module_path=__name__,
            kv_role="kv_producer" if role == "prefill" else "kv_consumer",
        )


@dataclass(slots=True)
class Fetch:
    """Blocks that a request waits for, of all its KV groups."""

    request_id: str
    blocks: int
    size_bytes: int


@dataclass
class HandOverMetadata(KVConnectorMetadata):
    """The fetches that the last round decided on."""

    fetches: list[Fetch] = field(default_factory=list)


class HandOverConnector(KVConnectorBase_V1, SupportsHMA):
    """The scheduler's half; there is no worker's, as no real device takes part.

    `unfetched`: requests that ended before their KV was asked for; nobody needs it any more.

    A request that is preempted after its KV has come computes it again, as with vLLM's own connectors (Nixl): its
    source has been freed.
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.unfetched: list[str] = []
        self._fetches: list[Fetch] = []
        self._block_bytes = [
            len(group.layer_names) * group.kv_cache_spec.page_size_bytes for group in kv_cache_config.kv_cache_groups
        ]

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        tokens = request.num_tokens - 1 - num_computed_tokens if is_elsewhere(request) else 0
        return (tokens, True) if tokens > 0 else (0, False)

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        if not is_elsewhere(request):
            return
        assert num_external_tokens, "a replica that takes KV over has none of it before"
        counts = [sum(not block.is_null for block in group) for group in blocks.blocks]
        size = sum(n * block_bytes for n, block_bytes in zip(counts, self._block_bytes, strict=True))
        self._fetches.append(Fetch(request.request_id, sum(counts), size))
        assert request.kv_transfer_params is not None
        request.kv_transfer_params["do_remote_prefill"] = False

    def build_connector_meta(self, scheduler_output: Any) -> HandOverMetadata:
        fetches, self._fetches = self._fetches, []
        return HandOverMetadata(fetches)

    def request_finished(self, request: Request, block_ids: Any) -> tuple[bool, None]:
        params = request.kv_transfer_params or {}
        if is_elsewhere(request):
            self.unfetched.append(request.request_id)
        return bool(params.get("do_remote_decode")) and request.status == RequestStatus.FINISHED_LENGTH_CAPPED, None

    request_finished_all_groups = request_finished

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        raise NotImplementedError("the worker's half")

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError("the worker's half")

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        raise NotImplementedError("the worker's half")

    def wait_for_save(self) -> None:
        raise NotImplementedError("the worker's half")


def is_elsewhere(request: Request) -> bool:
    """Return True if another replica has the request's KV, and has not been asked for it."""
    return bool((request.kv_transfer_params or {}).get("do_remote_prefill"))


def handed_over(sent: Iterable[str], received: Iterable[str]) -> KVConnectorOutput:
    """Report, as vLLM's worker would, requests whose KV has been sent, and requests whose KV has been received."""
    # A set of strings has another order in every process.
    sending, receiving = (dict.fromkeys(ids).keys() or None for ids in (sent, received))
    return KVConnectorOutput(finished_sending=sending, finished_recving=receiving)  # type: ignore[arg-type]
