"""Times of Qwen3-Omni's talker, code predictor and code2wav on this machine's GPU, with random weights.

    python -m tools.time_talker --out talker-h100.yaml          # four minutes on one H100
    python -m pytest -n0 tests/engines/test_attention_triton.py # our attention kernel against its reference

Transformers' own modules run. Each entry has three times: `wall_s` launches each kernel from Python, `kernels_s` is the
GPU time of these kernels, and `graph_s` replays them as one CUDA graph, as vLLM-Omni does. Talker and code2wav run
alone and at the same time, in a process each, because a deployment of vLLM-Omni puts both on one GPU. `--tiny` is a
small model for a try on a CPU; its times mean nothing.
"""

import argparse
import datetime
import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
import yaml
from transformers import DynamicCache
from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as configuration
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as modeling

ROWS, FRAMES, CONTEXT = (1, 2, 4, 8, 16, 32), (4, 29, 50, 325), 1024
"""Requests of a step; frames that code2wav decodes at once: a first chunk, a second, a later one, a whole reply."""
TOGETHER = 50
"""Frames of a decode while the talker runs: a chunk of 25 with 25 of left context."""
TINY = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2}

Step = Callable[[], object]
models: Any = modeling
"""Untyped, as transformers' decorators hide what its modules return."""


def talker_step(config: Any, rows: int, context: int, device: str) -> Step:
    """One decode step of the talker's layers, each request with `context` tokens before it."""
    model = models.Qwen3OmniMoeTalkerModel(config).to(device, torch.bfloat16).eval()
    size = config.hidden_size
    cache = DynamicCache()
    prompt = torch.randn(rows, context, size, device=device, dtype=torch.bfloat16)
    model(inputs_embeds=prompt, past_key_values=cache)
    token = torch.randn(rows, 1, size, device=device, dtype=torch.bfloat16)
    place = torch.full((rows, 1), context, device=device)

    def step() -> None:
        model(inputs_embeds=token, past_key_values=cache, position_ids=place)
        cache.crop(-1)

    return step


def predictor_step(config: Any, rows: int, device: str) -> Step:
    """All residual codes of one frame, code after code."""
    model = models.Qwen3OmniMoeTalkerCodePredictorModel(config).to(device, torch.bfloat16).eval()
    token = torch.randn(rows, 1, config.hidden_size, device=device, dtype=torch.bfloat16)
    places = [torch.full((rows, 1), n, device=device) for n in range(config.num_code_groups - 1)]

    def step() -> None:
        cache = DynamicCache()
        for place in places:
            model(inputs_embeds=token, past_key_values=cache, position_ids=place)

    return step


def code2wav_step(config: Any, frames: int, device: str) -> Step:
    """The waveform of one request's frames."""
    model = models.Qwen3OmniMoeCode2Wav(config).to(device, torch.bfloat16).eval()
    codes = torch.randint(0, config.codebook_size, (1, config.num_quantizers, frames), device=device)
    return lambda: model(codes)


def captured(step: Step) -> Step | None:
    """The step as a CUDA graph; None without a GPU, or if the step cannot be captured."""
    if not torch.cuda.is_available():
        return None
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            step()
    except RuntimeError as error:
        print(f"no CUDA graph: {str(error).splitlines()[0]}", flush=True)
        torch.cuda.synchronize()
        return None
    return graph.replay


def wall_s(step: Step) -> float:
    begun_s = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun_s


def timed(step: Step, repeats: int) -> dict[str, float]:
    """Median s of a step: on the wall, and in kernels and as a graph where there is a GPU."""
    found = {"wall_s": median([wall_s(step) for _ in range(repeats + 3)][3:])}
    if torch.cuda.is_available():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            torch.cuda.synchronize()
        found["kernels_s"] = sum(event.self_device_time_total for event in profile.key_averages()) / 1e6
    replay = captured(step)
    if replay is not None:
        found["graph_s"] = median([wall_s(replay) for _ in range(repeats + 3)][3:])
    return found


def vocode(config: Any, frames: int, device: str, ready: Any, stop: Any, answer: Any) -> None:
    """In a process of its own: decode until told to stop, then send the median s of a decode."""
    with torch.inference_mode():
        step = code2wav_step(config, frames, device)
        step = captured(step) or step
        walls = [wall_s(step)]
        ready.set()
        while not stop.is_set():
            walls.append(wall_s(step))
    answer.put(median(walls))


def together(step: Step, vocoder: Any, frames: int, device: str, repeats: int) -> dict[str, float]:
    """Median s of `step` and of a decode of `frames` while both run without a pause, in a process each."""
    context = multiprocessing.get_context("spawn")
    ready, stop, answer = context.Event(), context.Event(), context.Queue()
    other = context.Process(target=vocode, args=(vocoder, frames, device, ready, stop, answer))
    other.start()
    while not ready.wait(1):
        if not other.is_alive():
            raise RuntimeError("code2wav's process ended before its first decode")
    step = captured(step) or step
    own = median([wall_s(step) for _ in range(repeats + 3)][3:])
    stop.set()
    found = {"talker_s": own, "code2wav_s": answer.get()}
    other.join()
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.time_talker", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("talker.yaml"))
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--tiny", action="store_true", help="a small model, for a try without a GPU")
    asked = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not asked.tiny:
        parser.error("no GPU is here; give --tiny to try the script on a CPU")
    config: Any = configuration.Qwen3OmniMoeTalkerConfig()
    vocoder: Any = configuration.Qwen3OmniMoeCode2WavConfig()
    talker, predictor = config.text_config, config.code_predictor_config
    rows, frames, context = ROWS, FRAMES, CONTEXT
    # The released config.json of Qwen3-Omni-30B-A3B; the defaults of transformers differ.
    talker.update({"num_experts_per_tok": 6, "shared_expert_intermediate_size": 768, "head_dim": 128})
    predictor.update({"num_code_groups": 16})
    if asked.tiny:
        for each in (talker, predictor, vocoder):
            each.update(TINY)
        talker.update({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 32})
        talker.update({"shared_expert_intermediate_size": 32, "num_key_value_heads": 2})
        predictor.update({"head_dim": 32, "num_key_value_heads": 2, "num_code_groups": 4})
        vocoder.update({"decoder_dim": 96, "num_key_value_heads": 2})
        rows, frames, context = (1, 2), (4,), 16
    for each in (talker, predictor, vocoder):
        each._attn_implementation = "sdpa"
    talker._experts_implementation = "grouped_mm" if device == "cuda" else None
    found: dict[str, Any] = {"talker": {}, "code_predictor": {}, "code2wav": {}, "together": {}}
    with torch.inference_mode():
        for n in rows:
            step = talker_step(talker, n, context, device)
            found["talker"][n] = timed(step, asked.repeats)
            found["together"][n] = together(step, vocoder, TOGETHER, device, asked.repeats)
            found["code_predictor"][n] = timed(predictor_step(predictor, n, device), asked.repeats)
            print("rows", n, found["talker"][n], found["code_predictor"][n], found["together"][n], flush=True)
        for n in frames:
            found["code2wav"][n] = timed(code2wav_step(vocoder, n, device), asked.repeats)
            print("frames", n, found["code2wav"][n], flush=True)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU, tiny model: no measurement"
    origin = {
        "gpu": name,
        "date": datetime.date.today().isoformat(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "weights": "random, bfloat16",
        "context": context,
        "frames_together": TOGETHER,
    }
    asked.out.write_text(yaml.safe_dump({"origin": origin, **found}, sort_keys=False))
    print(f"{name}: {asked.out}")


if __name__ == "__main__":
    main()
