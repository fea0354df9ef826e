"""Tiny models on the CPU: executors of ours, one for all tests of a process, and vLLM's own `LLM`."""

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from engines.builder import Parts
from engines.core.policy import Plan
from engines.core.stage import Stage
from engines.core.vllm_adapter.configuration import engine_arguments
from engines.core.vllm_adapter.execution import ModelExecutor, kernels_findable
from engines.core.vllm_adapter.requests import make_request
from engines.registry import ENGINES
from engines.server import ResolvedServer, ServerParams, resolve
from harness.client.client_params import ClientParams
from harness.clocks import clock
from harness.events.log import EventLog
from tests.population import serve_population
from workloads.trace import Trace

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # vLLM reads it once, at its first engine


class OfflineEngine:
    """`LLM` in this process, with the model, weights and limits of `stage`."""

    def __init__(self, stage: Stage) -> None:
        from vllm import LLM

        with kernels_findable():
            self._llm = LLM(**engine_arguments(stage, real=True), distributed_executor_backend="uni")

    def generate(self, prompts: Sequence[list[int]], tokens: Sequence[int]) -> list[list[int]]:
        """Greedy replies to each prompt, of exactly `tokens[i]` tokens, all asked for at once."""
        from vllm import SamplingParams

        greedy = [
            SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, detokenize=False) for count in tokens
        ]
        outputs = self._llm.generate([{"prompt_token_ids": ids} for ids in prompts], greedy, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


def stage(deployment: str = "llama_tiny", name: str = "thinker", **server) -> Stage:
    return resolve(ServerParams(deployment=deployment, **server)).stages[name]


@cache
def executor(deployment: str = "llama_tiny", **server) -> ModelExecutor:
    """Built once for all tests; each test leaves it without requests."""
    return ModelExecutor(stage(deployment, **server))


def prompts(count: int, seed: int = 1, shared: int = 0) -> list[list[int]]:
    """Random prompts of 8 to 150 tokens; the first `shared` tokens are the same in all."""
    rng = random.Random(seed)
    common = [rng.randrange(3, 4000) for _ in range(shared)]
    return [common + [rng.randrange(3, 4000) for _ in range(rng.choice((8, 40, 90, 150)))] for _ in range(count)]


def words(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 4000) for _ in range(count)]


@cache
def _stock(deployment: str) -> OfflineEngine:
    """vLLM's own engine on the same model and weights."""
    return OfflineEngine(stage(deployment))


def stock_tokens(prompts: Sequence[list[int]], count: int, deployment: str = "llama_tiny") -> list[list[int]]:
    """What `LLM.generate` answers greedily, `count` tokens each."""
    return _stock(deployment).generate(prompts, [count] * len(prompts))


@contextmanager
def clean(executor: ModelExecutor):
    """Nothing may be left behind: no request at scheduler or worker, no block in use."""
    scheduler = executor.scheduler
    yield scheduler
    executor.flush()
    assert not scheduler.requests and executor.worker_requests == 0
    assert scheduler.free_blocks == scheduler.allocatable_blocks
    scheduler.reset_prefix_cache()


def submit(executor: ModelExecutor, prompts: Sequence[list[int]], count: int, hashed: bool = False) -> list[str]:
    names = [f"r{i}" for i in range(len(prompts))]
    for i, (name, prompt) in enumerate(zip(names, prompts, strict=True)):
        hash_blocks = executor.scheduler.block_size if hashed else None
        executor.scheduler.add_request(make_request(name, prompt, count, float(i), hash_blocks))
    return names


def steps(model: ModelExecutor, out: dict[str, list[int]], plan: Callable[[], Plan] = Plan) -> Iterator[Any]:
    """Each step until all have finished, before it runs; its tokens go to `out`. `plan` is asked before each."""
    for _ in range(2000):
        if not model.scheduler.has_unfinished_requests():
            return
        scheduled = model.scheduler.schedule_with(plan())
        yield scheduled
        for name, ids, _ in model.step(scheduled):
            out[name].extend(ids)
    raise AssertionError("no end in sight")


def drain(model: ModelExecutor, names: Sequence[str], plan: Callable[[], Plan] = Plan) -> list[list[int]]:
    """What all of them say."""
    out: dict[str, list[int]] = {name: [] for name in names}
    for _ in steps(model, out, plan):
        pass
    return list(out.values())


def served(
    engine: str, chosen: Mapping[str, Any], params: ServerParams, trace: Trace, client: ClientParams
) -> tuple[Any, list[Any], EventLog]:
    """Serve `trace` once the model is loaded; the server, its replies and its log."""
    log, replies = EventLog(), []

    async def main() -> Any:
        system = ENGINES[engine]
        server = system.build(Parts(ResolvedServer.of(params), log, seed=0, device="cpu"), system.read(dict(chosen)))
        pipeline, start = server.gateway.pipeline, server.gateway.pipeline.start
        pipeline.start = lambda reply, *rest: (replies.append(reply), start(reply, *rest))
        server.warm_up()
        serving = server.start()
        columns = dict(trace.columns())
        columns["arrival_s"] = columns["arrival_s"] + asyncio.get_running_loop().time()
        later = Trace.from_columns(columns, generator="by hand")
        await serve_population(later, server.gateway, log, client)
        await server.settle()
        for task in serving:
            task.cancel()
        return server

    return clock.run(main(), virtual=False), replies, log
