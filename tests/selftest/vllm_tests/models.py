"""The models that vLLM's tests of its scheduler name, as folders of configuration: no hub, no weights.

Those that see are left out: their processors want torchvision, which a CPU environment has not.
"""

import json
from pathlib import Path

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
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
}
_QWEN3 = _LLAMA | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}
_QWEN1_5 = _LLAMA | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "vocab_size": 151936,
}


def redirects(folder: Path) -> Path:
    """A file that leads vLLM from the names of these models to their folders (`VLLM_MODEL_REDIRECT_PATH`)."""
    texts = {
        "facebook/opt-125m": _OPT,
        "facebook/opt-350m": _OPT,
        "meta-llama/Llama-3.2-1B-Instruct": _LLAMA,
        "Qwen/Qwen3-0.6B": _QWEN3,
        "Qwen/Qwen1.5-7B": _QWEN1_5,
    }
    found = {
        name: model_folder({"config.json": config, **tokenizer_files({}, config["vocab_size"])})
        for name, config in texts.items()
    }
    path = folder / "models.json"
    path.write_text(json.dumps(found))
    return path
