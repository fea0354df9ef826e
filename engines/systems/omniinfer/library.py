"""The library of systems whose prompts and decodes are served by instances of their own."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from engines.speaking.library import Speaking
from engines.speaking.params import SpeakingParams


class DividedParams(SpeakingParams):
    """Besides, what becomes of experts and attention on decode replicas."""

    placement: str = Field("balanced", description="where the experts of a group of dies stand")
    attention: str = Field("full", description="what decode replicas keep of KV, and attend to")


class Divided(Speaking):
    """See `engines.composition.Library`."""

    seams = ("order", "kv", "placement", "attention")
    plain = ("prefill", "decode", "routing", "decode_routing")
    Params = DividedParams

    def unused(self, params: SpeakingParams, chosen: Mapping[str, Any]) -> dict[str, str]:
        return {"host_kv_gb": "replicas that hand KV over keep none in host memory; leave it out"}


DIVIDED = Divided()
"""What can be chosen of every system of prefill and decode replicas."""
