"""ConServe on real execution: offline requests leave running steps of vLLM's model, and no token changes."""

import pytest

from tests.builders import in_own_process

pytestmark = pytest.mark.slow("runs a model on the CPU")


def co_serve(resume: str) -> None:
    """People who ask while documents are read; then the same prompts to `LLM`."""
    from engines.server import ServerParams, resolve
    from harness.client.client_params import ClientParams
    from tests.engines.real import OfflineEngine, served
    from workloads.registry import make_trace

    server = {"deployment": "llama_tiny", "prefix_caching": True, "host_kv_gb": 0.5, "kv_pool_blocks": 96}
    params = ServerParams.model_validate(server)
    sizes = {"max_input_tokens": 1500, "max_output_tokens": 40, "ttft_deadline_s": 1e-3}
    trace = make_trace("co_serving", {"requests": 30, "rate": 6.0, "documents": 24, **sizes}, seed=1)
    chosen = {"resume": resume, "safepoint_layers": 2, "tbt_slo_s": 1.0}
    left, replies, _ = served("conserve", chosen, params, trace, ClientParams.model_validate({}))
    counters = left.counters()
    assert counters["thinker.interrupted"] > 0, f"nobody came while documents were in a step: {counters}"
    assert len(replies) == len(trace)
    stock = OfflineEngine(resolve(params).stages["thinker"])
    expected = stock.generate([reply.prompt for reply in replies], [reply.text_total for reply in replies])
    assert [reply.text_ids for reply in replies] == expected


def co_serve_each(*modes: str) -> None:
    for resume in modes:
        co_serve(resume)


def test_co_serving_changes_no_token():
    """With either way to come back, one after the other in one process, which loads vLLM once."""
    in_own_process(co_serve_each, "recompute", "ic_prefetch")
