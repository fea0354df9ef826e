"""config.json files are read as vLLM reads them."""

from importlib import import_module
from pathlib import Path

import pytest

from engines.models.config_file import read_config
from tests.engines.config_files import DEEPSEEK, FP8, LLAMA, MIXTRAL, QWEN3, QWEN3_MOE, Config, read, written

GEMMA3: Config = {
    "model_type": "gemma3",
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_attention_heads": 16},
    "torch_dtype": "bfloat16",
}
LLAVA: Config = {
    "model_type": "llava",
    "architectures": ["LlavaForConditionalGeneration"],
    "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "num_attention_heads": 16},
    "torch_dtype": "float16",
}
QWEN3_VL: Config = {
    "model_type": "qwen3_vl",
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "text_config": QWEN3 | {"model_type": "qwen3_vl_text"},
    "vision_config": {"model_type": "qwen3_vl", "depth": 27},
}
GPT_OSS: Config = MIXTRAL | {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 16,
}
GLM4_MOE: Config = QWEN3 | {
    "model_type": "glm4_moe",
    "architectures": ["Glm4MoeForCausalLM"],
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "first_k_dense_replace": 3,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [GEMMA3, LLAVA, QWEN3_VL, GPT_OSS, GLM4_MOE], ids=lambda each: each["model_type"]
)
def test_its_numbers_are_those_that_vllm_finds(tmp_path: Path, config: Config) -> None:
    """Of models whose classes need libraries for pictures, which not every installation has."""
    import_module("vllm.config")  # else its modules import each other in a circle
    from vllm.transformers_utils.config import get_config, get_hf_text_config
    from vllm.transformers_utils.model_arch_config_convertor import ModelArchConfigConvertorBase

    decoder = read(tmp_path, config)
    theirs = get_config(str(tmp_path), trust_remote_code=False)
    arch = ModelArchConfigConvertorBase(theirs, get_hf_text_config(theirs)).convert()
    assert decoder.layers == arch.total_num_hidden_layers and decoder.hidden == arch.hidden_size
    assert (decoder.heads, decoder.kv_heads) == (arch.total_num_attention_heads, arch.total_num_kv_heads)
    assert (decoder.head_dim, decoder.vocab) == (arch.head_size, arch.vocab_size)
    assert (decoder.experts, decoder.experts_per_token) == (arch.num_experts, arch.num_experts_per_token)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        LLAMA | FP8,
        LLAMA | {"torch_dtype": "float32"},
        LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        QWEN3,
        MIXTRAL,
        QWEN3_MOE,
        DEEPSEEK,
        DEEPSEEK | {"q_lora_rank": None},
    ],
    ids=["llama", "fp8", "fp32", "rope", "qwen3", "mixtral", "qwen3_moe", "deepseek", "no_q_rank"],
)
def test_it_is_read_as_vllm_reads_it(tmp_path: Path, config: Config) -> None:
    from vllm.config import ModelConfig

    found = read_config(written(tmp_path, config))
    theirs = ModelConfig(model=str(tmp_path), tokenizer=None, skip_tokenizer_init=True)
    decoder, arch = found.decoder, theirs.model_arch_config
    assert decoder.layers == arch.total_num_hidden_layers
    assert (decoder.hidden, decoder.heads) == (arch.hidden_size, arch.total_num_attention_heads)
    assert decoder.vocab == arch.vocab_size
    if decoder.mla is None:
        assert (decoder.head_dim, decoder.kv_heads) == (
            theirs.get_head_size(),
            theirs.get_total_num_kv_heads(),
        )
    else:
        assert theirs.use_mla and decoder.mla.kv_rank + decoder.mla.rope == theirs.get_head_size()
    assert decoder.experts == theirs.get_num_experts()
    assert decoder.experts_per_token == arch.num_experts_per_token
    assert (decoder.weight_dtype_bytes == 1) == (theirs.quantization == "fp8")
    assert decoder.dtype_bytes == theirs.dtype.itemsize
    if found.max_model_len:
        assert found.max_model_len == theirs.max_model_len
