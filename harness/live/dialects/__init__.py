"""One protocol a module: what a client sends in it, and what the server's events mean."""

from harness.live.dialects.dialect import Dialect
from harness.live.dialects.openai import OpenAI
from harness.live.dialects.rehearsal import Rehearsal
from harness.live.dialects.rtvi import RTVI
from harness.live.dialects.sglang_duplex import SGLangDuplex
from harness.live.dialects.sglang_omni import SGLangOmni
from harness.live.dialects.vllm import VLLM
from harness.live.dialects.vllm_omni import VLLMOmni
from harness.live.target import TargetParams

_ALL = (OpenAI, Rehearsal, VLLM, VLLMOmni, SGLangOmni, SGLangDuplex, RTVI)
DIALECTS: dict[str, type[Dialect]] = {cls.name: cls for cls in _ALL}


def dialect_of(target: TargetParams) -> Dialect:
    """The dialect that `target` names, which must not be auto or text."""
    return DIALECTS[target.dialect](target)
