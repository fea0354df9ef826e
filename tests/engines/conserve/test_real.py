"""ConServe on real execution: documents leave steps of vLLM's model while they run, and nobody's tokens change."""

import asyncio

import pytest

from tests.builders import in_own_process

pytestmark = pytest.mark.slow


def co_serve(resume: str) -> None:
    """People who ask while documents are read; then the same prompts to `LLM`."""
    from engines.builder import Parts
    from engines.registry import ENGINES
    from engines.server import ResolvedServer, ServerParams, resolve
    from harness.client.client_params import ClientParams
    from harness.clocks import clock
    from harness.events.log import EventLog
    from tests.engines.real import OfflineEngine, started_replies
    from tests.population import serve_population
    from workloads.registry import make_trace
    from workloads.trace import Trace

    params = ServerParams.model_validate(
        {"deployment": "llama_tiny", "prefix_caching": True, "host_kv_gb": 0.5, "kv_pool_blocks": 96}
    )
    trace = make_trace(
        "co_serving",
        {
            "requests": 30,
            "rate": 6.0,
            "documents": 24,
            "max_input_tokens": 1500,
            "max_output_tokens": 40,
            "ttft_deadline_s": 1e-3,
        },
        seed=1,
    )
    log = EventLog()

    async def main():
        system = ENGINES["conserve"]
        chosen = system.read({"resume": resume, "safepoint_layers": 2, "tbt_slo_s": 1.0})
        server = system.build(Parts(ResolvedServer.of(params), log, seed=0, device="cpu"), chosen)
        replies = started_replies(server.gateway.pipeline)
        server.warm_up()
        serving = server.start()
        columns = dict(trace.columns())
        # Loading took its time
        columns["arrival_s"] = columns["arrival_s"] + asyncio.get_running_loop().time()
        later = Trace.from_columns(columns, generator="by hand")
        await serve_population(later, server.gateway, log, ClientParams())
        await server.settle()
        for task in serving:
            task.cancel()
        return server, replies

    server, replies = clock.run(main(), virtual=False)
    counters = server.counters()
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
