"""The config.json of some models without fields that nothing reads."""

import json
from pathlib import Path
from typing import Any

from engines.models import Decoder
from engines.models.config_file import as_yaml, read_config

Config = dict[str, Any]


def named(model_type: str, architecture: str) -> Config:
    return {"model_type": model_type, "architectures": [architecture]}


SIZES = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 128256}
HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8}
REST = {"max_position_embeddings": 8192, "torch_dtype": "bfloat16"}
LLAMA = named("llama", "LlamaForCausalLM") | SIZES | HEADS | REST

WIDE = {"hidden_size": 5120, "num_attention_heads": 64, "head_dim": 128}
QWEN3 = LLAMA | named("qwen3", "Qwen3ForCausalLM") | WIDE

EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
MIXTRAL = LLAMA | named("mixtral", "MixtralForCausalLM") | EXPERTS

SMALL_EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
SPARSE_LAYERS = {"decoder_sparse_step": 1, "mlp_only_layers": []}
QWEN3_MOE = QWEN3 | named("qwen3_moe", "Qwen3MoeForCausalLM") | SMALL_EXPERTS | SPARSE_LAYERS

FEW_HEADS = {"num_attention_heads": 16, "num_key_value_heads": 16}
LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
ROUTED = {"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}
GROUPS = {"first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1}
DEEPSEEK = LLAMA | named("deepseek_v3", "DeepseekV3ForCausalLM") | FEW_HEADS | LATENT | ROUTED | GROUPS

FP8 = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}


def written(folder: Path, config: Config | str, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def read(folder: Path, config: Config) -> Decoder:
    return read_config(written(folder, config)).decoder


def file_of(folder: Path, config: Config) -> str:
    path = folder / "mine.yaml"
    path.write_text(as_yaml(read_config(written(folder, config))))
    return str(path)
