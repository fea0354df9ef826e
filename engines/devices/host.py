"""What kernels that were measured one by one do not tell of vLLM's steps: the host between them, and kernels in a row.

Numbers for all models and GPUs, each calibrated on one part of real runs and held against the others (`rehearse
fidelity --truth`, docs/fidelity.md); a model's own host times stand in its file, or are `config_file.REQUEST_S`.
"""

from dataclasses import replace

from engines.models import Decoder

PROMPT_STEP = 1.08
"""Kernels of a step that holds prompt tokens, over the same measured one by one: it does not run as one CUDA graph, and
products draw power that lowers the clock. [calibrated] median of the prompts that had the GPU to themselves in a run of
CodeLlama-34B (vLLM 0.11, H100). Decodes alone, which are one graph, take what the kernels take."""

ASYNC_SHARE = 0.25
"""Of the host's time, what still shows where the next step is planned while this one runs. [calibrated] to the mean
inter-token time of one of 18 experiments with vLLM 0.15.1 (Llama-3.1-8B, some 90 requests at once)."""

STEP_NOISE_CV = 0.007
"""Coefficient of variation of a step's time around what it holds. [measured] at most, if one step's is another's no
matter: requests that were alone with the same GPU, by their steps (chunks of 64 tokens, and decodes)."""

API_SERVER_S = 0.002
"""Between a request's arrival at vLLM's API server and its engine, and back with the first token. [calibrated] TTFT
less queue and prefill, by the server's own spans, of the requests that PROMPT_STEP is of: 1.5 to 2.5 ms."""

CALIBRATED_ON = (
    ("jan20-codellama-train-1", "one at a time", "PROMPT_STEP, API_SERVER_S"),
    ("jan20-codellama-train-1", "as many as go", "REQUEST_S"),
    ("46-Llama-3.1-8B-Instruct-tp1-reasoning", "reasoning", "ASYNC_SHARE"),
)
"""(run, its load, constants) of public runs (inference-sim, commit e7a4aa37): all other loads are predictions."""


def as_shown(decoder: Decoder, asynchronous: bool) -> Decoder:
    """The decoder with the host times that show between its steps."""
    if not asynchronous:
        return decoder
    return replace(
        decoder,
        host_s=ASYNC_SHARE * decoder.host_s,
        host_s_per_request=ASYNC_SHARE * decoder.host_s_per_request,
    )
