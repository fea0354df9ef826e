"""The modelled device inside stock vLLM, on the wall clock: an executor that loads nothing, sleeps for a step's
modelled time, and makes up the tokens.

`--distributed-executor-backend engines.stock.executor.ModelledExecutor`, configured by
`engines.stock.arguments.StockParams`: the deployment's stage gives step times and KV pool.
"""

import time
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput

from engines.core.device import Row
from engines.devices.roofline import Roofline, Work
from engines.models import Decoder
from engines.stock.arguments import KEY, StockParams
from workloads.errors import UserError


class ModelledExecutor(Executor):
    """One modelled GPU. Steps queue up on it and run one after the other, so asynchronous scheduling works as on a
    real one."""

    def _init_executor(self) -> None:
        params = self._params = self._stock_params()
        self.limits = params.limits
        self._check(params.deployment)
        self._roofline = Roofline(self.limits.decoder, params.served.gpu, self.limits.split)
        self._stream = ThreadPoolExecutor(1, thread_name_prefix="modelled-device")
        self._free_at_s = 0.0
        self._sampled: deque[Future[ModelRunnerOutput]] = deque()
        self._prompts: dict[str, int] = {}
        self._vocab = self.model_config.get_vocab_size()
        self._end_token = getattr(self.model_config.hf_config, "eos_token_id", None)

    def _stock_params(self) -> StockParams:
        return StockParams.of(self.vllm_config.additional_config)

    def _check(self, deployment: str) -> None:
        """Raise UserError unless vLLM's model is the one whose times are modelled."""
        model, parallel = self.model_config, self.parallel_config
        given = (model.get_num_layers(parallel), model.get_num_kv_heads(parallel), model.get_head_size())
        decoder: Decoder = self.limits.decoder
        wanted = (decoder.layers, decoder.kv_heads, decoder.head_dim)
        if parallel.world_size > 1:
            raise UserError(
                f"the modelled executor is one device, got {parallel.world_size}; leave parallel sizes at 1."
            )
        if given != wanted:
            raise UserError(
                f"the model {model.model} has (layers, KV heads, head size) {given}, but the {self.limits.name} of "
                f"{deployment!r} has {wanted}; name its deployment in additional_config {KEY!r}, or take the model "
                "that `python -m engines.stock` names."
            )

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        model, parallel = self.model_config, self.parallel_config
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=model.get_num_kv_heads(parallel),
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
        return [{f"layers.{layer}": spec for layer in range(model.get_num_layers(parallel))}]

    def determine_available_memory(self) -> list[int]:
        """Return bytes that hold as many tokens as the deployment's pool."""
        [specs] = self.get_kv_cache_specs()
        per_token = sum(spec.page_size_bytes // spec.block_size for spec in specs.values())
        return [self._pool_tokens() * per_token]

    def _pool_tokens(self) -> int:
        return self.limits.kv_blocks * self.limits.block_size

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBNHC"]]  # vLLM wants one named; there is no cache to lay out

    def set_kv_cache_layout(self, layout_name: str) -> None:
        self.cache_config.kv_cache_layout = layout_name

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        """Do nothing: there is no cache to allocate."""

    def compile_or_warm_up_model(self) -> None:
        """Do nothing: there is no model to warm up."""

    @property
    def supported_tasks(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("generate",)

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def collective_rpc(self, method: Any, *args: Any, non_block: bool = False, **kwargs: Any) -> Any:
        """Return None to vLLM's calls to workers other than steps (profiling, caches, adapters): there are no
        workers."""
        if not non_block:
            return [None]
        answer: Future[list[None]] = Future()
        answer.set_result([None])
        return answer

    def take_draft_token_ids(self) -> None:
        """Return nothing: nothing is drafted."""

    def check_health(self) -> None:
        """Do nothing: a modelled device does not fail."""

    def shutdown(self) -> None:
        self._stream.shutdown(wait=False, cancel_futures=True)

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """Start a step. With asynchronous scheduling its tokens come from `sample_tokens`, as vLLM expects."""
        rows, result = self._rows(scheduler_output)
        done = self._stream.submit(self._run, self._work(rows), result, time.monotonic())
        if not non_block:
            return done.result()
        if not rows or not self.scheduler_config.async_scheduling:
            return done
        self._sampled.append(done)
        started: Future[None] = Future()
        started.set_result(None)
        return started

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        done = self._sampled.popleft()
        return done if non_block else done.result()

    def _run(self, work: Work, result: ModelRunnerOutput, submitted_s: float) -> ModelRunnerOutput:
        if work.requests:
            step_s = self._roofline.step(work).total_s * self._params.slower
            end_s = self._ends_s(submitted_s, step_s)
            time.sleep(max(0.0, end_s - time.monotonic()))
        return result

    def _ends_s(self, submitted_s: float, step_s: float) -> float:
        """Return when a step of `step_s` seconds ends. It begins at its submission, or at the end of the one before."""
        self._free_at_s = max(submitted_s, self._free_at_s) + step_s
        return self._free_at_s

    def _work(self, rows: list[Row]) -> Work:
        return Work.of(rows)

    def _rows(self, output: SchedulerOutput) -> tuple[list[Row], ModelRunnerOutput]:
        """Return the step's rows and its tokens: made up, never the model's end token."""
        for request_id in output.finished_req_ids:
            self._prompts.pop(request_id, None)
        lengths: dict[str, tuple[int, int]] = {}
        for new in output.scheduled_new_reqs:
            self._prompts[new.req_id] = new.prompt_len
            tokens = len(new.prefill_token_ids) if new.prefill_token_ids else new.prompt_len
            lengths[new.req_id] = (new.num_computed_tokens, tokens)
        cached = output.scheduled_cached_reqs
        for request_id, computed, outputs in zip(
            cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
        ):
            lengths[request_id] = (computed, self._prompts[request_id] + outputs)
        rows, sampled = [], []
        for request_id, tokens in output.num_scheduled_tokens.items():
            context, total = lengths[request_id]
            rows.append(Row(request_id, tokens, context, context + tokens >= total))
            sampled.append([self._token(request_id, total)] if rows[-1].samples else [])
        index = {row.request_id: i for i, row in enumerate(rows)}
        return rows, ModelRunnerOutput(list(index), index, sampled_token_ids=sampled)

    def _token(self, request_id: str, position: int) -> int:
        token = (zlib.crc32(request_id.rsplit("-", 1)[0].encode()) + position) % self._vocab
        return token if token != self._end_token else (token + 1) % self._vocab
