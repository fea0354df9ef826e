"""The models that vLLM's tests of its scheduler name, as folders of configuration: no hub, no weights.

Those that see are left out: their processors want torchvision, which a CPU environment has not.
"""

import json
from pathlib import Path
from typing import Any

from engines.models.folder import model_folder, tokenizer_files

_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "word_embed_proj_dim": 768,
}


def _config(kind: str, hidden: int, layers: int, kv_heads: int, context: int, vocabulary: int) -> dict[str, Any]:
    """The configuration of a model like Llama."""
    return {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        "hidden_size": hidden,
        "intermediate_size": 8192,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": context,
        "vocab_size": vocabulary,
    }


def redirects(folder: Path) -> Path:
    """A file that leads vLLM from the names of these models to their folders (`VLLM_MODEL_REDIRECT_PATH`)."""
    configs = {
        "facebook/opt-125m": _OPT,
        "facebook/opt-350m": _OPT,
        "meta-llama/Llama-3.2-1B-Instruct": _config("Llama", 2048, 16, 8, 131072, 128256),
        "Qwen/Qwen3-0.6B": _config("Qwen3", 1024, 28, 8, 40960, 151936)
        | {"intermediate_size": 3072, "num_attention_heads": 16, "head_dim": 128},
        "Qwen/Qwen1.5-7B": _config("Qwen2", 4096, 32, 32, 32768, 151936),
    }
    found = {
        name: model_folder({"config.json": config, **tokenizer_files({}, config["vocab_size"])})
        for name, config in configs.items()
    }
    path = folder / "models.json"
    path.write_text(json.dumps(found))
    return path
