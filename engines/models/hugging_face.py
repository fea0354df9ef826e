"""A decoder from a config.json as Hugging Face publishes it, by vLLM's rules for reading it."""

from typing import Any

from engines.models import Decoder, LatentAttention
from workloads.errors import UserError

Config = dict[str, Any]

NESTED = ("thinker_config", "text_config", "llm_config", "language_config")
"""Fields of a model that hears or sees that hold the configuration of its decoder; the first may hold the second."""

LATENT = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite")
"""Types of models whose compressed KV vLLM keeps compressed (0.32: `is_deepseek_mla`); for others it expands it."""

PLAIN_FFN = ("falcon", "gpt2", "gpt_bigcode", "gpt_neox", "nemotron", "opt", "phi", "starcoder2")
"""Types of models whose feed-forward has two products; a model's file has three (gate, up, down)."""

QK_NORM = ("gemma3_text", "minimax_m2", "olmo2", "qwen3", "qwen3_moe", "qwen3_omni_moe_text", "qwen3_vl_text")
"""Types of models whose queries and keys are normalised."""

NOT_SAID = {
    "block_configs": "layers that differ from one another",
    "compress_ratios": "KV that is compressed by other ratios from layer to layer",
    "global_head_dim": "heads whose size differs from layer to layer",
    "hybrid_layer_pattern": "heads that differ from layer to layer",
    "hybrid_override_pattern": "layers without attention",
    "layers_block_type": "layers without attention",
    "linear_attn_config": "linear attention",
    "full_attention_interval": "linear attention",
    "attn_layer_period": "layers without attention",
    "mamba_d_state": "layers without attention",
    "ssm_cfg": "layers without attention",
    "cross_attention_layers": "cross attention",
    "is_encoder_decoder": "an encoder and a decoder",
    "num_kv_shared_layers": "layers that share their KV",
    "num_attention_groups": "another name for its KV heads, and sizes that differ from layer to layer",
    "enable_moe_block": "experts and a dense feed-forward in each layer",
    "share_expert_dim": "a dialect of experts that is not known here",
    "num_shared_experts": "a dialect of experts that is not known here",
    "moe_latent_size": "experts on a compressed vector",
    "routed_expert_hidden_size": "experts on a compressed vector",
}
"""Fields of models that a model's file cannot express, and their meaning."""

ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")
"""Kinds of layers that all keep K and V of the same heads."""

MOST_LAYERS, MOST = 10_000, 100_000_000
"""Upper bounds of the number of layers, and of any other number. No model has more, and counting would take long."""

EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
"""Names of the number of experts of a layer: in Qwen, DeepSeek, Mixtral and their successors."""
MODELOPT_FP8 = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO")
PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts")


def text_config(config: Config) -> Config:
    """Return the configuration of the decoder, which a model that hears or sees has inside its own."""
    for name in NESTED:
        if isinstance(config.get(name), dict):
            return text_config(config[name])
    return config


