"""The facts of a real checkpoint: its decoder, and an audio encoder if it has one, from config.json as published."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.models import AudioEncoder, Decoder
from engines.models.hugging_face import decoder_of, is_fp8, text_config
from workloads.errors import UserError

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
)
"""Decoder-only models whose layers the interruption can hook."""

OMNI = "Qwen3OmniMoeForConditionalGeneration"
"""Thinker, talker and vocoder in one checkpoint; only the thinker is served: it hears, and writes text."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
HOST_S = 0.0015
"""[chosen] host time of a step when the checkpoint is modelled without a profile, as llama_3_1_8b."""


def read_checkpoint(path: str) -> Decoder:
    """Return the decoder of a checkpoint; for an omni model the thinker's, with audio_encoder.

    UserError when the folder has no readable config.json or an architecture that is not supported.
    """
    folder = Path(path)
    try:
        config = json.loads((folder / "config.json").read_text())
        if not isinstance(config, dict):
            raise ValueError("it holds no object")
    except (OSError, RecursionError, ValueError):
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
    where = f"checkpoint {path}: config.json"
    decoder = replace(decoder_of(text_config(config), DTYPE_BYTES[dtype], where), host_s=HOST_S)
    if architecture != OMNI:
        return decoder
    try:
        audio_encoder = _audio_encoder(config["thinker_config"]["audio_config"])
    except KeyError as missing:
        raise UserError(f"{where} lacks {missing}; use the file it was published with.") from None
    quantised = is_fp8(config.get("quantization_config") or {})
    return replace(decoder, audio_encoder=audio_encoder, weight_dtype_bytes=int(quantised))


def _audio_encoder(config: dict[str, Any]) -> AudioEncoder:
    return AudioEncoder(
        layers=config["encoder_layers"],
        hidden=config["d_model"],
        heads=config["encoder_attention_heads"],
        ffn=config["encoder_ffn_dim"],
        channels=config["downsample_hidden_size"],
    )
