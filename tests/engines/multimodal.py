"""A small model that hears or sees runs on the CPU under our scheduler and in vLLM's own `LLM`."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engines.core import vllm_adapter as vllm
from engines.core.stage import Stage
from engines.models import Decoder
from tests.builders import in_own_process

OUTPUT = 12


def small_stage(**parts: Any) -> Stage:
    """A thinker of two layers with these parts of a `Decoder`."""
    decoder = Decoder(layers=2, hidden=128, heads=4, kv_heads=2, head_dim=32, dtype_bytes=4, vocab=512, **parts)
    return Stage(
        name="thinker",
        decoder=decoder,
        gpus=((0,),),
        memory_share=0.3,
        max_num_seqs=8,
        max_num_batched_tokens=64,  # less than a clip or a picture, which is so prefilled in chunks
        max_model_len=1024,
        max_tokens=64,
        prefix_caching=True,
        block_size=32,
        kv_blocks=128,
    )


@dataclass
class Results:
    """Token ids by case: what vLLM's `LLM` gave and what we gave; per case of ours, what the scheduler encoded."""

    stock: dict[str, list[int]] = field(default_factory=dict)
    stock_prompts: dict[str, list[int]] = field(default_factory=dict)
    ours: dict[str, list[int]] = field(default_factory=dict)
    prompts: dict[str, list[int]] = field(default_factory=dict)
    encoded: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    identifiers: list[str] = field(default_factory=list)
    cut: list[tuple[list[int], list[tuple[int, int]]]] = field(default_factory=list)
    interrupted: bool = False
    torchvision: bool = False

    def check(self, case: str) -> None:
        """Raises AssertionError unless both had the same prompt and gave the same tokens."""
        assert self.prompts[case] == self.stock_prompts[case]
        assert len(self.ours[case]) == OUTPUT
        assert self.ours[case] == self.stock[case]

    def serve(self, executor: Any, prompts: dict[str, tuple[list[int], list]], interrupt: str = "") -> None:
        """Ours: `executor` answers prompts of (token ids, features); the prefill of `interrupt` is cut once."""
        scheduler = executor.scheduler
        for name, (ids, features) in prompts.items():
            scheduler.add_request(vllm.make_request(name, ids, OUTPUT, 0.0, scheduler.block_size, features=features))
            self.prompts[name], self.ours[name], self.encoded[name], self.steps[name] = ids, [], 0, 0
        while scheduler.has_unfinished_requests():
            scheduled = scheduler.schedule()
            for name, inputs in scheduled.scheduled_encoder_inputs.items():
                self.encoded[name] += len(inputs)
            for new in scheduled.scheduled_new_reqs:
                self.cached[new.req_id] = new.num_computed_tokens
            for name in scheduled.num_scheduled_tokens:
                self.steps[name] += 1
            executor.interruption.begin()
            if interrupt in scheduled.scheduled_encoder_inputs and not self.interrupted:
                executor.interruption.ask(frozenset({interrupt}))
                self.interrupted = True
            for name, tokens, _ in executor.step(scheduled):
                self.ours[name] += tokens
        executor.flush()

    def generate(self, llm: Any, prompts: dict[str, tuple[list[int], dict[str, Any]]]) -> None:
        """vLLM's: `llm` answers prompts of (token ids, sounds or images)."""
        from vllm import SamplingParams, TokensPrompt

        params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True, temperature=0.0)
        for name, (ids, shown) in prompts.items():
            prompt = TokensPrompt(prompt_token_ids=ids, multi_modal_data=shown)
            (output,) = llm.generate([prompt], params, use_tqdm=False)
            self.stock[name] = list(output.outputs[0].token_ids)
            self.stock_prompts[name] = list(output.prompt_token_ids or [])


def stock_llm(stage: Stage, folder: str, **limits: int) -> Any:
    """vLLM's own engine on the model in `folder`; `limits`: pieces of a kind in a prompt."""
    from vllm import LLM

    return LLM(
        model=folder,
        load_format="rehearsal_random",
        dtype="float32",
        enforce_eager=True,
        max_model_len=stage.max_model_len,
        max_num_seqs=stage.max_num_seqs,
        block_size=stage.block_size,
        limit_mm_per_prompt=limits,
    )


def measured(*executions: Callable[[Results], None]) -> Results:
    """What they write, in a process of their own: vLLM keeps much in globals."""
    return in_own_process(_measure, executions)


def _measure(executions: tuple[Callable[[Results], None], ...]) -> Results:
    os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    results = Results()
    for execute in executions:
        execute(results)
    results.torchvision = "torchvision" in sys.modules
    return results
