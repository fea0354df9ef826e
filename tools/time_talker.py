"""Times of Qwen3-Omni's talker, code predictor and code2wav on this machine's GPU, with random weights.

    python -m tools.time_talker --out talker-h100.yaml          # about five minutes on one H100
    python -m pytest -n0 tests/engines/test_attention_triton.py # our attention kernel against its reference

Transformers' own modules run eagerly, so each entry has two times: `wall_s`, which includes the host's launches, and
`kernels_s`, the GPU time of all kernels. Code2wav and talker are timed alone and at the same time on one GPU, because a
deployment of vLLM-Omni puts both on it. `--tiny` is a small model for a try on a CPU; its times mean nothing.
"""

import argparse
import datetime
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from transformers import DynamicCache
from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as configuration
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as modeling

ROWS, FRAMES, CONTEXT = (1, 2, 4, 8, 16, 32), (4, 29, 50, 325), 1024
"""Requests of a step; frames that code2wav decodes at once: a first chunk, a second, a later one, a whole reply."""
TINY = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2}

Step = Callable[[], object]
models: Any = modeling
"""Untyped, as transformers' decorators hide what its modules return."""


def talker_step(config: Any, rows: int, context: int, device: str) -> Step:
    """One decode step of the talker's layers, each request with `context` tokens before it."""
    model = models.Qwen3OmniMoeTalkerModel(config).to(device, torch.bfloat16).eval()
    size = config.hidden_size
    cache = DynamicCache()
    model(
        inputs_embeds=torch.randn(rows, context, size, device=device, dtype=torch.bfloat16),
        past_key_values=cache,
    )
    token = torch.randn(rows, 1, size, device=device, dtype=torch.bfloat16)

    def step() -> None:
        model(inputs_embeds=token, past_key_values=cache)
        cache.crop(-1)

    return step


def predictor_step(config: Any, rows: int, device: str) -> Step:
    """All residual codes of one frame, code after code."""
    model = models.Qwen3OmniMoeTalkerCodePredictorModel(config).to(device, torch.bfloat16).eval()
    token = torch.randn(rows, 1, config.hidden_size, device=device, dtype=torch.bfloat16)

    def step() -> None:
        cache = DynamicCache()
        for _ in range(config.num_code_groups - 1):
            model(inputs_embeds=token, past_key_values=cache)

    return step


def code2wav_step(config: Any, frames: int, device: str) -> Step:
    """The waveform of one request's frames."""
    model = models.Qwen3OmniMoeCode2Wav(config).to(device, torch.bfloat16).eval()
    codes = torch.randint(0, config.codebook_size, (1, config.num_quantizers, frames), device=device)
    return lambda: model(codes)


def timed(step: Step, repeats: int) -> dict[str, float]:
    """Median s of a step: on the wall, and in kernels where there is a GPU."""
    gpu = torch.cuda.is_available()
    walls = []
    for _ in range(repeats + 3):
        begun_s = time.perf_counter()
        step()
        if gpu:
            torch.cuda.current_stream().synchronize()
        walls.append(time.perf_counter() - begun_s)
    found = {"wall_s": sorted(walls[3:])[repeats // 2]}
    if gpu:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            torch.cuda.synchronize()
        found["kernels_s"] = sum(event.self_device_time_total for event in profile.key_averages()) / 1e6
    return found


def together(first: Step, second: Step, repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Both at the same time, on a stream each, until each has been timed."""
    found: dict[int, dict[str, float]] = {}
    over = threading.Barrier(2)

    def run(index: int, step: Step, other: int) -> None:
        stream = torch.cuda.Stream() if torch.cuda.is_available() else None
        with torch.inference_mode(), torch.cuda.stream(stream):
            over.wait()
            walls = []
            while len(walls) < repeats or other not in found:
                begun_s = time.perf_counter()
                step()
                if stream is not None:
                    stream.synchronize()
                walls.append(time.perf_counter() - begun_s)
                if len(walls) == repeats:
                    found[index] = {"wall_s": sorted(walls)[repeats // 2]}

    threads = [threading.Thread(target=run, args=each) for each in ((0, first, 1), (1, second, 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found[0], found[1]


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
    predictor.num_code_groups = 16
    if asked.tiny:
        for each in (talker, predictor, vocoder):
            each.update(TINY)
        talker.update(
            {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 32}
        )
        talker.update({"shared_expert_intermediate_size": 32, "num_key_value_heads": 2})
        predictor.update({"head_dim": 32, "num_key_value_heads": 2, "num_code_groups": 4})
        vocoder.update({"decoder_dim": 96, "num_key_value_heads": 2})
        rows, frames, context = (1, 2), (4,), 16
    elif talker.shared_expert_intermediate_size is None:
        talker.shared_expert_intermediate_size = 768  # Qwen3-Omni-30B-A3B's config.json
    with torch.inference_mode():
        found: dict[str, Any] = {"talker": {}, "code_predictor": {}, "code2wav": {}, "together": {}}
        for n in rows:
            found["talker"][n] = timed(talker_step(talker, n, context, device), asked.repeats)
            found["code_predictor"][n] = timed(predictor_step(predictor, n, device), asked.repeats)
        for n in frames:
            found["code2wav"][n] = timed(code2wav_step(vocoder, n, device), asked.repeats)
        for n in rows:
            both = together(
                talker_step(talker, n, context, device),
                code2wav_step(vocoder, frames[-1], device),
                asked.repeats,
            )
            found["together"][n] = dict(zip(("talker", "code2wav"), both, strict=True))
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU, tiny model: no measurement"
    origin = {
        "gpu": name,
        "date": datetime.date.today().isoformat(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "weights": "random, bfloat16, eager",
        "context": context,
    }
    asked.out.write_text(yaml.safe_dump({"origin": origin, **found}, sort_keys=False))
    print(f"{name}: {asked.out}")


if __name__ == "__main__":
    main()