def decoder_of(config: Config, dtype_bytes: int, where: str) -> Decoder:
    """Return the decoder of `text_config`, without host times. `where` opens each sentence: UserError for a field that
    is missing or wrong, and for facts that `Decoder` cannot express."""
    check_said(config, where)
    heads = integer(config, "num_attention_heads", where)
    kv_heads = integer(config, "num_key_value_heads", where, default=heads)
    if heads % kv_heads:
        raise UserError(
            f"{where} has {heads} as num_attention_heads and {kv_heads} as num_key_value_heads, which does not divide "
            "it; use the file it was published with."
        )
    layers, hidden = (
        integer(config, "num_hidden_layers", where, most=MOST_LAYERS),
        integer(config, "hidden_size", where),
    )
    mla = _latent(config, where)
    if mla is not None:
        kv_heads, head_dim = heads, mla.nope + mla.rope
    else:
        head_dim = integer(config, "head_dim", where, default=max(1, hidden // heads))
        if config.get("v_head_dim") not in (None, 0, head_dim):
            raise _unsaid(where, "v_head_dim", config["v_head_dim"], f"a V of another size than K ({head_dim})")
    return Decoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype_bytes=dtype_bytes,
        vocab=integer(config, "vocab_size", where),
        mla=mla,
        qk_norm=config.get("model_type") in QK_NORM,
        **_feed_forward(config, layers, where),
    )


def is_fp8(quantization: Config) -> bool:
    """Return True if the layers' weights have 8 bits in floating point, in one of the formats that vLLM reads."""
    method = method_of(quantization)
    if method == "compressed-tensors":
        groups = quantization.get("config_groups")
        weights = [
            group.get("weights") if isinstance(group, dict) else None
            for group in (groups.values() if isinstance(groups, dict) else ())
        ]
        return bool(weights) and all(
            isinstance(group, dict) and (group.get("type"), group.get("num_bits")) == ("float", 8) for group in weights
        )
    if method == "modelopt":
        return str(_modelopt(quantization).get("quant_algo")).upper() in MODELOPT_FP8
    return method in ("fp8", "fbgemm-fp8")


def method_of(quantization: Config) -> str:
    """Return the method that quantised the weights; empty if none is stated. ModelOpt may be stated only as the file's
    producer."""
    producer = quantization.get("producer")
    if isinstance(producer, dict) and producer.get("name") == "modelopt":
        return "modelopt"
    return str(quantization.get("quant_method") or "").lower().replace("_", "-")


def _modelopt(quantization: Config) -> Config:
    inside = quantization.get("quantization")
    return inside if isinstance(inside, dict) else quantization


def integer(config: Config, name: str, where: str, least: int = 1, default: int | None = None, most: int = MOST) -> int:
    """Return a field that is a whole number; `default`, if there is one, when it is missing or null."""
    value = config.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise UserError(f"{where} lacks {name!r}; use the file it was published with.")
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(
            f"{where} has {_short(value)} as {name}, which should be a whole number from {least} to {most}; use the "
            "file it was published with."
        )
    return value


def listed(config: Config, name: str, where: str) -> list[Any]:
    """Return a field that is a list, empty if it is missing or null."""
    value = config.get(name)
    if value is not None and not isinstance(value, list):
        raise UserError(
            f"{where} has {_short(value)} as {name}, which should be a list; use the file it was published with."
        )
    return value or []


def check_said(config: Config, where: str) -> None:
    """Raise UserError if `Decoder` cannot express the configuration."""
    kind = config.get("model_type")
    if kind in PLAIN_FFN:
        raise _unsaid(where, "model_type", kind, "a feed-forward of two products, without a gate")
    for name, meaning in NOT_SAID.items():
        if config.get(name):
            raise _unsaid(where, name, config[name], meaning)
    if config.get("kv_lora_rank") and kind not in LATENT:
        raise _unsaid(where, "model_type", kind, "compressed KV (kv_lora_rank) that vLLM does not keep so")
    for layer in listed(config, "layer_types", where):
        if layer not in ATTENTION:
            raise _unsaid(where, "layer_types", layer, "layers that keep no KV, or another one")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _unsaid(where: str, name: str, value: Any, meaning: str) -> UserError:
    return UserError(
        f"{where} has {_short(value)} as {name}: {meaning}, which a model's file cannot say; take another model."
    )


def _latent(config: Config, where: str) -> LatentAttention | None:
    if not config.get("kv_lora_rank"):
        return None
    return LatentAttention(
        kv_rank=integer(config, "kv_lora_rank", where),
        rope=integer(config, "qk_rope_head_dim", where),
        nope=integer(config, "qk_nope_head_dim", where),
        v_head=integer(config, "v_head_dim", where),
        query_rank=integer(config, "q_lora_rank", where, least=0, default=0),
    )


def _feed_forward(config: Config, layers: int, where: str) -> dict[str, Any]:
    counted = next((name for name in EXPERTS if config.get(name)), None)
    if counted is None:
        for name, value in config.items():
            if ("expert" in name or "moe" in name) and type(value) is int and value > 1:
                raise _unsaid(where, name, value, "a dialect of experts that is not known here")
        return {"ffn": integer(config, "intermediate_size", where)}
    per_token = next((name for name in PER_TOKEN if config.get(name) is not None), PER_TOKEN[0])
    dialect = _mixtral if counted == "num_local_experts" else _qwen_or_deepseek
    sizes = {
        "experts": integer(config, counted, where),
        "experts_per_token": integer(config, per_token, where),
        **dialect(config, layers, where),
    }
    if sizes["experts_per_token"] > sizes["experts"]:
        raise UserError(
            f"{where} has {sizes['experts_per_token']} as {per_token}, more than the {sizes['experts']} experts; use "
            "the file it was published with."
        )
    return sizes


def _mixtral(config: Config, layers: int, where: str) -> dict[str, int]:
    """Read experts' sizes: `intermediate_size` is an expert's. Llama 4 has a shared expert as large, and experts in
    each n-th layer; MiniMax has its own names for both."""
    width = integer(config, "intermediate_size", where)
    shared = integer(config, "shared_intermediate_size", where, least=0, default=0)
    dense, dense_width = _dense_layers(config, layers, where), "dense_intermediate_size"
    if config.get("interleave_moe_layer_step"):
        step = integer(config, "interleave_moe_layer_step", where)
        shared, dense, dense_width = width, layers - layers // step, "intermediate_size_mlp"
    elif shared and config.get("n_shared_experts"):
        shared *= integer(config, "n_shared_experts", where)
    return {"expert_ffn": width, "shared_ffn": shared, **_dense(config, dense, layers, dense_width, where)}


def _qwen_or_deepseek(config: Config, layers: int, where: str) -> dict[str, int]:
    """Read experts' sizes: `moe_intermediate_size` is an expert's, `intermediate_size` that of layers without; OLMoE
    has only the latter. Shared experts are counted (DeepSeek), or one with a stated size (Qwen)."""
    width_name = "intermediate_size" if config.get("model_type") == "olmoe" else "moe_intermediate_size"
    width = integer(config, width_name, where)
    shared = integer(config, "shared_expert_intermediate_size", where, least=0, default=0)
    shared += integer(config, "n_shared_experts", where, least=0, default=0) * width
    dense = _dense(config, _dense_layers(config, layers, where), layers, "intermediate_size", where)
    return {"expert_ffn": width, "shared_ffn": shared, **dense}


def _dense_layers(config: Config, layers: int, where: str) -> int:
    """Return the number of layers without experts, wherever they are."""
    first = integer(config, "first_k_dense_replace", where, least=0, default=0)
    step = integer(config, "decoder_sparse_step", where, default=1)
    frequency = config.get("moe_layer_freq") or 1
    if isinstance(frequency, list):
        has = [bool(flag) for flag in frequency]
        if len(has) != layers:
            raise UserError(
                f"{where} has {len(has)} entries in moe_layer_freq and {layers} as num_hidden_layers; use the file it "
                "was published with."
            )
    else:
        freq = integer(config, "moe_layer_freq", where, default=1)
        has = [layer % freq == 0 for layer in range(layers)]
    named = listed(config, "mlp_only_layers", where)
    return sum(not has[layer] or layer < first or layer in named or (layer + 1) % step != 0 for layer in range(layers))


def _dense(config: Config, dense: int, layers: int, width: str, where: str) -> dict[str, int]:
    if not dense:
        return {}
    if dense >= layers:
        raise UserError(f"{where} has experts in none of its {layers} layers; use the file it was published with.")
    return {"dense_layers": dense, "ffn": integer(config, width, where)}
