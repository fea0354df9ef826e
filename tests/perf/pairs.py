"""How fast replays are, and how close to the cost of vLLM's own decisions; or how much faster one of two trees is.

    python -m tests.perf.pairs [OTHER_TREE] [--repeats 5] [--loads text,mooncake] [--mooncake FILE]

Each replay is a fresh process on one core. Its cost is the CPU time of that process without building the server and
making the workload. Speed is simulated seconds per CPU second; a step is one step of one stage replica; tokens are text
tokens and codec frames of all stages. The bound is the speed if only vLLM's own `schedule` and `update_from_output`
took time, in the rounds in which it is asked. Two trees take turns, and their events, steps and counters are compared.

    python tests/perf/pairs.py one LOAD ENGINE [--size 0.1] [--mooncake FILE] [--profile FILE]

is one replay of the tree that is on PYTHONPATH, as a line of JSON.
"""

import argparse
import cProfile
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parents[2]
# Both trees replay the loads of this file.
VOICE = {"rate": 20.0, "p": 0.3}
EIGHT = {"deployment": "qwen3_omni_8gpu", **VOICE}
LLAMA = {"deployment": "llama_8b_1gpu"}
TEXT = {**LLAMA, "modality": "text", "reply": "text"}
SHORT = {"prompt_tokens": 64, "prompt_sigma": 0.0, "reply_tokens": 8, "reply_sigma": 0.0}
CALLS = {"deployment": "qwen3_omni_pro6000", "duration_s": 120.0}
BACKLOG = {"deployment": "llama_8b_h100", "rate": 5.0, "backlog": 96, "max_num_batched_tokens": 2048}
DIES = {"deployment": "deepseek_r1_4p8_1d32", "c": 128, "rate": 60.0, "playback": "none"}
LOADS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "mooncake": (["vllm_omni_wo"], "mooncake", {**LLAMA, "limit": 1000, "reply": "text"}),
    "text": (["vllm_omni_wo"], "poisson", {**TEXT, "rate": 100.0, "requests": 3000}),
    "16": (["vllm_omni", "liveserve"], "voice", {**VOICE, "c": 16, "sessions": 48}),
    "128": (["vllm_omni", "liveserve"], "voice", {**VOICE, "c": 128, "sessions": 192}),
    "1024": (["vllm_omni", "liveserve"], "voice", {**EIGHT, "c": 1024, "sessions": 1152}),
    "batch": (["vllm_omni_wo"], "offline", {**LLAMA, "requests": 200}),
    "calls": (["metronome"], "metronome", {**CALLS, "sessions": 128}),
    "co_serving": (["conserve", "sarathi_p"], "co_serving", {**BACKLOG, "requests": 75}),
    "dies": (["omniinfer"], "novel", {**DIES, "stream_interval": 64, "requests": 256}),
    "gui": (["nova"], "gui", {"deployment": "cogagent_a6000", "rate": 0.5, "requests": 300}),
    # A million of them take fifty times as long: what one costs does not depend on their number.
    "short": (["vllm_omni_wo"], "poisson", {**TEXT, **SHORT, "rate": 300.0, "requests": 20000}),
}
SIZES = ("limit", "requests", "sessions")


def one(load: str, engine: str, mooncake: str | None, size: float, profile: str | None = None) -> dict[str, Any]:
    """Cost and digest of one replay in this process. `size`: share of the load's requests."""
    from harness.by_device import expand
    from harness.experiments.experiment import Experiment
    from harness.replays.worker.replay import replay
    from workloads.registry import make_trace

    _, workload, settings = LOADS[load]
    if load == "mooncake":
        settings = {**settings, "path": mooncake}
    settings = {name: int(value * size) if name in SIZES else value for name, value in settings.items()}
    points: Any = expand(Experiment(name="perf", engines=[engine], workload=workload, set=settings))
    [point] = points
    trace = make_trace(point.workload, point.workload_params, point.seed)
    watch, begun = cProfile.Profile() if profile else None, []

    def arrange(_: Any) -> None:
        if watch is not None:
            watch.enable()
        begun.append(time.process_time())

    with in_vllm() as spent:
        done = replay(point, trace, arrange=arrange)
        cpu_s = time.process_time() - begun[0]
    if watch is not None:
        watch.disable()
        watch.dump_stats(str(profile))
    digest, tokens = hashlib.sha256(), 0.0
    for table in (done.events, done.steps):
        for column in table.combine_chunks().columns:
            flat = column.combine_chunks()
            flat = flat.cast("string") if str(flat.type).startswith("dictionary") else flat
            digest.update("\n".join(map(str, flat.to_pylist())).encode())
    digest.update(json.dumps(done.counters, sort_keys=True, default=str).encode())
    for kind, value in zip(done.events["kind"].to_pylist(), done.events["value"].to_pylist(), strict=True):
        if kind in ("token", "frame_out"):
            tokens += value
    return {
        "cpu_s": cpu_s,
        "simulated_s": done.cost["simulated_s"],
        "steps": done.cost["steps"],
        "tokens": tokens,
        "vllm_s": spent[0],
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "digest": digest.hexdigest(),
    }


