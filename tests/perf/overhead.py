"""What our loop costs around real execution: its wall time over that of vLLM's own `LLM.generate`.

    python -m tests.perf.overhead

The same requests, all at once, on the same model, weights and limits, in turns within one process: clients, gateway,
loop, device thread and event log against `LLM.generate`. Building is left out on both sides. Each round gives one
ratio; their median is the overhead, their spread says how much of it is the machine's own drift.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from engines.builder import Parts
from engines.registry import ENGINES
from engines.server import ResolvedServer, ServerParams, resolve
from harness.client.client_params import ClientParams
from harness.clocks import clock
from harness.events.log import EventLog
from tests.population import serve_population
from workloads.registry import make_trace
from workloads.trace import Trace

DEPLOYMENTS = ("llama_tiny", "llama_small")
REQUESTS = 48
ROUNDS = 5


def requests() -> Trace:
    """Text requests that all arrive within a millisecond."""
    lengths = {"prompt_tokens": 100, "max_prompt_tokens": 400, "reply_tokens": 60, "max_reply_tokens": 200}
    return make_trace("poisson", {"requests": REQUESTS, "rate": 1e5, "modality": "text", "reply": "text", **lengths}, 0)


async def compare(deployment: str, trace: Trace) -> list[tuple[float, float]]:
    """(our seconds, vLLM's seconds) of each round."""
    from tests.engines.real import OfflineEngine

    params = ServerParams.model_validate({"deployment": deployment})
    turns = [turn for session in trace.sessions for turn in session.turns]
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 4000, turn.input_tokens).tolist() for turn in turns]
    tokens = [turn.output_tokens for turn in turns]
    log = EventLog()
    system = ENGINES["vllm_omni"]
    server = system.build(Parts(ResolvedServer.of(params), log, seed=0, device="cpu"), system.read({}))
    resolved = resolve(params)
    stock = OfflineEngine(resolved.stages[resolved.entry])
    server.warm_up()
    stock.generate(prompts[:2], tokens[:2])
    serving, seconds = server.start(), []
    for round in range(ROUNDS):
        times = {}
        for ours in (True, False) if round % 2 else (False, True):
            begun = time.perf_counter()
            if ours:
                await serve_population(
                    trace, server.gateway, log, ClientParams.model_validate({"c": REQUESTS, "playback": "none"})
                )
            else:
                stock.generate(prompts, tokens)
            times[ours] = time.perf_counter() - begun
        seconds.append((times[True], times[False]))
    for task in serving:
        task.cancel()
    return seconds


def main() -> int:
    trace = requests()
    print("model         requests  LLM.generate s  ours s  ratio, median (lowest to highest round)")
    for name in DEPLOYMENTS:
        rounds = clock.run(compare(name, trace), virtual=False)
        ours, theirs = (statistics.median(side) for side in zip(*rounds, strict=True))
        ratios = [a / b for a, b in rounds]
        print(
            f"{name:<14}{REQUESTS:>8}{theirs:>16.2f}{ours:>8.2f}{statistics.median(ratios):>7.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f})",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
