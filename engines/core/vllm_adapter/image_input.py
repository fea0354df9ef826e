"""Pictures into a model through vLLM's own multimodal path: processor, hashes, encoder, M-RoPE.

The model is vLLM's Qwen2-VL, for pictures only. Importing this module registers it with vLLM.
"""

import hashlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL.Image import fromarray
from transformers.processing_utils import ProcessorMixin
from vllm.config import VllmConfig
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor

from engines.core.vllm_adapter.multimodal import Encoded, import_model
from engines.models.vision import ARCHITECTURE, IMAGE, VISION_END, VISION_START

seeing: Any = import_model("qwen2_vl")


class EyesProcessor(seeing.Qwen2VLProcessor):
    """Qwen2-VL's processor of pictures and text."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)
        for name in ("image", "video"):
            token = getattr(tokenizer, f"{name}_token")
            setattr(self, f"{name}_token", token)
            setattr(self, f"{name}_token_id", tokenizer.convert_tokens_to_ids(token))
        self.video_processor = SimpleNamespace(merge_size=image_processor.merge_size)  # asked, never used


class EyesInfo(seeing.Qwen2VLProcessingInfo):
    """Processing information that vLLM asks for about the inputs: pictures only."""

    def get_hf_processor(self, **kwargs: object) -> EyesProcessor:
        return self.ctx.get_hf_processor(EyesProcessor, **kwargs)

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"image": None}


class EyesDummyInputs(seeing.Qwen2VLDummyInputsBuilder):
    """The input with which vLLM sizes its encoder cache."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return IMAGE * mm_counts.get("image", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> Any:
        width, height = self.info.get_image_size_with_most_features()
        count, overrides = mm_counts.get("image", 0), mm_options.get("image")
        return {"image": self._get_dummy_images(width=width, height=height, num_images=count, overrides=overrides)}


@MULTIMODAL_REGISTRY.register_processor(
    seeing.Qwen2VLMultiModalProcessor,
    info=EyesInfo,  # type: ignore[arg-type]
    dummy_inputs=EyesDummyInputs,  # type: ignore[arg-type]
)
class VisionModel(seeing.Qwen2VLForConditionalGeneration):
    """vLLM's Qwen2-VL."""


ModelRegistry.register_model(ARCHITECTURE, VisionModel)


class ImageProcessor:
    """Turns a user's picture into a piece of a prompt, with the input processing of `vllm_config`'s engine."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        self._inputs = InputProcessor(vllm_config)
        self._params = SamplingParams(max_tokens=1, detokenize=False)

    def process(self, pixels: npt.NDArray[np.uint8]) -> Encoded:
        """Turn a picture (height, width, 3) into tokens: start token, a token for each merged patch, end token.

        Equal pictures have the same identifier, so the encoder's output and the KV of a prompt are found again. A
        picture is scaled to whole patches, and down if it has more tokens than the model takes.
        """
        prompt = {
            "prompt": VISION_START + IMAGE + VISION_END,
            "multi_modal_data": {"image": fromarray(pixels)},
            "multi_modal_uuids": {"image": hashlib.sha256(pixels.tobytes()).hexdigest()},
        }
        request = self._inputs.process_inputs("", prompt, self._params, ("generate",), arrival_time=0.0)  # type: ignore[arg-type]
        assert request.prompt_token_ids is not None and request.mm_features is not None
        return Encoded(request.prompt_token_ids, request.mm_features)
