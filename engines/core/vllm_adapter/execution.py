"""vLLM's real execution for one stage replica: its engine core's worker, model and KV cache, stepped by our loop.

`EngineCore` builds executor, KV cache and scheduler exactly as it does for `LLM` and `vllm serve`; its own loop
is never run.
"""

import gc
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine.core import EngineCore

from engines.core.device import Row
from engines.core.stage import AttentionWindow, Safepoints, Stage
from engines.core.vllm_adapter.attention_backend import bounded_executor
from engines.core.vllm_adapter.configuration import RANDOM_WEIGHTS, make_config
from engines.core.vllm_adapter.interruption import Interrupted, Interruption
from engines.core.vllm_adapter.offload import HostMemory
from engines.core.vllm_adapter.requests import make_request
from engines.core.vllm_adapter.scheduler_path import dropped, finish_step, rows_of
from engines.core.vllm_adapter.scheduling import StageScheduler

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
            inputs = (
                1 if "embed_tokens" in name else weight[0].numel() if weight.dim() > 3 else weight.shape[-1]
            )
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
        left = self.interruption.dropped
        sampled = result.sampled_token_ids
        return {
            request_id: list(sampled[index]) if sampled else []
            for request_id, index in result.req_id_to_index.items()
            if request_id not in left
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
        scheduler.add_request(
            make_request("warm-up", prompt, WARM_UP_TOKENS, 0.0, hash_blocks, features=features)
        )
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
                return torch.zeros(
                    tokens, hidden, dtype=self.config.model_config.dtype, device=self.runner.device
                )
            return forward(*args, **kwargs)

        self.runner._model_forward = model_forward


def in_order(rows: Sequence[Row], sampled: Mapping[str, list[int]] | None) -> list[list[int] | None]:
    """Return the sampled ids per row; None for a dropped row, and for all rows when the step was ended."""
    if sampled is None:
        return [None] * len(rows)
    return [sampled.get(row.request_id) for row in rows]
