"""Code that sound and pictures share on their way through vLLM's multimodal path.

vLLM's modules of vision models import torchvision, whose builds break vLLM on a CPU torch. They need it for a function
of plain arithmetic. transformers also has that function, with the same class for pictures, in a module without
torchvision. That module replaces it while vLLM's is imported.
"""

import sys
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from transformers.utils import logging
from vllm.multimodal.inputs import MultiModalFeatureSpec

_IMAGES = "transformers.models.qwen2_vl.image_processing_qwen2_vl"
_IMAGES_WITHOUT_TORCHVISION = "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl"


def import_model(name: str) -> Any:
    """Import vLLM's module of a model, without torchvision."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # or it says that torchvision is missed
    stands_in = _IMAGES not in sys.modules
    if stands_in:
        sys.modules[_IMAGES] = import_module(_IMAGES_WITHOUT_TORCHVISION)
    try:
        return import_module(f"vllm.model_executor.models.{name}")
    finally:
        logging.set_verbosity(verbosity)
        if stands_in:
            del sys.modules[_IMAGES]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A piece of a prompt: its token ids and, for sound or a picture, vLLM's features with offsets into these ids."""

    token_ids: list[int]
    features: list[MultiModalFeatureSpec]

    def at(self, offset: int) -> list[MultiModalFeatureSpec]:
        """Return the features of this piece when it begins at token `offset` of a prompt."""
        return [
            replace(feature, mm_position=replace(feature.mm_position, offset=feature.mm_position.offset + offset))
            for feature in self.features
        ]


def last(
    token_ids: list[int], features: list[MultiModalFeatureSpec], room: int
) -> tuple[list[int], list[MultiModalFeatureSpec]]:
    """The end of a prompt with its features, at most `room` tokens; a clip at the cut goes whole, with its end."""
    cut = len(token_ids) - room
    for feature in features:
        place = feature.mm_position
        if place.offset <= cut:  # its start token stands before it
            cut = max(cut, place.offset + place.length + 1)
    kept = [feature for feature in features if feature.mm_position.offset >= cut]
    return token_ids[cut:], Encoded([], kept).at(-cut)
