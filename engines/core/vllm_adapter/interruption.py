"""Interruption of a real forward pass between two layers: the whole step ends, or some of its requests leave it.

Hooks in front of every decoder layer check for drops. If every request of the batch is to leave, the pass ends with an
exception. Otherwise the rows of leaving requests are cut out of positions, hidden states, residual, slot mapping and
attention metadata, and the later layers run on the remaining rows. The KV that was written is overwritten when the
tokens run again, so the worker needs no rollback; the scheduler's is `StageScheduler.withdraw`. Needs eager execution.
"""

import dataclasses
from typing import Any

import torch
from vllm.forward_context import get_forward_context


class Interrupted(Exception):
    """The pass was ended at a layer boundary; no token was sampled."""


class Interruption:
    """Layer hooks of one model runner. `ask` may be called from any thread while a step runs, and acts in front of the
    next layer whose number is a multiple of `every`."""

    def __init__(self, runner: Any, every: int = 1) -> None:
        self._runner = runner
        self._wanted: frozenset[str] = frozenset()
        self._common: Any = None
        self._rows: torch.Tensor | None = None
        self._positions: torch.Tensor | None = None
        self._total = 0
        self.dropped: frozenset[str] = frozenset()
        decoder = _decoder(runner.model)
        self.layers = len(decoder.layers)
        for number, layer in enumerate(decoder.layers):
            layer.register_forward_pre_hook(self._before_layer if number % every == 0 else self._within_run)
        decoder.norm.register_forward_pre_hook(self._before_norm)
        self._capture_metadata()
        self._wrap_forward()

    def begin(self) -> None:
        """Forget earlier drops: a new step is about to be submitted."""
        self._wanted = self.dropped = frozenset()

    def ask(self, request_ids: frozenset[str]) -> None:
        """Drop these requests from the step at its next layer boundary."""
        self._wanted = self._wanted | request_ids

    def _before_layer(self, layer: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        newly = self._newly_wanted()
        if newly:
            self.dropped |= newly
            return self._thin(args)
        return self._within_run(layer, args)

    def _within_run(self, layer: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return None if self._rows is None else (self._positions, *args[1:])

    def _before_norm(self, norm: torch.nn.Module, args: tuple[Any, ...]) -> None:
        """End the step if no request remains in it; behind the last layer no rows need to be cut."""
        self._newly_wanted()

    def _newly_wanted(self) -> frozenset[str]:
        """Return requests that must leave now. Raises Interrupted when no other is in the step."""
        wanted = self._wanted - self.dropped
        if not wanted:
            return wanted
        batch = self._runner.input_batch.req_ids
        newly = wanted.intersection(batch)
        if newly and newly | self.dropped >= frozenset(batch):
            raise Interrupted
        return newly

    def _thin(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Cut the rows of dropped requests out of this layer's input and of later layers' shared inputs."""
        positions, hidden, residual = args[:3]
        common, batch = self._common, self._runner.input_batch.req_ids
        starts = common.query_start_loc_cpu[: common.num_reqs + 1].tolist()
        kept = [i for i in range(common.num_reqs) if batch[i] not in self.dropped]
        device = hidden.device
        rows = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in kept]).to(device)
        still_here = rows if self._rows is None else torch.isin(self._rows, rows).nonzero().squeeze(1)
        self._positions = positions[..., still_here]
        self._rows = rows
        self._set_metadata(kept, starts, rows)
        for i in range(common.num_reqs):
            if i not in kept:
                self._runner.discard_request_mask.np[i] = True
        residual = None if residual is None else residual[still_here]
        return (self._positions, hidden[still_here], residual, *args[3:])

    def _set_metadata(self, kept: list[int], starts: list[int], rows: torch.Tensor) -> None:
        common = self._common
        lengths = [starts[i + 1] - starts[i] for i in kept]
        query_starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        slots = common.slot_mapping[rows]
        seq_lens = common.seq_lens[kept].contiguous()
        metadata = self._build(
            0,
            dataclasses.replace(
                common,
                query_start_loc=query_starts.to(common.query_start_loc.device),
                query_start_loc_cpu=query_starts,
                seq_lens=seq_lens,
                num_reqs=len(kept),
                num_actual_tokens=len(rows),
                max_query_len=max(lengths),
                max_seq_len=int(seq_lens.max()),
                block_table_tensor=common.block_table_tensor[kept].contiguous(),
                slot_mapping=slots,
            ),
        )
        context = get_forward_context()
        context.attn_metadata = dict.fromkeys(context.attn_metadata, metadata)  # type: ignore[arg-type]
        context.slot_mapping = dict.fromkeys(context.slot_mapping, slots)  # type: ignore[arg-type]

    def _capture_metadata(self) -> None:
        """Keep the inputs of this step's attention metadata."""
        builder = self._runner.attn_groups[0][0].get_metadata_builder()
        self._build = builder.build

        def build(common_prefix_len: int, common_attn_metadata: Any, **kwargs: Any) -> Any:
            self._common = common_attn_metadata
            return self._build(common_prefix_len, common_attn_metadata, **kwargs)

        builder.build = build

    def _wrap_forward(self) -> None:
        """Give the runner hidden states of the full batch again; the states of dropped rows are zero and never
        sampled."""
        forward = self._runner._model_forward

        def model_forward(*args: Any, **kwargs: Any) -> Any:
            self._rows = None
            hidden = forward(*args, **kwargs)
            if self._rows is None:
                return hidden
            full = torch.zeros(
                self._common.num_actual_tokens, hidden.shape[1], dtype=hidden.dtype, device=hidden.device
            )
            full[self._rows] = hidden
            self._rows = None
            return full

        self._runner._model_forward = model_forward


def _decoder(model: torch.nn.Module) -> Any:
    for module in model.modules():
        if hasattr(module, "layers") and hasattr(module, "norm") and hasattr(module, "embed_tokens"):
            return module
    raise TypeError(f"{type(model).__name__} has no decoder with layers, norm and embed_tokens")
