"""The plainest form of the computation: dense attention in float32 under the mask of sinks and window."""

import torch


def visible(query: torch.Tensor, key: torch.Tensor, window: int, sinks: int) -> torch.Tensor:
    """Return the mask of visible keys: (..., Q, K) of bool, from positions (..., Q) and (..., K) in tokens."""
    t, k = query.unsqueeze(-1), key.unsqueeze(-2)
    return (k <= t) & ((k < sinks) | (k > t - window))


def dense_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int, sinks: int
) -> torch.Tensor:
    """Return the attention of one request's last tokens over its whole context, in float32.

    `query`: (Q, heads, D), the last Q of the L tokens; `key`, `value`: (L, kv heads, D). Query heads share KV heads in
    groups, in order. Returns (Q, heads, D).
    """
    group = query.shape[1] // key.shape[1]
    q, k, v = query.float(), key.float(), value.float()
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    positions = torch.arange(len(k))
    seen = visible(positions[-len(q) :], positions, window, sinks)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v)
