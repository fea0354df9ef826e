"""Speech into a thinker through vLLM's own multimodal path: processor, hashes, encoder, M-RoPE.

The thinker is vLLM's Qwen3-Omni with its audio encoder only. Importing this module registers it with vLLM.
"""

import hashlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers.processing_utils import ProcessorMixin
from vllm.config import VllmConfig
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor

from engines.core.vllm_adapter.multimodal import Encoded, import_model
from engines.models.omni import ARCHITECTURE, AUDIO, AUDIO_END, AUDIO_START

thinker: Any = import_model("qwen3_omni_moe_thinker")


class EarsProcessor(thinker.Qwen3OmniMoeProcessor):
    """Qwen3-Omni's processor of sound and text."""

    def __init__(self, feature_extractor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
        ProcessorMixin.__init__(self, feature_extractor, tokenizer, chat_template=chat_template)
        for name in ("audio", "image", "video", "vision_bos", "vision_eos", "audio_bos", "audio_eos"):
            setattr(self, f"{name}_token", getattr(tokenizer, f"{name}_token"))
        self.image_processor = self.video_processor = SimpleNamespace(merge_size=1)  # asked, never used


class EarsInfo(thinker.Qwen3OmniMoeThinkerProcessingInfo):
    """Processing information that vLLM asks for about the inputs: sound only."""

    def get_hf_processor(self, **kwargs: object) -> EarsProcessor:
        return self.ctx.get_hf_processor(EarsProcessor, **kwargs)

    def get_image_processor(self, **kwargs: object) -> Any:
        return self.get_hf_processor(**kwargs).image_processor

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"audio": None}


class EarsDummyInputs(thinker.Qwen3OmniMoeThinkerDummyInputsBuilder):
    """The input with which vLLM sizes its encoder cache."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return AUDIO * mm_counts.get("audio", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> Any:
        extractor = self.info.get_feature_extractor()
        length = min(extractor.chunk_length, 30) * extractor.sampling_rate
        sounds = self._get_dummy_audios(
            length=length, num_audios=mm_counts.get("audio", 0), overrides=mm_options.get("audio")
        )
        return {"audio": sounds}


@MULTIMODAL_REGISTRY.register_processor(
    thinker.Qwen3OmniMoeThinkerMultiModalProcessor,
    info=EarsInfo,  # type: ignore[arg-type]
    dummy_inputs=EarsDummyInputs,  # type: ignore[arg-type]
)
class AudioThinker(thinker.Qwen3OmniMoeThinkerForConditionalGeneration):
    """vLLM's Qwen3-Omni thinker."""


ModelRegistry.register_model(ARCHITECTURE, AudioThinker)


class AudioProcessor:
    """Turns a user's speech into a piece of a prompt, with the input processing of `vllm_config`'s engine.

    `longest_tokens`: the most tokens that one sound may have.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        self._inputs = InputProcessor(vllm_config)
        self._params = SamplingParams(max_tokens=1, detokenize=False)
        # A sound that is longer than the encoder's cache is refused, and half of a prompt is left to its answer.
        self.longest_tokens: int = min(self._inputs.mm_encoder_cache_size, vllm_config.model_config.max_model_len // 2)
        self.rate_hz: int = self._inputs.renderer.get_mm_processor().info.get_feature_extractor().sampling_rate

    def read(self, text: str) -> list[int]:
        """Return the token ids of a text, special tokens by their names."""
        return self._inputs.get_tokenizer().encode(text, add_special_tokens=False)

    def process(self, pcm: npt.NDArray[np.float32], rate_hz: int) -> Encoded:
        """Turn the sound of one turn (mono, -1 to 1) into tokens: start token, 13 tokens a second, end token.

        Equal sound has the same identifier, so the encoder's output and the KV of a history are found again. The call
        blocks for as long as the features take, and may come from one other thread. ValueError when `rate_hz` is not
        the model's, or the sound is shorter than one token.
        """
        if rate_hz != self.rate_hz:
            raise ValueError(f"the model hears {self.rate_hz} samples/s, not {rate_hz}")
        prompt = {
            "prompt": AUDIO_START + AUDIO + AUDIO_END,
            "multi_modal_data": {"audio": (pcm, rate_hz)},
            "multi_modal_uuids": {"audio": hashlib.sha256(pcm.tobytes()).hexdigest()},
        }
        request = self._inputs.process_inputs("", prompt, self._params, ("generate",), arrival_time=0.0)  # type: ignore[arg-type]
        assert request.prompt_token_ids is not None and request.mm_features is not None
        return Encoded(request.prompt_token_ids, request.mm_features)
