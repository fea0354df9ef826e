"""Stock `AsyncLLM` with our schedulers as a program: `python stock_engine.py modelled|asynchronous|worker`.

It serves a few requests and prints one line of JSON. A test process has loaded vLLM, so it cannot choose the platform.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from typing import Any

from engines.stock.arguments import KEY, StockParams, arguments
from engines.stock.live_signals import LiveSignals
from workloads.errors import UserError

PROMPT = list(range(1, 101))
LONGEST_S = 240
"""Seconds after which a scenario has failed."""

HELD_AT = 37
"""Text tokens of such a listener's reply at which it is held: 37 x 0.3 s less 0.3 s sent exceed lead_cap_s, 10.6 s."""


def parameters(deployment: str, **engine_params: Any) -> StockParams:
    """A token is 0.3 s of speech. Leads are capped at the thinker too, and a silent client is not lost."""
    values = {
        "deployment": deployment,
        "speech_s_per_text_token": 0.3,
        "engine_params": {"telemetry_timeout_s": 86_400.0, "thinker_alpha": 1.0, "pacing": "always", **engine_params},
    }
    return StockParams.of({KEY: values})


def sampling(tokens: int, **more: Any) -> Any:
    from vllm.sampling_params import SamplingParams

    return SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False, temperature=0.0, **more)


class Caller:
    """A request, its token ids so far and why it ended."""

    def __init__(self, llm: Any, session: str, tokens: int, prompt: list[int] = PROMPT):
        self.ids: list[int] = []
        self.finish: str | None = None
        self.task = asyncio.ensure_future(self._run(llm, session, tokens, prompt))

    async def _run(self, llm: Any, session: str, tokens: int, prompt: list[int]) -> "Caller":
        from vllm.sampling_params import RequestOutputKind

        params = sampling(tokens, output_kind=RequestOutputKind.DELTA)
        request = {"prompt_token_ids": prompt}
        async for output in llm.generate(request, params, request_id=f"r-{session}", session_id=session):
            self.ids += output.outputs[0].token_ids
            self.finish = output.outputs[0].finish_reason
        return self

    async def produced(self, tokens: int) -> None:
        while len(self.ids) < tokens:
            await asyncio.sleep(0.01)

    def seen(self) -> dict[str, Any]:
        return {"tokens": len(self.ids), "finish": self.finish}


async def listener_waits(live: LiveSignals, session: str) -> None:
    """Announce a spoken reply whose first 0.3 s of audio are sent and not yet played."""
    await live.turn_committed(session, 0)
    await live.audio_sent(session, 0, 0.3)
    await live.playback_ack(session, 0, 0.0, playing=False)


async def settled(live: LiveSignals) -> dict[str, Any]:
    """The engine's state without requests."""
    while (state := await live.state())["requests"]:
        await asyncio.sleep(0.01)
    return state


async def live_calls(llm: Any) -> dict[str, Any]:
    """A reply with a long lead waits until its audio is played; a barge-in ends a reply."""
    live = LiveSignals(llm)
    await listener_waits(live, "far")
    far, near = Caller(llm, "far", 120), Caller(llm, "near", 200)
    await far.produced(HELD_AT)
    await near.task
    held_at = len(far.ids)
    before, begun = await live.state(), time.monotonic()
    await asyncio.sleep(0.5)
    rested = {"s": time.monotonic() - begun, "rounds": (await live.state())["rounds"] - before["rounds"]}
    still_held = len(far.ids)
    await live.audio_sent("far", 0, 36.0)
    await live.playback_ack("far", 0, 36.0)
    await far.task
    await live.playback_done("far", 0)

    await live.turn_committed("loud", 0)
    loud = Caller(llm, "loud", 4000)
    await loud.produced(5)
    await live.speech_start("loud")
    ended = await live.barge_in("loud")
    await loud.task
    await live.turn_committed("loud", 1)
    again = await Caller(llm, "loud", 20).task
    for session in ("far", "loud"):
        await live.close(session)
    try:
        await live.send({"verb": "audio_sent", "session": "far", "turn": 0})
        refused = ""
    except UserError as error:
        refused = str(error)
    return {
        "near": near.seen(),
        "far": far.seen(),
        "held_at": held_at,
        "still_held": still_held,
        "rested": rested,
        "loud": loud.seen(),
        "ended": ended,
        "again": again.seen(),
        "refused": refused,
        "state": await settled(live),
    }


async def crowd(llm: Any) -> dict[str, Any]:
    """More replies than the KV pool holds, one of them interrupted."""
    live = LiveSignals(llm)
    await listener_waits(live, "s7")
    callers = [Caller(llm, f"s{i}", 60 + 20 * i, [1000 * i + j for j in PROMPT]) for i in range(8)]
    await callers[7].produced(HELD_AT)
    await asyncio.gather(*(caller.task for caller in callers[:7]))
    ended = await live.barge_in("s7")
    await callers[7].task
    return {
        "callers": [caller.seen() for caller in callers],
        "ended": ended,
        "asynchronous": llm.vllm_config.scheduler_config.async_scheduling,
        "state": await settled(live),
    }


async def greedy(llm: Any) -> dict[str, Any]:
    """Greedy replies of a real model, one of them held and released by signals."""
    live = LiveSignals(llm)
    await listener_waits(live, "c0")
    callers = [Caller(llm, f"c{i}", 60, prompt) for i, prompt in enumerate(PROMPTS)]
    await callers[0].produced(HELD_AT)
    await asyncio.gather(*(caller.task for caller in callers[1:]))
    held_at = len(callers[0].ids)
    await live.audio_sent("c0", 0, 30.0)
    await live.playback_ack("c0", 0, 30.0)
    await callers[0].task
    await live.turn_committed("gone", 0)
    gone = Caller(llm, "gone", 3000)
    await gone.produced(2)
    ended = await live.barge_in("gone")
    await gone.task
    return {
        "ids": [caller.ids for caller in callers],
        "held_at": held_at,
        "gone": gone.seen(),
        "ended": ended,
        "state": await settled(live),
    }


PROMPTS = [[(7 * i + j * j) % 4000 for j in range(20 + 30 * i)] for i in range(4)]


def serve(scenario: Any, args: dict[str, Any]) -> dict[str, Any]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
    try:
        return asyncio.run(asyncio.wait_for(scenario(llm), LONGEST_S))
    finally:
        llm.shutdown()


def worker() -> dict[str, Any]:
    """vLLM's own worker on a random checkpoint, under our scheduler and under vLLM's."""
    with tempfile.TemporaryDirectory() as folder:
        params = parameters("llama_tiny")
        args = arguments(params, model=folder)
        write_checkpoint(arguments(params)["model"], folder)
        seen = serve(greedy, args)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import LLM

        stock = {k: v for k, v in args.items() if k not in ("scheduler_cls", "additional_config")}
        outputs = LLM(**stock).generate([{"prompt_token_ids": p} for p in PROMPTS], sampling(60), use_tqdm=False)
        return {**seen, "stock_ids": [output.outputs[0].token_ids for output in outputs]}


def write_checkpoint(described: str, folder: str) -> None:
    """Random weights, wide enough that tokens vary, for the model of a config.json."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(described, initializer_range=0.08))
    model.save_pretrained(folder)


def main() -> None:
    match sys.argv[1]:
        case "modelled":
            seen = serve(live_calls, arguments(parameters("llama_8b_1gpu")))
        case "asynchronous":
            args = arguments(parameters("llama_8b_1gpu"), asynchronous=True)
            seen = serve(crowd, {**args, "max_model_len": 512, "num_gpu_blocks_override": 60})
        case _:
            seen = worker()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
