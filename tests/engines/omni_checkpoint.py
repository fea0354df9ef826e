"""A small Qwen3-Omni with random weights, written as the real one is published: thinker, talker and vocoder in
config.json and safetensors, a byte-level Qwen tokenizer, and the settings of its processor.
"""

import json
from pathlib import Path

LETTERS = 256
SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>",
    "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>",
]  # fmt: skip
VOCAB = 320
ID = {token: LETTERS + place for place, token in enumerate(SPECIAL)}
HIDDEN, LAYERS = 64, 2


def write_omni_checkpoint(folder: Path) -> Path:
    """Write it into `folder`, 2 MB in float32; the same weights every time."""
    import torch
    from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

    torch.manual_seed(0)
    model = Qwen3OmniMoeForConditionalGeneration(Qwen3OmniMoeConfig(**_config()))
    for name, weight in model.thinker.named_parameters():
        if weight.dim() > 1:  # of a size with which what was read decides the tokens
            inputs = 1 if "embed_tokens" in name else weight[0].numel()
            torch.nn.init.normal_(weight, std=inputs**-0.5)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def _rope(*sections: int) -> dict:
    return {"rope_type": "default", "rope_theta": 1e6, "mrope_interleaved": True, "mrope_section": sections}


DECODER = {"intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
SMALL = {**DECODER, "hidden_size": 32, "vocab_size": 32, "head_dim": 16}
ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rope_parameters": _rope(6, 5, 5)}
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
VOCABULARY = {"vocab_size": VOCAB, "max_position_embeddings": 65536, "tie_word_embeddings": False}
THINKER = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "intermediate_size": 32}
EARS = {"num_mel_bins": 128, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64}
EYES = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 1, "num_position_embeddings": 4}
PICTURES = {"deepstack_visual_indexes": [0], "image_size": 32, "apply_vit_abs_pos_embed": True}
TALKER_EXPERTS = {"moe_intermediate_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1}
CODES = {"codebook_size": 32, "num_quantizers": 2, "upsample_rates": [2, 2], "upsampling_ratios": [2]}


def _config() -> dict:
    thinker = {
        "text_config": THINKER | ATTENTION | EXPERTS | VOCABULARY,
        "audio_config": EARS | {"d_model": 32, "downsample_hidden_size": 16, "output_dim": HIDDEN},
        "vision_config": EYES | PICTURES | {"out_hidden_size": HIDDEN},
        "position_id_per_seconds": 13,
        **{f"{name}_token_id": ID[f"<|{name}_pad|>"] for name in ("audio", "image", "video")},
        **{f"{name}_start_token_id": ID[f"<|{name}_start|>"] for name in ("audio", "vision")},
        "audio_end_token_id": ID["<|audio_end|>"],
    }
    expert = {"shared_expert_intermediate_size": 16, "rope_parameters": _rope(4, 2, 2)}
    talker = {
        "thinker_hidden_size": HIDDEN,
        "spatial_merge_size": 2,
        "num_code_groups": 2,
        "text_config": SMALL | TALKER_EXPERTS | expert,
        "code_predictor_config": SMALL | {"num_code_groups": 2},
    }
    vocoder = DECODER | CODES | {"hidden_size": 32, "decoder_dim": 32}
    return {"thinker_config": thinker, "talker_config": talker, "code2wav_config": vocoder}


def write_tokenizer(folder: Path) -> None:
    """Its tokenizer and processor alone."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = {letter: place for place, letter in enumerate(sorted(ByteLevel.alphabet()))}
    named = {f"{name}_token": f"<|{name}_pad|>" for name in ("audio", "image", "video")}
    named |= {"audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>"}
    named |= {"vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>"}
    special = {str(place): {"content": token, "special": True} for token, place in ID.items()}
    tokenizer = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    spectrogram = {"feature_size": 128, "sampling_rate": 16000, "hop_length": 160, "n_fft": 400, "dither": 0.0}
    clips = {"chunk_length": 300, "n_samples": 4_800_000, "nb_max_frames": 30_000, "return_attention_mask": True}
    processor = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen3OmniMoeProcessor",
        **{"padding_side": "right", "padding_value": 0.0},
        **{"merge_size": 2, "patch_size": 16, "temporal_patch_size": 2},
    }
    files = {
        "vocab.json": letters,
        "tokenizer_config.json": tokenizer | {"added_tokens_decoder": special, "extra_special_tokens": named},
        "preprocessor_config.json": processor | spectrogram | clips,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "merges.txt").write_text("#version: 0.2\n")
