"""Models are read from config.json as vLLM reads them, or refused in a sentence."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from engines.models import LatentAttention, load_model
from engines.models.config_file import DEFAULTS, as_yaml, read_config
from tests.engines.config_files import DEEPSEEK, FP8, LLAMA, MIXTRAL, QWEN3, QWEN3_MOE, Config, read, written
from workloads.errors import UserError


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (LLAMA, {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336, "vocab": 128256}),
        (LLAMA | {"num_key_value_heads": None}, {"kv_heads": 32}),
        (LLAMA | FP8, {"dtype_bytes": 2, "weight_dtype_bytes": 1}),
        (QWEN3, {"head_dim": 128, "heads": 64}),
        (MIXTRAL, {"experts": 8, "experts_per_token": 2, "expert_ffn": 14336, "ffn": 0, "shared_ffn": 0}),
        (QWEN3_MOE, {"experts": 128, "experts_per_token": 8, "expert_ffn": 768, "ffn": 0, "dense_layers": 0}),
        (QWEN3_MOE | {"mlp_only_layers": [0, 3]}, {"dense_layers": 2, "ffn": 14336}),
        (QWEN3_MOE | {"decoder_sparse_step": 2}, {"dense_layers": 16, "ffn": 14336}),
        (QWEN3_MOE | {"shared_expert_intermediate_size": 5632}, {"shared_ffn": 5632}),
        (DEEPSEEK, {"experts": 64, "shared_ffn": 2816, "dense_layers": 1, "ffn": 14336, "head_dim": 192}),
        (DEEPSEEK | {"moe_layer_freq": [0, 0] + 30 * [1]}, {"dense_layers": 2}),
        (DEEPSEEK | {"q_lora_rank": None}, {"mla": LatentAttention(512, 64, 128, 128, 0)}),
        (
            MIXTRAL | {"model_type": "llama4_text", "interleave_moe_layer_step": 2, "intermediate_size_mlp": 16384},
            {"dense_layers": 16, "ffn": 16384, "shared_ffn": 14336, "expert_ffn": 14336},
        ),
        (MIXTRAL | {"num_experts_per_tok": None, "experts_per_token": 4}, {"experts_per_token": 4}),
    ],
)
def test_each_dialect_gives_the_decoder(tmp_path: Path, change: Config, found: dict[str, Any]) -> None:
    decoder = read(tmp_path, change)
    assert {name: getattr(decoder, name) for name in found} == found


@pytest.mark.parametrize("nest", ["text_config", "llm_config", "thinker_config"])
def test_a_decoder_nested_in_a_multimodal_model_is_found(tmp_path: Path, nest: str) -> None:
    outside: Config = {"architectures": ["New"], "vision_config": {"depth": 2}, "audio_config": {"d_model": 8}}
    inner: Config = {"text_config": LLAMA, "vision_config": {"depth": 2}} if nest == "thinker_config" else LLAMA
    found = read_config(written(tmp_path, outside | {nest: inner}))
    assert found.decoder == read(tmp_path, LLAMA)
    for fact in ("images:", "audio:", "host time:"):
        assert any(fact in each for each in found.unknown)


ALTERNATE = {"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"] * 16}


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (LLAMA | {"sliding_window": 4096}, "sliding window: 4096 tokens in some or all of 32 layers"),
        (LLAMA | ALTERNATE, "sliding window: 512 tokens in 16 of 32 layers"),
        (LLAMA | {"tie_word_embeddings": True}, "tied embeddings: embedding and output head count as two, 1.05 GB"),
        (LLAMA | {"torch_dtype": "float32"}, "set dtype_bytes to 4 where float32 is asked for"),
        (DEEPSEEK | {"index_topk": 2048}, "sparse attention: "),
        (DEEPSEEK | {"num_nextn_predict_layers": 1}, "layers for multi-token prediction: left out"),
    ],
)
def test_a_fact_that_our_models_lack_is_noted(tmp_path: Path, config: Config, note: str) -> None:
    assert any(note in each for each in read_config(written(tmp_path, config)).unknown)


def test_an_unused_window_is_not_noted(tmp_path: Path) -> None:
    [note] = read_config(written(tmp_path, LLAMA | {"sliding_window": 4096, "use_sliding_window": False})).unknown
    assert note.startswith("host time:")


def compressed_tensors(*groups: Any) -> Config:
    return {"quant_method": "compressed-tensors", "config_groups": {str(i): each for i, each in enumerate(groups)}}


MODELOPT: Config = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}


@pytest.mark.parametrize(
    ("quantisation", "said"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "FP8 by modelopt"),
        (MODELOPT, "FP8 by modelopt"),
        (compressed_tensors({"weights": {"type": "float", "num_bits": 8}}), "FP8 by compressed-tensors"),
    ],
)
def test_fp8_weights_take_half_the_bytes(tmp_path: Path, quantisation: Config, said: str) -> None:
    found = read_config(written(tmp_path, LLAMA | {"quantization_config": quantisation}))
    assert found.weights == said and found.decoder.weight_dtype_bytes == 1
    assert found.decoder.weight_bytes < 0.6 * read(tmp_path, LLAMA).weight_bytes


@pytest.mark.parametrize(
    "quantisation",
    [
        {"quant_method": "awq", "bits": 4},
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        compressed_tensors({"weights": {"type": "int", "num_bits": 8}}),
        {"quant_method": "compressed-tensors", "config_groups": [3]},
    ],
)
def test_any_other_quantisation_is_refused(tmp_path: Path, quantisation: Config) -> None:
    path = written(tmp_path, LLAMA | {"quantization_config": quantisation})
    with pytest.raises(UserError, match=r"quantization_config.*take that out"):
        read_config(path)


def test_the_quantisation_of_modelopt_is_read_from_its_own_file(tmp_path: Path) -> None:
    said = MODELOPT | {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    written(tmp_path, said, "hf_quant_config.json")
    written(tmp_path, LLAMA)
    found = read_config(tmp_path)
    assert found.weights == "FP8 by modelopt" and any("quantised KV" in each for each in found.unknown)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        (LLAMA | {"hidden_size": None}, "lacks 'hidden_size'"),
        (LLAMA | {"num_hidden_layers": -1}, "-1 as num_hidden_layers, which should be a whole number from 1"),
        (LLAMA | {"num_hidden_layers": 10**12}, "as num_hidden_layers"),
        (LLAMA | {"vocab_size": True}, "True as vocab_size"),
        (LLAMA | {"num_key_value_heads": 5}, "32 as num_attention_heads and 5 as num_key_value_heads"),
        (LLAMA | {"torch_dtype": "int8"}, "'int8' as dtype"),
        (LLAMA | {"model_type": "gpt_neox"}, "'gpt_neox' as model_type"),
        (LLAMA | {"model_type": "jamba", "mamba_d_state": 16}, "16 as mamba_d_state"),
        (LLAMA | {"layer_types": ["linear_attention"]}, "'linear_attention' as layer_types"),
        (LLAMA | {"layer_types": 3}, "3 as layer_types, which should be a list"),
        (LLAMA | {"model_type": "minicpm3", "kv_lora_rank": 256}, "'minicpm3' as model_type"),
        (LLAMA | {"v_head_dim": 64}, "64 as v_head_dim"),
        (MIXTRAL | {"num_experts_per_tok": 9}, "9 as num_experts_per_tok, more than the 8"),
        (DEEPSEEK | {"first_k_dense_replace": 32}, "experts in none of its 32 layers"),
        (DEEPSEEK | {"moe_layer_freq": [1]}, "1 entries in moe_layer_freq"),
        (LLAMA | {"quantization_config": 3}, "3 as quantization_config"),
    ],
)
def test_an_unreadable_config_is_refused_in_a_sentence(tmp_path: Path, config: Config | str, words: str) -> None:
    path = written(tmp_path, config)
    with pytest.raises(UserError, match=words) as refused:
        read_config(path)
    assert str(path) in str(refused.value) and str(refused.value).endswith(".")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats() | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=5,
)
FIELDS = sorted(
    {*MIXTRAL, *QWEN3_MOE, *DEEPSEEK, "quantization_config", "rope_scaling", "layer_types", "sliding_window"}
    | {"text_config", "tie_word_embeddings", "dtype", "num_mtp_modules", "use_sliding_window", "vision_config"}
)


@given(
    base=st.sampled_from([LLAMA, MIXTRAL, QWEN3_MOE, DEEPSEEK]),
    changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
)
def test_no_field_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, base: Config, changes: Config) -> None:
    path = written(tmp_path_factory.getbasetemp(), base | changes, "any_config.json")
    try:
        found = read_config(path)
    except UserError as refused:
        assert str(refused).endswith(".")
        return
    out = path.with_name("any.yaml")
    out.write_text(as_yaml(found))
    assert load_model(str(out)).stages["thinker"] == found.decoder


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_of_nested_decoders_are_those_of_transformers(kind: str) -> None:
    config, known = CONFIG_MAPPING[kind](), DEFAULTS[kind]
    assert {name: getattr(config, name) for name in known} == known


@pytest.mark.slow("loads model classes of vLLM")
@pytest.mark.parametrize(
    "config",
    [
        *(LLAMA, LLAMA | FP8, LLAMA | {"torch_dtype": "float32"}),
        LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        *(QWEN3, MIXTRAL, QWEN3_MOE, DEEPSEEK, DEEPSEEK | {"q_lora_rank": None}),
    ],
)
def test_vllm_reads_the_same_decoder(tmp_path: Path, config: Config) -> None:
    from vllm.config import ModelConfig

    found = read_config(written(tmp_path, config))
    theirs = ModelConfig(model=str(tmp_path), skip_tokenizer_init=True)
    decoder = found.decoder
    arch = theirs.model_arch_config
    assert (decoder.layers, decoder.hidden) == (arch.total_num_hidden_layers, arch.hidden_size)
    assert (decoder.heads, decoder.vocab) == (arch.total_num_attention_heads, arch.vocab_size)
    assert (decoder.experts, decoder.experts_per_token) == (arch.num_experts, arch.num_experts_per_token)
    if decoder.mla is None:
        assert (decoder.head_dim, decoder.kv_heads) == (theirs.get_head_size(), theirs.get_total_num_kv_heads())
    else:
        assert theirs.use_mla and decoder.mla.kv_rank + decoder.mla.rope == theirs.get_head_size()
    assert (decoder.weight_dtype_bytes == 1) == (theirs.quantization == "fp8")
    assert decoder.dtype_bytes == theirs.dtype.itemsize
    if found.max_model_len:
        assert found.max_model_len == theirs.max_model_len
