"""The folder from which vLLM loads a model that sees: configuration, processor and tokenizer of a Qwen2-VL of any size,
made in code. Nothing is fetched, and there are no weights. Folders are named by content, in the user's cache."""

from functools import cache
from typing import Any

from engines.models import Decoder
from engines.models.folder import END, decoder_config, least_vocab, model_folder, special_tokens, tokenizer_files

ARCHITECTURE = "RehearsalVisionModel"
"""The name under which `engines.core.vllm_adapter.image_input` registers the model with vLLM."""

VISION_START, IMAGE, VISION_END = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"
_TOKENS = {
    "image_token": IMAGE,
    "video_token": "<|video_pad|>",
    "vision_bos_token": VISION_START,
    "vision_eos_token": VISION_END,
}
LEAST_VOCAB = least_vocab(_TOKENS)


@cache
def vision_folder(decoder: Decoder, max_model_len: int) -> str:
    """Return a folder that vLLM loads as a model with this text decoder and its vision_encoder.

    The bytes are tokens 0 to 255, the special tokens the last of `decoder.vocab`; a picture has at most half of
    `max_model_len` tokens. ValueError for a decoder for which vLLM has no such model.
    """
    eyes = decoder.vision_encoder
    if eyes is None or decoder.experts or decoder.vocab < LEAST_VOCAB or eyes.ffn % eyes.hidden:
        raise ValueError(
            "a model that sees has a vision_encoder, whose ffn is a multiple of its hidden, no experts and a "
            f"vocabulary of {LEAST_VOCAB} or more"
        )
    special = special_tokens(_TOKENS, decoder.vocab)
    pixels = (eyes.patch * eyes.merge) ** 2
    pictures = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
        "patch_size": eyes.patch,
        "merge_size": eyes.merge,
        "temporal_patch_size": 2,
        "min_pixels": 4 * pixels,
        "max_pixels": max_model_len // 2 * pixels,
    }
    files = {
        "config.json": _config(decoder, max_model_len, special),
        "preprocessor_config.json": pictures,
        **tokenizer_files(_TOKENS, decoder.vocab),
    }
    return model_folder(files)


def _config(decoder: Decoder, max_model_len: int, special: dict[str, int]) -> dict[str, Any]:
    eyes = decoder.vision_encoder
    assert eyes is not None
    half = decoder.head_dim // 2
    spatial = half * 3 // 8  # of the rotary pairs, each for height and width; 16, 24, 24 of 64 in Qwen2-VL
    text = {
        "model_type": "qwen2_vl_text",
        **decoder_config(decoder, max_model_len),
        "intermediate_size": decoder.ffn,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": special[END],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1_000_000.0,
            "mrope_section": [half - 2 * spatial, spatial, spatial],
        },
    }
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen2_vl",
        "dtype": "float32" if decoder.dtype_bytes == 4 else "bfloat16",
        "text_config": text,
        "vision_config": {
            "model_type": "qwen2_vl_vision",
            "depth": eyes.layers,
            "embed_dim": eyes.hidden,
            "hidden_size": decoder.hidden,
            "num_heads": eyes.heads,
            "mlp_ratio": eyes.ffn // eyes.hidden,
            "patch_size": eyes.patch,
            "spatial_merge_size": eyes.merge,
            "temporal_patch_size": 2,
        },
        "image_token_id": special[IMAGE],
        "video_token_id": special[_TOKENS["video_token"]],
        "vision_start_token_id": special[VISION_START],
        "vision_end_token_id": special[VISION_END],
        "tie_word_embeddings": False,
    }
