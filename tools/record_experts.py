"""Record which experts a model chooses while vLLM executes it, as a routing trace.

    python -m tools.record_experts FILE [--deployment NAME] [--requests N] [--output-tokens N]
        [--seed N]

Prompts are random tokens, 8 to 150 each, and all are there from the start, so that steps prefill first and then decode.
"""

import argparse
import sys

import numpy as np

from engines.core.stage import Stage
from engines.systems.omniinfer.expert_load import write_routing
from workloads.errors import UserError
from workloads.seeds import stream


def record(stage: Stage, requests: int, output_tokens: int, seed: int) -> np.ndarray:
    """(S, L, E) counts of serving so many requests. UserError for none, and for a model without experts."""
    decoder = stage.decoder
    if min(requests, output_tokens) < 1:
        raise UserError(
            f"there is nothing to record of {requests} requests of {output_tokens} tokens; ask for 1 or more."
        )
    if not decoder.experts:
        raise UserError(f"the model of stage {stage.name!r} has no experts; choose one that has, as moe_tiny.")
    from engines.core.vllm_adapter.execution import ModelExecutor
    from engines.core.vllm_adapter.requests import make_request
    from engines.core.vllm_adapter.routed_experts import RoutedExperts

    rng, executor = stream(seed, "recorded prompts"), ModelExecutor(stage)
    try:
        executor.warm_up()
        routed = RoutedExperts(executor, decoder.experts)
        for number in range(requests):
            prompt = rng.integers(3, decoder.vocab, rng.integers(8, 151)).tolist()
            executor.scheduler.add_request(make_request(str(number), prompt, output_tokens, float(number), None))
        while executor.scheduler.has_unfinished_requests():
            executor.step(executor.scheduler.schedule())
        return routed.counts()
    finally:
        executor.close()


def main() -> int:
    from engines.server import ServerParams, resolve

    parser = argparse.ArgumentParser(prog="record_experts", description="Record the experts that a model chooses.")
    parser.add_argument("file", help="the routing trace to write, as Parquet")
    parser.add_argument("--deployment", default="moe_tiny", help="a model that this machine can execute")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        deployment = resolve(ServerParams.model_validate({"deployment": args.deployment}))
        counts = record(deployment.stages[deployment.entry], args.requests, args.output_tokens, args.seed)
        write_routing(args.file, counts)
    except (UserError, OSError) as error:
        print(f"record_experts: {error}", file=sys.stderr)
        return 2
    steps, layers, experts = counts.shape
    print(f"{args.file}: {steps} steps of {layers} layers with {experts} experts, {counts[:, 0].sum()} choices a layer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
