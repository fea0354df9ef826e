"""Our whole steps over the package's own, for models that it knows by name: `python -m
tools.whole_models [GPU ...]` prints the median, the lowest and the highest, by GPU and phase.

Ours are read off the grids that come with Rehearsal and are sums of single kernels; the package's are of the models as
it writes them itself, so that a kernel which ours leave out shows. Needs the package of
`engines.devices.kernels.aiconfigurator`.
"""

import logging
import sys
from collections.abc import Iterator

import numpy as np

from engines.devices.kernels.aiconfigurator import SYSTEMS
from engines.devices.kernels.choose import shipped
from engines.devices.kernels.times import GridTimes
from workloads.optional import optional

MODELS = {"llama_3_1_8b": "meta-llama/Meta-Llama-3.1-8B"}
REQUESTS, CONTEXTS = (1, 4, 8, 16, 32, 64, 128), (128, 512, 2048, 8192)
TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192)


def ratios(model: str, gpu: str) -> Iterator[tuple[str, float]]:
    """(phase, ours over the package's) over decodes of each number of requests and context, and lone prompts."""
    kernels = shipped(model, gpu)
    assert kernels is not None, f"no kernels of {model} on {gpu} come with Rehearsal"
    engine = optional("aiconfigurator_core.sdk.engine", "kernels")
    theirs = engine.EngineHandle.compile(MODELS[model], SYSTEMS[gpu], "vllm", tp_size=1)
    ours = GridTimes(next(each for each in kernels.kernels if each.gpus == 1))
    for requests in REQUESTS:
        for context in CONTEXTS:
            yield (
                "decode",
                ours.decode_step_ms(requests, context) / theirs.predict_decode_latency(requests, context),
            )
    for tokens in TOKENS:
        yield "prefill", ours.prompt_step_ms(tokens, 0) / theirs.predict_prefill_latency(1, tokens)


def main() -> None:
    logging.disable(logging.WARNING)  # which of its tables it fills in for others
    for model in MODELS:
        for gpu in sys.argv[1:] or SYSTEMS:
            by_phase: dict[str, list[float]] = {}
            for phase, ratio in ratios(model, gpu):
                by_phase.setdefault(phase, []).append(ratio)
            said = ", ".join(
                f"{phase} {np.median(found):.3f} ({min(found):.3f} to {max(found):.3f})"
                for phase, found in by_phase.items()
            )
            print(f"{model} on {gpu}: {said}", flush=True)


if __name__ == "__main__":
    main()
