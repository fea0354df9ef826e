"""The KV pool that vLLM would allocate: what it may use of each GPU, less weights and what its start takes besides.

It starts with a profile run of `max_num_batched_tokens` tokens, and of as many requests as a step may have for the
sampler. Their peak, CUDA's own memory and, in newer versions, CUDA graphs are kept from the pool
(vllm/v1/worker/gpu_worker.py, determine_available_memory). Encoders of images and sound are not in it. Constants are
fitted to public logs, and held against others: tests/engines/test_kv_pool.py.
"""

from engines.core.stage import Stage
from engines.devices.extensions import InLockstep
from engines.devices.hardware import Gpu
from engines.devices.layer_slots import slots_of
from engines.models import Decoder

CONTEXT_BYTES = 0.2 * 2**30
"""[fitted] CUDA's context and small buffers: 0.13 GiB of "non-torch" in logs, and scratch space of kernels."""

ALL_REDUCE_BYTES = 0.43 * 2**30
"""[fitted] NCCL and buffers of all-reduce kernels, where NVLink ties the GPUs of a replica."""

GRAPH_BYTES = 4 * 2**20
"""[fitted] one captured CUDA graph: 0.51 GiB for 86 on an L40S."""

ACCOUNTS = (
    ((0, 29), 2.0, 4.125, True),
    ((0, 27), 2.0, 4.125, False),
    ((0, 24), 2.0, 0.0, False),
    ((0, 21), 17.5, 0.0, True),
    ((0, 16), 17.5, 0.0, False),
    ((0, 0), 38.0, 0.0, False),
)
"""(from this version on, bytes a logit in the sampler's profile run, bytes a logit that stay, whether CUDA graphs are
taken off). [fitted] The sampler sorted with PyTorch, then with kernels of its own, and then only added noise, since the
second model runner; that has counts of the tokens in answers and a bit for those in prompts
(vllm/v1/worker/gpu/sample/penalties.py), and at first it took graphs for 0 bytes."""

NEWEST = (0, 32)

_LARGEST_GRAPH = 512


def pool_blocks(stage: Stage, gpu: Gpu, vllm: tuple[int, ...] = NEWEST) -> int:
    """Return the blocks that fit into the GPUs of one replica, in a version of vLLM."""
    each_bytes = gpu.memory_bytes * stage.memory_share - start_bytes(stage, gpu, vllm)
    dies = len(stage.roles[stage.role]) if stage.role and stage.extension(InLockstep) else 1
    weights = stage.decoder.resident_bytes(slots_of(stage), dies)
    # Heads are divided between the GPUs of a replica; one vector for all of them is on each.
    copies = stage.split if stage.decoder.mla else 1
    return int((stage.split * each_bytes - weights) // (stage.block_bytes * copies))


def start_bytes(stage: Stage, gpu: Gpu, vllm: tuple[int, ...] = NEWEST) -> float:
    """Return the bytes of each GPU that are kept besides weights and KV."""
    decoder, tokens = stage.decoder, stage.max_num_batched_tokens
    requests = min(stage.max_num_seqs, tokens)
    logits = requests * decoder.vocab
    values = 4 * decoder.hidden + _feed_forward(decoder, stage.split)
    forward = tokens * decoder.dtype_bytes * values
    _, sampler, stays, takes_graphs = next(account for account in ACCOUNTS if vllm >= account[0])
    sampling = tokens * decoder.dtype_bytes * decoder.hidden + sampler * logits
    kept = CONTEXT_BYTES + max(forward, sampling) + stays * logits
    if stage.split > 1 and gpu.nvlink_bandwidth:
        kept += ALL_REDUCE_BYTES
    if takes_graphs:
        kept += GRAPH_BYTES * _graphs(requests)
    return kept


def _feed_forward(decoder: Decoder, split: int) -> float:
    """Values of a token that are alive at once in a feed-forward: gate and up and their product, or the workspaces of
    the experts that it goes to."""
    experts = decoder.experts_per_token * (
        max(2 * decoder.expert_ffn / split, decoder.hidden) + decoder.expert_ffn / split
    )
    return max(3 * decoder.ffn / split, experts)


def _graphs(requests: int) -> int:
    """Graphs of decodes up to `requests` rows, and of mixed steps up to twice as many (vllm/config/vllm.py,
    _set_cudagraph_sizes)."""
    largest = min(2 * requests, _LARGEST_GRAPH)
    sizes = [1, 2, 4, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
    return sum(size <= largest for size in sizes) + sum(size <= requests for size in sizes)
