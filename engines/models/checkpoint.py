"""The facts of a real checkpoint: its decoder, and an audio encoder if it has one, from config.json as published."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.models import AudioEncoder, Decoder
from workloads.errors import UserError

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
)
"""Decoder-only models whose layers the interruption knows how to hook."""

OMNI = "Qwen3OmniMoeForConditionalGeneration"
"""Thinker, talker and vocoder in one checkpoint, of which the thinker is served: it hears, and says text."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
HOST_S = 0.0015
"""[chosen] host time of a step when the checkpoint is modelled without a profile, as llama_3_1_8b."""


def read_checkpoint(path: str) -> Decoder:
    """Its decoder, of an omni model the thinker's, with audio_encoder.

    UserError when the folder has no readable config.json or an architecture that is not supported.
    """
    folder = Path(path)
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        raise UserError(
            f"checkpoint {path} has no readable config.json; give the folder that holds config.json and *.safetensors."
        ) from None
    architecture = (config.get("architectures") or ["none"])[0]
    if architecture not in (*ARCHITECTURES, OMNI):
        raise UserError(
            f"checkpoint {path} is of architecture {architecture}; supported are {', '.join((*ARCHITECTURES, OMNI))}."
        )
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    if dtype not in DTYPE_BYTES:
        raise UserError(
            f"checkpoint {path} has weights of type {dtype}; convert it to one of {', '.join(DTYPE_BYTES)}."
        )
    try:
        if architecture != OMNI:
            return _decoder(config, DTYPE_BYTES[dtype])
        thinker = config["thinker_config"]
        decoder = _decoder(thinker["text_config"], DTYPE_BYTES[dtype])
        return replace(
            decoder,
            audio_encoder=_audio_encoder(thinker["audio_config"]),
            weight_dtype_bytes=_quantised(config),
        )
    except KeyError as missing:
        raise UserError(
            f"checkpoint {path}: config.json lacks {missing}; use the file it was published with."
        ) from None


def _audio_encoder(config: dict[str, Any]) -> AudioEncoder:
    return AudioEncoder(
        layers=config["encoder_layers"],
        hidden=config["d_model"],
        heads=config["encoder_attention_heads"],
        ffn=config["encoder_ffn_dim"],
        channels=config["downsample_hidden_size"],
    )


def _quantised(config: dict[str, Any]) -> int:
    """Bytes of a layer's weight where it is FP8, as of the published FP8 checkpoints; else 0, as `Decoder` has it."""
    return 1 if (config.get("quantization_config") or {}).get("quant_method") == "fp8" else 0


def _decoder(config: dict[str, Any], dtype_bytes: int) -> Decoder:
    heads, experts = config["num_attention_heads"], config.get("num_experts", 0)
    return Decoder(
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        dtype_bytes=dtype_bytes,
        vocab=config["vocab_size"],
        ffn=0 if experts else config["intermediate_size"],
        experts=experts,
        experts_per_token=config["num_experts_per_tok"] if experts else 0,
        expert_ffn=config["moe_intermediate_size"] if experts else 0,
        host_s=HOST_S,
    )
