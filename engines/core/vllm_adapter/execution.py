"""vLLM's real execution for one stage replica: its engine core's worker, model and KV cache, stepped by our loop.

`EngineCore` builds executor, KV cache and scheduler exactly as it does for `LLM` and `vllm serve`; its own loop
is never run.

A forward pass can be interrupted between two layers: hooks in front of every decoder layer check for drops. If every
request of the batch is to leave, the pass ends with an exception. Otherwise the rows of leaving requests are cut out of
positions, hidden states, residual, slot mapping and attention metadata, and the later layers run on the remaining rows.
The KV that was written is overwritten when the tokens run again, so the worker needs no rollback; the scheduler's is
`StageScheduler.withdraw`. Needs eager execution.
"""

import dataclasses
import gc
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine.core import EngineCore

from engines.core.device import Row
from engines.core.stage import AttentionWindow, Safepoints, Stage
from engines.core.vllm_adapter.attention_backend import bounded_executor
from engines.core.vllm_adapter.configuration import RANDOM_WEIGHTS, make_config
from engines.core.vllm_adapter.offload import HostMemory
from engines.core.vllm_adapter.requests import make_request
from engines.core.vllm_adapter.scheduler_path import dropped, finish_step, rows_of
from engines.core.vllm_adapter.scheduling import StageScheduler


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


WARM_UP_PROMPT, WARM_UP_TOKENS = 64, 8

UNREADABLE = "llvmlite.binding.ffi"
"""A module (of librosa's numba) whose `lib` answers to every name, `__dict__` too, with a function of C."""


@contextmanager
def kernels_findable() -> Iterator[None]:
    """Let vLLM find its Triton kernels while an engine is made: it searches all modules with `vars(value).get`, and
    would fail with an AttributeError at `UNREADABLE`."""
    hidden = sys.modules.pop(UNREADABLE, None)
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules[UNREADABLE] = hidden


@register_model_loader(RANDOM_WEIGHTS)
class RandomWeightsLoader(DummyModelLoader):
    """Weights that keep activations at a size of about one, so that the input decides the tokens.

    Matrices are uniform with a variance of one over their inputs, embeddings of variance one, vectors ones, biases
    zeros; every tensor has a seed of its own. Tensors that a model computes for itself (rotary tables) stay.
    """

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        for seed, (name, weight) in enumerate(model.named_parameters()):
            if weight.dim() < 2:
                weight.data.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            inputs = 1 if "embed_tokens" in name else weight[0].numel() if weight.dim() > 3 else weight.shape[-1]
            bound = math.sqrt(3 / inputs)
            weight.data.uniform_(-bound, bound, generator=torch.Generator(weight.device).manual_seed(seed))


class ModelExecutor:
    """One stage replica on this machine's device.

    `scheduler` is vLLM's (of class `cls`) over the KV pool that the worker holds. `skip_forward`: while true the
    model's forward is left out and hidden states are zero; for setting up a context whose content does not matter.
    """

    def __init__(self, stage: Stage, cls: type[StageScheduler] = StageScheduler) -> None:
        self.config: VllmConfig = make_config(stage, real=True)
        self.config.scheduler_config.scheduler_cls = cls
        executor_class = bounded_executor(self.config, stage.extension(AttentionWindow))
        with kernels_findable():
            self._core = EngineCore(self.config, executor_class, log_stats=False)
        scheduler = self._core.scheduler
        assert isinstance(scheduler, StageScheduler)
        self.scheduler = scheduler
        self.skip_forward = False
        executor: Any = self._core.model_executor
        self.runner: Any = executor.driver_worker.worker.model_runner
        self.interruption = Interruption(self.runner, (stage.extension(Safepoints) or Safepoints()).layers)
        self._wrap_forward(stage.decoder.hidden)

    @property
    def layers(self) -> int:
        """Layer boundaries at which a step can be interrupted."""
        return self.interruption.layers

    @property
    def worker_requests(self) -> int:
        """Requests whose state the worker keeps."""
        return len(self.runner.requests)

    def run(self, scheduled: SchedulerOutput) -> Mapping[str, list[int]] | None:
        """Execute one scheduled step and return the sampled ids of each request; None when it was ended early.

        Blocks until the device is done. A request that was dropped on the way (`interruption`) is not in the result.
        """
        executor = self._core.model_executor
        try:
            result = executor.execute_model(scheduled)
            if result is None:
                result = executor.sample_tokens(None)
        except Interrupted:
            return None
        dropped = self.interruption.dropped
        sampled = result.sampled_token_ids
        return {
            request_id: list(sampled[index]) if sampled else []
            for request_id, index in result.req_id_to_index.items()
            if request_id not in dropped
        }

    def warm_up(self, prompt: list[int] | None = None, features: Sequence[Any] = ()) -> int:
        """Serve one request alone, so that no measured request pays for first calls; returns the number of steps.

        `prompt`, `features`: its input, by default a short text.
        """
        scheduler, steps = self.scheduler, 0
        if prompt is None:
            longest = self.config.model_config.max_model_len - WARM_UP_TOKENS
            prompt = list(range(1, 1 + min(WARM_UP_PROMPT, longest)))
        caching = self.config.cache_config.enable_prefix_caching
        hash_blocks = scheduler.block_size if caching else None
        scheduler.add_request(make_request("warm-up", prompt, WARM_UP_TOKENS, 0.0, hash_blocks, features=features))
        while scheduler.has_unfinished_requests():
            self.step(scheduler.schedule())
            steps += 1
        self.flush()
        scheduler.reset_prefix_cache()
        scheduler.reset_connector_cache()
        return steps

    def step(self, scheduled: SchedulerOutput) -> list[tuple[str, list[int], bool]]:
        """Execute a step and give its tokens to the scheduler; returns the result of `finish_step`."""
        rows = rows_of(self.scheduler, scheduled)
        sampled = in_order(rows, self.run(scheduled))
        self.scheduler.withdraw(scheduled, dropped(rows, sampled))
        return finish_step(self.scheduler, scheduled, rows, sampled)

    def host_memory(self) -> HostMemory:
        """Host memory for the KV of this replica, as large as its scheduler believes."""
        return HostMemory(self.runner.kv_caches, self.scheduler)

    def flush(self) -> None:
        """Let the worker forget finished requests: it learns of them with the next step only."""
        self.run(self.scheduler.schedule())

    def close(self) -> None:
        self._core.shutdown()
        del self._core, self.runner, self.interruption
        gc.collect()

    def _wrap_forward(self, hidden: int) -> None:
        forward: Callable[..., Any] = self.runner._model_forward

        def model_forward(*args: Any, **kwargs: Any) -> Any:
            if self.skip_forward:
                tokens = kwargs["positions"].shape[-1]
                return torch.zeros(tokens, hidden, dtype=self.config.model_config.dtype, device=self.runner.device)
            return forward(*args, **kwargs)

        self.runner._model_forward = model_forward


def in_order(rows: Sequence[Row], sampled: Mapping[str, list[int]] | None) -> list[list[int] | None]:
    """Return the sampled ids per row; None for a dropped row, and for all rows when the step was ended."""
    if sampled is None:
        return [None] * len(rows)
    return [sampled.get(row.request_id) for row in rows]
