"""vLLM's resumable requests unchanged, the Metronome paper's baseline: a session is one long request whose KV only
grows. `vllm_realtime_pr49439` adds vLLM pull request 49439's proposal: waiting sessions may be preempted, too."""

from engines.composition import Composition
from engines.frames.library import CALLS

SYSTEMS = (
    Composition(
        "vllm_realtime", "interaction sessions on vLLM's resumable requests, KV unbounded (vLLM-realtime)", CALLS
    ),
    Composition(
        "vllm_realtime_pr49439",
        "as vllm_realtime, but sessions that wait can lose their KV to others (vLLM PR 49439)",
        CALLS,
        {"preempts_waiting": True},
    ),
)
