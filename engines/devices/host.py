"""Times of vLLM's steps that kernels measured one by one do not show: the host between them, and kernels in a row.

The numbers hold for all models and GPUs. Each is calibrated on one part of real runs and compared with the others
(`rehearse fidelity --measured-runs`, docs/fidelity.md). A model's own host times are in its file, or are
`config_file.STEP_S` and `REQUEST_S`.
"""

from dataclasses import replace

from engines.models import Decoder

PROMPT_STEP = 0.08
"""Kernels of a step of prompt tokens take longer by this share than the same kernels measured one by one: the step does
not run as one CUDA graph, and products draw power that lowers the clock. [calibrated] median of the prompts that had
the GPU to themselves in a run of CodeLlama-34B (vLLM 0.11, H100). Decodes alone, which are one graph, take the kernels'
time. A step of both is between, by its share of prompt tokens."""

FOUR_GPU_ALLREDUCE = 1.29
"""vLLM's own all-reduces over four GPUs, relative to the same measured one by one. [calibrated] on two loads
of Llama-2-70B on H100s, with host times (`python -m tools.fit_host`)."""

OWN_ALLREDUCE_BYTES = 8 << 20
"""vLLM's own kernel reduces smaller messages, NCCL those of this size and larger: vLLM 0.32.0, `max_size` in
vllm/distributed/device_communicators/custom_all_reduce.py."""

MHA_DECODES = 0.90
"""Attention of decodes in which each query head has its own K and V, relative to the same measured one by one.
[calibrated] on five loads of Llama-2-7B on an H100, with host times."""

STEP_NOISE_CV = 0.007
"""Coefficient of variation of a step's time around the model's, independent from step to step. [measured] by quartiles
of 5,040 times between tokens, requests alone: 0.6 and 0.7 % (Qwen2.5-0.5B, RTX 5070 Ti, files day02_c1 and day06_c1 of
github.com/pillaiharish/llm-serving-performance-lab, commit 452bb56b). With other requests, around a running median,
0.9 % of 548, left out (Qwen3-8B, H100, vLLM 0.10.1, validate_qwen3-8b of github.com/grantwilkins/powertrace-sim, commit
96361efb)."""

API_SERVER_S = 0.002
"""Between a request's arrival at vLLM's API server and its engine, and back with the first token. [calibrated] TTFT
less queue and prefill, by the server's own spans, of the requests that PROMPT_STEP is of: 1.5 to 2.5 ms."""

API_SERVER_S_PER_REPLY = 0.000155
"""More of the same for each reply in progress. One process sends all tokens of a step, one after the other, and those
of the newest request last. [calibrated] with host times; either campaign alone says 0.13 to 0.17 ms."""

CALIBRATED_ON = (
    ("jan20-codellama-", "PROMPT_STEP, API_SERVER_S, host times"),
    ("known_loads-20260217-155451-llama-2-7b", "MHA_DECODES, host times"),
    ("known_loads-20260217-162547-llama-2-7b", "MHA_DECODES, host times"),
    ("known_loads-20260217-231439-llama-2-7b", "MHA_DECODES, host times"),
    ("known_loads-20260217-202857-llama-2-70b", "FOUR_GPU_ALLREDUCE, host times"),
    ("known_loads-20260218-120914-mixtral-8x7b", "FEW_EXPERTS, host times"),
    ("known_loads-20260218-130541-mixtral-8x7b", "FEW_EXPERTS, host times"),
    ("known_loads-20260218-141024-mixtral-8x7b", "host times"),
    ("known_loads-20260218-150956-codellama-34b", "host times"),
    *((f"{number}-Llama-3.1-8B-", "host times") for number in (16, 18, 19, 22, 23, 24, 25, 26, 46)),
)
"""(begin of a run's name, constants) of public runs (inference-sim, commit e7a4aa37). `python -m tools.fit_host` prints
the error of each campaign with constants that were fitted to the others alone."""


def as_shown(decoder: Decoder, asynchronous: bool) -> Decoder:
    """Return the decoder with the host times that show between its steps: nothing for each request if a step is planned
    while the one before runs."""
    return replace(decoder, host_s_per_request=0.0) if asynchronous else decoder