@contextmanager
def in_vllm() -> Iterator[list[float]]:
    """Count the CPU seconds in vLLM's own `schedule` and `update_from_output`; yields a list with their sum."""
    from vllm.v1.core.sched.scheduler import Scheduler

    spent, clock = [0.0], time.thread_time

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            begun = clock()
            result = call(*arguments, **options)
            spent[0] += clock() - begun
            return result

        return counted

    with ExitStack() as patched:
        for name in ("schedule", "update_from_output"):
            patched.enter_context(mock.patch.object(Scheduler, name, timed(getattr(Scheduler, name))))
        yield spent


def replayed(tree: Path, load: str, engine: str, *options: str) -> dict[str, Any]:
    """Return what `one` measures, in a fresh process of a tree. CalledProcessError where it fails, and says why."""
    run = subprocess.run(
        [sys.executable, __file__, "one", load, engine, *options],
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"},
        cwd=tree,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    arguments.add_argument("other", nargs="?")
    arguments.add_argument("rest", nargs="*")
    arguments.add_argument("--repeats", type=int, default=1)
    arguments.add_argument("--loads", default=",".join(LOADS))
    arguments.add_argument("--mooncake", help="Mooncake's conversation trace, of which 1,000 requests are replayed")
    arguments.add_argument("--profile", help="with `one`: where cProfile's statistics go")
    arguments.add_argument("--size", type=float, default=1.0, help="share of each load's requests")
    given = arguments.parse_args()
    if given.other == "one":
        load, engine = given.rest
        print(json.dumps(one(load, engine, given.mooncake, given.size, given.profile)))
        return 0
    trees = [*([Path(given.other).resolve()] if given.other else []), HERE]
    extra = ["--size", str(given.size), *(["--mooncake", given.mooncake] if given.mooncake else [])]
    heads = ["load", "engine", *(["speed before"] if given.other else []), "speed", "us/step", "us/token"]
    heads += ["bound", "bound/speed", "memory MB", *(["ratio", "record"] if given.other else [])]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    differing = 0
    for load in given.loads.split(","):
        for engine in LOADS[load][0] if load != "mooncake" or given.mooncake else []:
            rounds = [[replayed(tree, load, engine, *extra) for tree in trees] for _ in range(given.repeats)]
            speeds = [[each["simulated_s"] / each["cpu_s"] for each in side] for side in zip(*rounds, strict=True)]
            last = [each[-1] for each in rounds]
            step_us, token_us = (
                statistics.median([1e6 * each["cpu_s"] / each[of] for each in last]) for of in ("steps", "tokens")
            )
            bound = statistics.median([each["simulated_s"] / each["vllm_s"] for each in last])
            cells = [load, f"`{engine}`", *map(_spread, speeds), f"{step_us:.0f}", f"{token_us:.1f}", f"{bound:.0f}"]
            cells += [f"{bound / statistics.median(speeds[-1]):.1f}", f"{last[-1]['memory_mb']:.0f}"]
            if given.other:
                same = len({each["digest"] for pair in rounds for each in pair}) == 1
                differing += not same
                ratios = [new / old for old, new in zip(*speeds, strict=True)]
                cells += [f"× {_spread(ratios, 2)}", "same" if same else "DIFFERS"]
            print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if differing else 0


def _spread(values: Sequence[float], digits: int | None = None) -> str:
    if digits is None:
        digits = 0 if min(values) >= 10 else 1
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
