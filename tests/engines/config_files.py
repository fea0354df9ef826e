"""Models' config.json files, cut down to what says something, and how tests read and write them."""

import json
from pathlib import Path
from typing import Any

from engines.models import Decoder
from engines.models.config_file import as_yaml, read_config

Config = dict[str, Any]

LLAMA: Config = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
QWEN3: Config = LLAMA | {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 5120,
    "num_attention_heads": 64,
    "head_dim": 128,
}
MIXTRAL: Config = LLAMA | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN3_MOE: Config = QWEN3 | {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DEEPSEEK: Config = LLAMA | {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
}
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
