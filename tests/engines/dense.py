"""The model of an executor in transformers, with the same weights in float32 and a dense attention mask."""

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engines.core.stage import Stage
from engines.core.vllm_adapter.execution import ModelExecutor, RandomWeightsLoader


def with_dense(stage: Stage) -> tuple[ModelExecutor, "DenseModel"]:
    """An executor of `stage` and its dense model. vLLM repacks loaded weights, so copies are taken before."""
    weights, load = {}, RandomWeightsLoader.load_weights

    def keep(self: RandomWeightsLoader, model: torch.nn.Module, *rest: Any) -> None:
        load(self, model, *rest)
        weights.update({name: weight.detach().clone() for name, weight in model.named_parameters()})

    with patch.object(RandomWeightsLoader, "load_weights", keep):
        executor = ModelExecutor(stage)
    return executor, DenseModel(executor.config.model_config.model, weights)


class DenseModel:
    """Greedy answers of a Llama-like model in which token t sees key k iff k <= t and (k < sinks or k > t - window)."""

    def __init__(self, folder: str, vllm_weights: Mapping[str, torch.Tensor]) -> None:
        config: Any = LlamaConfig.from_pretrained(folder)
        config._attn_implementation = "eager"
        self._model = LlamaForCausalLM(config).float().eval()
        heads, size = config.num_attention_heads, config.head_dim
        split = [heads * size, config.num_key_value_heads * size, config.num_key_value_heads * size]
        weights = {}
        for name, weight in vllm_weights.items():
            parts = {name: weight.float()}
            if "qkv_proj" in name:
                names = [name.replace("qkv_proj", part) for part in ("q_proj", "k_proj", "v_proj")]
                parts = dict(zip(names, weight.split(split), strict=True))
            elif "gate_up_proj" in name:
                names = [name.replace("gate_up_proj", part) for part in ("gate_proj", "up_proj")]
                parts = dict(zip(names, weight.chunk(2), strict=True))
            weights |= parts
        self._model.load_state_dict(weights, strict=True)

    @torch.inference_mode()
    def next_tokens(
        self, tokens: Sequence[int], window: int | None = None, sinks: int = 0, layers: Sequence[int] | None = None
    ) -> list[int]:
        """The next token after each prefix of `tokens`, shortest first. `layers` have the window; None: all."""
        t = torch.arange(len(tokens)).unsqueeze(1)
        k = t.T
        causal = k <= t
        seen = causal if window is None else causal & ((k < sinks) | (k > t - window))
        full = [
            layer.register_forward_pre_hook(
                lambda _, args, given: (args, given | {"attention_mask": _mask(causal)}), with_kwargs=True
            )
            for number, layer in enumerate(self._model.model.layers)
            if layers is not None and number not in layers
        ]
        logits = self._model(torch.tensor([tokens]), attention_mask=_mask(seen)).logits
        for hook in full:
            hook.remove()
        return logits[0].argmax(dim=-1).tolist()

    def check(self, prompt: Sequence[int], answer: Sequence[int], *pattern: Any) -> None:
        """Raises AssertionError unless this model answers `prompt` so. `pattern`: window, sinks and layers."""
        said = self.next_tokens([*prompt, *answer[:-1]], *pattern)
        assert said[len(prompt) - 1 :] == list(answer)


def _mask(seen: torch.Tensor) -> torch.Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
