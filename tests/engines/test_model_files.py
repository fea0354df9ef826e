"""Any model by its config.json: read as vLLM reads it, written as our files are, served in the place of another."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from engines.models import Decoder, LatentAttention, load_model, yaml_files
from engines.models.config_file import DEFAULTS, as_yaml, read_config
from engines.models.hugging_face import decoder_of
from engines.models.published import model_of
from engines.server import ServerParams, check_modelled, resolve
from harness.experiment import Experiment, expand
from workloads.errors import UserError

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


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (LLAMA, {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336, "vocab": 128256}),
        (LLAMA | {"num_key_value_heads": None}, {"kv_heads": 32}),
        (LLAMA | {"torch_dtype": "float16"}, {"dtype_bytes": 2, "weight_dtype_bytes": 0}),
        (LLAMA | FP8, {"dtype_bytes": 2, "weight_dtype_bytes": 1}),
        (QWEN3, {"head_dim": 128, "heads": 64}),
        (
            MIXTRAL,
            {"experts": 8, "experts_per_token": 2, "expert_ffn": 14336, "ffn": 0, "shared_ffn": 0},
        ),
        (QWEN3_MOE, {"experts": 128, "experts_per_token": 8, "expert_ffn": 768, "ffn": 0, "dense_layers": 0}),
        (QWEN3_MOE | {"mlp_only_layers": [0, 3]}, {"dense_layers": 2, "ffn": 14336}),
        (QWEN3_MOE | {"decoder_sparse_step": 2}, {"dense_layers": 16, "ffn": 14336}),
        (QWEN3_MOE | {"shared_expert_intermediate_size": 5632}, {"shared_ffn": 5632}),
        (DEEPSEEK, {"experts": 64, "shared_ffn": 2816, "dense_layers": 1, "ffn": 14336, "head_dim": 192}),
        (DEEPSEEK | {"moe_layer_freq": [0, 0] + 30 * [1]}, {"dense_layers": 2}),
        (DEEPSEEK | {"q_lora_rank": None}, {"mla": LatentAttention(512, 64, 128, 128, 0)}),
        (
            MIXTRAL
            | {"model_type": "llama4_text", "interleave_moe_layer_step": 2, "intermediate_size_mlp": 16384},
            {"dense_layers": 16, "ffn": 16384, "shared_ffn": 14336, "expert_ffn": 14336},
        ),
        (MIXTRAL | {"num_experts_per_tok": None, "experts_per_token": 4}, {"experts_per_token": 4}),
    ],
)
def test_dialects_are_understood(tmp_path: Path, change: Config, found: dict[str, Any]) -> None:
    decoder = read(tmp_path, change)
    assert {name: getattr(decoder, name) for name in found} == found


@pytest.mark.parametrize("nest", ["text_config", "llm_config", "thinker_config"])
def test_a_decoder_inside_a_model_that_sees_or_hears_is_found(tmp_path: Path, nest: str) -> None:
    outside: Config = {
        "architectures": ["New"],
        "vision_config": {"depth": 2},
        "audio_config": {"d_model": 8},
    }
    inner: Config = (
        {"text_config": LLAMA, "vision_config": {"depth": 2}} if nest == "thinker_config" else LLAMA
    )
    found = read_config(written(tmp_path, outside | {nest: inner}))
    assert found.decoder == read(tmp_path, LLAMA)
    said = " ".join(found.unknown)
    assert "images:" in said and "audio:" in said and "host time:" in said


@pytest.mark.parametrize(
    ("quantisation", "said"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "FP8 by modelopt"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "FP8 by modelopt"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8}}},
            },
            "FP8 by compressed-tensors",
        ),
        ({"quant_method": "mxfp4"}, None),
        ({"quant_method": "awq", "bits": 4}, None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, None),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"type": "int", "num_bits": 4}}},
            },
            None,
        ),
        ({"quant_method": "compressed-tensors", "config_groups": [3]}, None),
    ],
)
def test_only_fp8_is_another_weight(tmp_path: Path, quantisation: Config, said: str | None) -> None:
    path = written(tmp_path, LLAMA | {"quantization_config": quantisation})
    if said is None:
        with pytest.raises(UserError, match=r"quantization_config.*take that out"):
            read_config(path)
        return
    found = read_config(path)
    assert found.weights == said and found.decoder.weight_dtype_bytes == 1
    assert found.decoder.weight_bytes < 0.6 * read(tmp_path, LLAMA).weight_bytes


def test_modelopt_may_say_it_in_a_file_beside(tmp_path: Path) -> None:
    said = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    }
    written(tmp_path, said, "hf_quant_config.json")
    written(tmp_path, LLAMA)
    found = read_config(tmp_path)
    assert found.weights == "FP8 by modelopt" and any("quantised KV" in each for each in found.unknown)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "holds no object"),
        ("[" * 100_000, "is no JSON"),
        ({}, "lacks 'num_attention_heads'"),
        (LLAMA | {"hidden_size": None}, "lacks 'hidden_size'"),
        (LLAMA | {"num_hidden_layers": -1}, "-1 as num_hidden_layers, which should be a whole number from 1"),
        (LLAMA | {"num_hidden_layers": 10**12}, "as num_hidden_layers"),
        (LLAMA | {"vocab_size": True}, "True as vocab_size"),
        (LLAMA | {"vocab_size": 3.5}, "3.5 as vocab_size"),
        (LLAMA | {"intermediate_size": [1, 2]}, "as intermediate_size"),
        (LLAMA | {"num_key_value_heads": 5}, "32 as num_attention_heads and 5 as num_key_value_heads"),
        (LLAMA | {"torch_dtype": "int8"}, "'int8' as dtype"),
        (LLAMA | {"model_type": "gpt_neox"}, "'gpt_neox' as model_type"),
        (LLAMA | {"model_type": "jamba", "mamba_d_state": 16}, "16 as mamba_d_state"),
        (LLAMA | {"layer_types": ["linear_attention"]}, "'linear_attention' as layer_types"),
        (LLAMA | {"layer_types": 3}, "3 as layer_types, which should be a list"),
        (LLAMA | {"model_type": "minicpm3", "kv_lora_rank": 256}, "'minicpm3' as model_type"),
        (LLAMA | {"v_head_dim": 64}, "64 as v_head_dim"),
        (LLAMA | {"moe_num_experts": 64}, "64 as moe_num_experts"),
        (MIXTRAL | {"num_experts_per_tok": 9}, "9 as num_experts_per_tok, more than the 8"),
        (DEEPSEEK | {"first_k_dense_replace": 32}, "experts in none of its 32 layers"),
        (DEEPSEEK | {"moe_layer_freq": [1]}, "1 entries in moe_layer_freq"),
        (DEEPSEEK | {"v_head_dim": None}, "lacks 'v_head_dim'"),
        (LLAMA | {"quantization_config": 3}, "3 as quantization_config"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path: Path, config: Config | str, words: str) -> None:
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
    | {
        "text_config",
        "tie_word_embeddings",
        "dtype",
        "num_mtp_modules",
        "use_sliding_window",
        "vision_config",
    }
)


@given(
    base=st.sampled_from([LLAMA, MIXTRAL, QWEN3_MOE, DEEPSEEK]),
    changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
)
def test_no_field_ever_makes_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, base: Config, changes: Config
) -> None:
    path = written(tmp_path_factory.getbasetemp(), base | changes, "any_config.json")
    try:
        found = read_config(path)
    except UserError as refused:
        assert str(refused).endswith(".")
        return
    out = path.with_name("any.yaml")
    out.write_text(as_yaml(found))
    assert load_model(str(out)).stages["thinker"] == found.decoder


@pytest.mark.parametrize(
    "config", [LLAMA, LLAMA | FP8, MIXTRAL, QWEN3_MOE | {"mlp_only_layers": [1]}, DEEPSEEK]
)
def test_what_is_written_is_what_was_read(tmp_path: Path, config: Config) -> None:
    found = read_config(written(tmp_path, config), "who/Model-1.5")
    path = tmp_path / found.file_name
    path.write_text(as_yaml(found))
    model = load_model(str(path))
    assert model.name == "model_1_5" == path.stem
    assert model.stages == {"thinker": found.decoder} and model.max_model_len == 8192


def test_the_known_models_are_what_their_files_say() -> None:
    sizes = {
        "meta-llama/Llama-2-7b-hf": 6.74,
        "meta-llama/Llama-2-13b-hf": 13.02,
        "meta-llama/Llama-2-70b-chat-hf": 68.98,
        "meta-llama/Llama-3.1-405B": 405.85,
        "codellama/CodeLlama-34b-Instruct-hf": 33.74,
        "mistralai/Mistral-7B-v0.1": 7.24,
        "mistralai/Mixtral-8x7B-v0.1": 46.70,
        "Qwen/Qwen2.5-7B-Instruct": 7.62,
        "Qwen/Qwen2.5-14B": 14.77,
        "Qwen/Qwen2.5-32B": 32.76,
        "Qwen/Qwen2.5-72B": 72.71,
        "Qwen/Qwen3-8B": 8.19,
        "qwen/qwen3-14b": 14.77,
        "Qwen/Qwen3-32B": 32.76,
        "Qwen/Qwen3-30B-A3B": 30.53,
    }  # billions of parameters, as the models' cards say
    for name, billions in sizes.items():
        model = model_of(name)
        assert model is not None, name
        (decoder,) = model.stages.values()
        assert decoder.weight_bytes / 2 / 1e9 == pytest.approx(billions, rel=0.001), name
    assert model_of("Qwen/Qwen3-8B-Unknown") is None


def test_every_model_of_ours_is_one(tmp_path: Path) -> None:
    for name, file in yaml_files("models").items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(file.read_text())
        assert load_model(str(path)) == load_model(name)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("value: 32,", "value: -32,", "layers is -32"),
        ("value: 32,", "value: many,", "layers is 'many'"),
        ("value: 32,", "value: 32.5,", "layers is 32.5"),
        ("value: 32,", "value: .inf,", "layers is inf"),
        (', source: "[config] llama"', "", "has no source"),
        ("hidden:", "hiden:", "hiden"),
        ("value: 8,", "value: 7,", "kv_heads is 7"),
        ("dtype_bytes: {value: 2", "dtype_bytes: {value: 3", "dtype_bytes is 3"),
        ("stages:", "stage:", "no stages"),
        ("  thinker:", "  - thinker:", "no stages"),
        ("audio: null", "audio: [", "not valid YAML"),
    ],
)
def test_a_file_that_is_none_is_refused_in_a_sentence(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = as_yaml(read_config(written(tmp_path, LLAMA)))
    assert old in text
    path = written(tmp_path, text.replace(old, new, 1), "model.yaml")
    with pytest.raises(UserError, match=words) as refused:
        load_model(str(path))
    assert str(path) in str(refused.value)


def file_of(folder: Path, config: Config) -> str:
    path = folder / "mine.yaml"
    path.write_text(as_yaml(read_config(written(folder, config))))
    return str(path)


def test_a_model_is_served_in_the_place_of_the_deployments_own(tmp_path: Path) -> None:
    own = resolve(ServerParams(deployment="llama_8b_h100"))
    params = ServerParams(
        deployment="llama_8b_h100", model=file_of(tmp_path, LLAMA | {"num_hidden_layers": 16})
    )
    other = resolve(params)
    stage, usual = other.stages["thinker"], own.stages["thinker"]
    assert stage.decoder.layers == 16 and other.model.stages == {"thinker": stage.decoder}
    assert other.model.name == "mine" and other.name == own.name
    assert stage.max_num_seqs == usual.max_num_seqs and stage.kv_blocks > 2 * usual.kv_blocks
    assert stage.max_model_len == 8192 < usual.max_model_len
    named = resolve(ServerParams(deployment="llama_8b_h100", model="qwen2_5_14b"))
    assert named.stages["thinker"].decoder == load_model("qwen2_5_14b").stages["thinker"]
    scaled = resolve(params.model_copy(update={"scale": "thinker.layers=2.0"}))
    assert scaled.stages["thinker"].decoder == replace(stage.decoder, layers=32)


def test_its_own_model_changes_nothing() -> None:
    own = resolve(ServerParams(deployment="llama_8b_h100"))
    assert resolve(ServerParams(deployment="llama_8b_h100", model="llama_3_1_8b")) == own
    assert "model" not in ServerParams().model_dump() and "model_facts" not in ServerParams().model_dump()


@pytest.mark.parametrize(
    ("deployment", "model", "words"),
    [
        ("qwen3_omni_2gpu", "llama_3_1_8b", "has thinker, talker, vocoder"),
        ("llama_8b_h100", "qwen3_omni_30b_a3b", "has the stages thinker, talker, vocoder"),
        ("qwen3_omni_pro6000", "llama_3_1_8b", "hears"),
        ("cogagent_a6000", "llama_3_1_8b", "sees"),
        ("deepseek_r1_6p8_1d32", "llama_3_1_8b", "step times|splits"),
        ("llama_70b_4xh100", "qwen2_5_7b", None),
        ("llama_8b_h100", "deepseek_r1", "leaves no memory"),
        ("llama_8b_h100", "nope", "unknown model 'nope'"),
    ],
)
def test_what_cannot_take_its_place_is_refused(deployment: str, model: str, words: str | None) -> None:
    def resolved() -> None:
        resolve(ServerParams(deployment=deployment, model=model))

    if words is None:
        resolved()
        return
    with pytest.raises(ValueError, match=words):
        resolved()


def test_a_real_device_and_a_measured_profile_have_their_own_model() -> None:
    params = ServerParams(deployment="llama_tiny", model="llama_small")
    for device, measured in (("cpu", ()), ("virtual", ("thinker",))):
        with pytest.raises(UserError, match="leave model out"):
            check_modelled(params, device, measured)
    check_modelled(params, "virtual", ())
    with pytest.raises(UserError, match="model and checkpoint are both set"):
        resolve(params.model_copy(update={"checkpoint": "/nowhere"}))


def points(model: str | None) -> list[Any]:
    chosen = {"modality": "text", "reply": "text", "requests": 2, "deployment": "llama_8b_h100"}
    more = {} if model is None else {"model": model}
    return expand(Experiment(name="x", engines=["vllm_omni"], workload="poisson", set=chosen | more))


def test_a_point_stands_for_what_the_file_held(tmp_path: Path) -> None:
    path = file_of(tmp_path, LLAMA)
    (first,) = points(path)
    assert first.label == points(None)[0].label and first.id != points(None)[0].id
    file_of(tmp_path, LLAMA | {"num_hidden_layers": 16})
    (second,) = points(path)
    assert second.id != first.id
    file_of(tmp_path, LLAMA)
    assert points(path)[0].id == first.id
    os.remove(path)
    kept = type(second).model_validate_json(second.model_dump_json())
    assert kept.id == second.id
    assert resolve(ServerParams.of(kept.server_params)).stages["thinker"].decoder.layers == 16


def test_what_is_left_out_inside_another_is_what_transformers_has() -> None:
    for kind, known in DEFAULTS.items():
        config = CONFIG_MAPPING[kind]()
        assert {name: getattr(config, name) for name in known} == known, kind
    outer = {"text_config": {"model_type": "llama", "vocab_size": 32064}}
    assert decoder_of({**LLAMA, **DEFAULTS["llama"]}, 2, "x").hidden == 4096
    with pytest.raises(UserError, match="lacks 'num_attention_heads'"):
        decoder_of(outer["text_config"], 2, "x")


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
