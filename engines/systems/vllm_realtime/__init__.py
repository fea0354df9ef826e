"""vLLM's resumable requests as they are, the paper's baseline: a session is one long request whose KV only grows.

`vllm_realtime_pr49439` adds what vLLM pull request 49439 proposes: sessions that wait may be preempted, too.
"""

from engines.calls.params import SessionParams

SUMMARY = "interaction sessions on vLLM's resumable requests, KV unbounded (vLLM-realtime)"
PR49439_SUMMARY = "as vllm_realtime, but sessions that wait can lose their KV to others (vLLM PR 49439)"


class Params(SessionParams):
    """Those of every engine for sessions."""
