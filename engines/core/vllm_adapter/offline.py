"""vLLM's own offline engine on a stage's model: what our loop around the same execution is compared with."""

import os
from collections.abc import Sequence

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # vLLM reads it once, at its first engine

from vllm import LLM, SamplingParams

from engines.core.stage import Stage
from engines.core.vllm_adapter.configuration import engine_arguments
from engines.core.vllm_adapter.execution import RandomWeightsLoader, kernels_findable


class OfflineEngine:
    """`LLM` in this process, with the model, weights and limits of `stage`."""

    loader = RandomWeightsLoader

    def __init__(self, stage: Stage) -> None:
        with kernels_findable():
            self._llm = LLM(**engine_arguments(stage, real=True), distributed_executor_backend="uni")

    def generate(self, prompts: Sequence[list[int]], tokens: Sequence[int]) -> list[list[int]]:
        """Greedy replies to each prompt, of exactly `tokens[i]` tokens, all asked for at once."""
        greedy = [
            SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, detokenize=False)
            for count in tokens
        ]
        outputs = self._llm.generate([{"prompt_token_ids": ids} for ids in prompts], greedy, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]
