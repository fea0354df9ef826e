"""A real checkpoint: its facts are read from config.json, its weights by vLLM, and it says what it says elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engines.core.vllm_adapter.execution import ModelExecutor
from engines.deployments import Deployment
from engines.server import ServerParams, resolve
from tests.engines.real import clean, drain, submit
from workloads.errors import UserError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with the weights that transformers starts a training with."""
    folder = tmp_path_factory.mktemp("small-llama")
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=512,
        max_position_embeddings=4096,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)
    return folder


def served(checkpoint: Path) -> Deployment:
    return resolve(ServerParams.of({"deployment": "llama_tiny", "checkpoint": str(checkpoint)}))


def test_vllm_answers_as_transformers_does(checkpoint: Path):
    prompts = [[5, 9, 200, 31], list(range(100, 160)), [7] * 20]
    model = ModelExecutor(served(checkpoint).stages["thinker"])
    with clean(model):
        ours = drain(model, submit(model, prompts, 12))
    reference: Any = LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    greedy = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    theirs = [reference.generate(torch.tensor([prompt]), **greedy)[0, len(prompt) :].tolist() for prompt in prompts]
    assert ours == theirs
    assert len({token for reply in ours for token in reply}) > 5


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("not json", "no readable config.json"),
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel.*supported are LlamaForCausalLM"),
        ({}, "architecture none"),
        ({"architectures": ["LlamaForCausalLM"], "torch_dtype": "int8"}, "int8"),
        ({"architectures": ["LlamaForCausalLM"]}, "lacks 'num_attention_heads'"),
    ],
)
def test_an_unsupported_checkpoint_is_refused(tmp_path: Path, config, words: str):
    text = config if isinstance(config, str) else json.dumps(config)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=words):
        served(tmp_path)
