"""The folder that vLLM-Omni loads Qwen3-Omni or Qwen3-TTS from: configuration, processor, tokenizer and chat template,
made in code, without weights. On modelled GPUs its layers do not matter, as the executor sizes its pool and its steps
by the deployment. On a real GPU they are the thinker's and the talker's, with weights that vLLM makes up."""

from functools import cache
from typing import Any

from engines.models import Decoder
from engines.models.folder import byte_tokenizer, model_folder
from engines.models.omni import MEL

ARCHITECTURE = "Qwen3OmniMoeForConditionalGeneration"
VOCAB = 151936
END = 151645
"""The thinker's last token, <|im_end|>."""
LAST_FRAME = 2150
"""The talker's last token: a frame that begins with it is none (vllm_omni 0.30.0, models/qwen3_omni/pipeline.py)."""
HIDDEN_LAYER = 24
"""The layer of the thinker that the talker reads (`accept_hidden_layer`)."""

_NAMED = {
    "image_token": ("<|image_pad|>", 151655),
    "audio_token": ("<|audio_pad|>", 151675),
    "video_token": ("<|video_pad|>", 151656),
    "vision_bos_token": ("<|vision_start|>", 151652),
    "vision_eos_token": ("<|vision_end|>", 151653),
    "audio_bos_token": ("<|audio_start|>", 151669),
    "audio_eos_token": ("<|audio_end|>", 151670),
}
"""Special tokens and their ids in Qwen3-Omni, by the names under which its processor looks for them."""
_ROLES = {"<|im_start|>": 151644, "<|im_end|>": END, "system": 8948, "user": 872, "assistant": 77091}
"""Tokens by whose ids vLLM-Omni finds the user's part of a prompt (vllm_omni 0.30.0, distributed/omni_connectors/
adapter.py 193-223). A role is always one token."""

_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{% if part.type == 'text' %}{{ part.text }}{% elif 'audio' in part.type -%}
<|audio_start|><|audio_pad|><|audio_end|>{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_IMAGES = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "merge_size": 2}
_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 64,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
_TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "clean_up_tokenization_spaces": False,
}

THINKER_LAYERS = 16
"""[chosen] of the thinker's 48 on a real GPU: some 20 GB of weights, so that all stages fit into 80 GB."""


@cache
def qwen3_omni_folder(max_model_len: int, sized: tuple[Decoder, ...] = ()) -> str:
    """Return the folder of a model whose stages take `max_model_len` tokens each at most. `sized`: thinker and talker,
    if layers are computed; else they are small."""
    special = dict(_NAMED.values()) | _ROLES
    tokenizer = _TOKENIZER | {
        "extra_special_tokens": {name: token for name, (token, _) in _NAMED.items()},
        "chat_template": _TEMPLATE,
    }
    return model_folder(
        {
            "config.json": _config(max_model_len, sized),
            "preprocessor_config.json": MEL | _IMAGES,
            "video_preprocessor_config.json": {"video_processor_type": "Qwen2VLVideoProcessor"},
            "tokenizer_config.json": tokenizer,
            "tokenizer.json": byte_tokenizer(special, VOCAB),
            "chat_template.json": {"chat_template": _TEMPLATE},
        }
    )


@cache
def qwen3_tts_folder(max_model_len: int) -> str:
    """Return the folder of Qwen3-TTS, with a voice of its own: its requests bring a text and no sound."""
    special = {"<|im_start|>": _ROLES["<|im_start|>"], "<|im_end|>": END}
    talker = {
        "vocab_size": 3072,
        "max_position_embeddings": max_model_len,
        "num_code_groups": 16,
        "position_id_per_seconds": 13,
        "codec_eos_token_id": LAST_FRAME,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_language_id": {"english": 2050},
        "spk_id": {"vivian": 3065},
    }
    return model_folder(
        {
            "config.json": {
                "architectures": ["Qwen3TTSForConditionalGeneration"],
                "model_type": "qwen3_tts",
                "tts_model_type": "custom_voice",
                "dtype": "bfloat16",
                "talker_config": _SMALL | talker,
            },
            "tokenizer_config.json": _TOKENIZER,
            "tokenizer.json": byte_tokenizer(special, VOCAB),
        }
    )


def _sizes(decoder: Decoder, layers: int) -> dict[str, Any]:
    return {
        "hidden_size": decoder.hidden,
        "intermediate_size": decoder.ffn or decoder.expert_ffn,
        "shared_expert_intermediate_size": decoder.shared_ffn,
        "moe_intermediate_size": decoder.expert_ffn,
        "num_experts": decoder.experts,
        "num_experts_per_tok": decoder.experts_per_token,
        "num_hidden_layers": layers,
        "num_attention_heads": decoder.heads,
        "num_key_value_heads": decoder.kv_heads,
        "head_dim": decoder.head_dim,
    }


def _config(max_model_len: int, sized: tuple[Decoder, ...]) -> dict[str, Any]:
    thinker, talker = _SMALL, _SMALL
    if sized:
        thinker, talker = _sizes(sized[0], THINKER_LAYERS), _sizes(sized[1], round(sized[1].layers))
    pairs = thinker["head_dim"] // 2
    part = pairs * 5 // 16
    common = {
        "vocab_size": VOCAB,
        "max_position_embeddings": max_model_len,
        "eos_token_id": END,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_interleaved": True,
            "mrope_section": [pairs - 2 * part, part, part],
        },
    }
    ids = {name: id for name, (_, id) in _NAMED.items()}
    tokens = {
        "audio_token_id": ids["audio_token"],
        "image_token_id": ids["image_token"],
        "video_token_id": ids["video_token"],
        "audio_start_token_id": ids["audio_bos_token"],
        "vision_start_token_id": ids["vision_bos_token"],
        "position_id_per_seconds": 13,
    }
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3_omni_moe",
        "enable_audio_output": True,
        "dtype": "bfloat16",
        "thinker_config": tokens | {"text_config": thinker | common, "audio_end_token_id": ids["audio_eos_token"]},
        "talker_config": tokens
        | {
            "accept_hidden_layer": min(HIDDEN_LAYER, THINKER_LAYERS - 2) if sized else HIDDEN_LAYER,
            "num_code_groups": 16,
            "thinker_hidden_size": thinker["hidden_size"],
            "codec_eos_token_id": LAST_FRAME,
            "text_config": talker | common | {"vocab_size": 3072, "eos_token_id": LAST_FRAME},
        },
    }
