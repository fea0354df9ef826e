"""The folder from which vLLM loads a thinker that hears: configuration, processor and tokenizer of a Qwen3-Omni of any
size, made in code. Nothing is fetched, and there are no weights. Folders are named by content, in the user's cache."""

from functools import cache
from typing import Any

from engines.models import Decoder
from engines.models.folder import decoder_config, least_vocab, model_folder, special_tokens, tokenizer_files

ARCHITECTURE = "RehearsalAudioThinker"
"""The name under which `engines.core.vllm_adapter.audio_input` registers the thinker with vLLM."""

AUDIO_START, AUDIO, AUDIO_END = "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>"
_TOKENS = {
    "audio_bos_token": AUDIO_START,
    "audio_token": AUDIO,
    "audio_eos_token": AUDIO_END,
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
}
"""Special tokens by the names under which Qwen3-Omni's processor looks for them."""
LEAST_VOCAB = least_vocab(_TOKENS)

MEL = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "processor_class": "Qwen3OmniMoeProcessor",
    "feature_size": 128,
    "sampling_rate": 16_000,
    "hop_length": 160,
    "n_fft": 400,
    "chunk_length": 300,
    "n_samples": 4_800_000,
    "nb_max_frames": 30_000,
    "padding_side": "right",
    "padding_value": 0.0,
    "dither": 0.0,
    "return_attention_mask": True,
}
"""preprocessor_config.json of the released Qwen3-Omni, without vision: 100 mel frames a second of 16 kHz sound."""


@cache
def omni_folder(decoder: Decoder, max_model_len: int) -> str:
    """Return a folder that vLLM loads as a thinker with this text decoder and its audio_encoder.

    The bytes are tokens 0 to 255, the special tokens the last of `decoder.vocab`. ValueError when the decoder has no
    audio encoder, no experts or too small a vocabulary.
    """
    if decoder.audio_encoder is None or not decoder.experts or decoder.vocab < LEAST_VOCAB:
        raise ValueError(f"a thinker that hears has audio_encoder, experts and a vocabulary of {LEAST_VOCAB} or more")
    special = special_tokens(_TOKENS, decoder.vocab)
    files = {
        "config.json": _config(decoder, max_model_len, special),
        "preprocessor_config.json": MEL,
        **tokenizer_files(_TOKENS, decoder.vocab),
    }
    return model_folder(files)


def _config(decoder: Decoder, max_model_len: int, special: dict[str, int]) -> dict[str, Any]:
    audio_encoder = decoder.audio_encoder
    assert audio_encoder is not None
    half = decoder.head_dim // 2
    spatial = half * 5 // 16  # of the rotary pairs, each for height and width; 24, 20, 20 of 64 in Qwen3-Omni
    text = {
        **decoder_config(decoder, max_model_len),
        "intermediate_size": decoder.ffn or decoder.expert_ffn,
        "moe_intermediate_size": decoder.expert_ffn,
        "num_experts": decoder.experts,
        "num_experts_per_tok": decoder.experts_per_token,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1_000_000.0,
            "mrope_interleaved": True,
            "mrope_section": [half - 2 * spatial, spatial, spatial],
        },
    }
    unused_eyes = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 1,
        "out_hidden_size": decoder.hidden,
        "num_position_embeddings": 4,
        "image_size": 32,
        "apply_vit_abs_pos_embed": True,
        "deepstack_visual_indexes": [],
    }
    thinker = {
        "audio_config": {
            "num_mel_bins": MEL["feature_size"],
            "encoder_layers": audio_encoder.layers,
            "encoder_attention_heads": audio_encoder.heads,
            "encoder_ffn_dim": audio_encoder.ffn,
            "d_model": audio_encoder.hidden,
            "downsample_hidden_size": audio_encoder.channels,
            "output_dim": decoder.hidden,
        },
        "vision_config": unused_eyes,
        "text_config": text,
        "audio_token_id": special[AUDIO],
        "audio_start_token_id": special[AUDIO_START],
        "audio_end_token_id": special[AUDIO_END],
        "image_token_id": special[_TOKENS["image_token"]],
        "video_token_id": special[_TOKENS["video_token"]],
        "position_id_per_seconds": 13,
    }
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3_omni_moe",
        "enable_audio_output": False,
        "dtype": "float32" if decoder.dtype_bytes == 4 else "bfloat16",
        "thinker_config": thinker,
    }
