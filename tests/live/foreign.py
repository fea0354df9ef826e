"""Servers that are not ours, with models made in code: stock vLLM on the CPU, random weights, nothing downloaded."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.builders import free_ports
from tests.waiting import wait_until

WORDS = 2000
READY_S = 300
"""vLLM starts in about 20 s on a core of its own, and in a minute among other tests."""


def write_text_model(folder: Path) -> Path:
    """A two-layer Llama of 64 units and a tokenizer that takes every word for one token; no weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<unk>", "<s>", "</s>", *(f"word{i}" for i in range(WORDS))]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    chat = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32"}
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "rms_norm_eps": 1e-5}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8192}
    tokens = {"vocab_size": len(vocabulary), "bos_token_id": 1, "eos_token_id": 2}
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": chat, **special}
    config = {**model, **size, **heads, **tokens}
    _write(folder, {"tokenizer_config.json": tokenizer_config, "config.json": config})
    return folder


def write_realtime_model(folder: Path) -> Path:
    """A small Voxtral Realtime, which vLLM serves on `/v1/realtime`: a token for each 80 ms of audio; no weights."""
    from mistral_common.tokens.tokenizers.base import SpecialTokens

    special = [token.value for token in SpecialTokens]
    vocabulary = 256 + len(special)
    spectrogram = {"num_mel_bins": 128, "hop_length": 160, "window_size": 400}
    sound = {"sampling_rate": 16000, "frame_rate": 12.5, "transcription_format": "streaming"}
    layer = {"dim": 64, "head_dim": 32, "hidden_dim": 128, "n_heads": 2, "norm_eps": 1e-5, "rope_theta": 1e6}
    delays = {"transcription_delay_ms": 480, "streaming_look_ahead_ms": 2.5, "streaming_look_back_ms": 52.5}
    hears = {**sound, "audio_encoding_config": spectrogram, **delays, "streaming_n_left_pad_tokens": 32}
    encodes = {**sound, **spectrogram, "global_log_mel_max": 1.5}
    shape = {"n_layers": 1, "n_kv_heads": 2, "vocab_size": vocabulary, "use_biases": True, "sliding_window": 128}
    kinds = {"causal": True, "pos_embed": "rope", "ffn_type": "swiglu", "norm_type": "rms_norm"}
    encoder = {**layer, "audio_encoding_args": encodes, **shape, **kinds}
    whisper = {"encoder_args": encoder, "downsample_args": {"downsample_factor": 4}}
    decoder = {"n_layers": 2, "n_kv_heads": 1, "vocab_size": vocabulary, "tied_embeddings": True, "causal": True}
    lengths = {"sliding_window": 1024, "max_position_embeddings": 8192, "max_seq_len": 8192}
    ada = {"ada_rms_norm_t_cond": True, "ada_rms_norm_t_cond_dim": 16}
    params = {**layer, **decoder, **lengths, **ada, "multimodal": {"whisper_model_args": whisper}}
    sizes = {"num_vocab_tokens": 256, "default_vocab_size": vocabulary, "default_num_special_tokens": len(special)}
    tekken = {
        "type": "Tekken",
        "version": 1,
        "config": {"pattern": r"[^\s]+|\s+", "version": "v13", **sizes},
        "vocab": [{"rank": i, "token_bytes": b64encode(bytes([i])).decode(), "token_str": None} for i in range(256)],
        "special_tokens": [{"rank": i, "token_str": token, "is_control": True} for i, token in enumerate(special)],
        "audio": hears,
    }
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, {"tekken.json": tekken, "params.json": params})
    return folder


REALTIME_OPTIONS = ("--tokenizer-mode", "mistral", "--config-format", "mistral")
"""Of `vllm_server` for that model: its files are Mistral's, not Hugging Face's."""


def _write(folder: Path, files: dict[str, dict]) -> None:
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


@dataclass(frozen=True)
class Vllm:
    """A stock vLLM OpenAI server that answers: where, under which name, and what it has printed."""

    port: int
    model: str
    log: Path

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def realtime(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    def counted(self, name: str) -> float:
        """A counter of its metrics, since it began."""
        with urllib.request.urlopen(f"{self.http}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def vllm_server(model: Path, log: Path, *options: str) -> Iterator[Vllm]:
    """`python -m vllm.entrypoints.openai.api_server` with random weights, for as long as the block lasts.

    Raises RuntimeError with the end of its log when it ends before it answers, or never does.
    """
    (port,) = free_ports(1)
    name = f"tiny-{model.name}"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", name,
        "--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--dtype", "float32", "--enforce-eager",
        "--max-model-len", "8192", "--max-num-seqs", "16", *options,
    ]  # fmt: skip
    with log.open("w") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    server = Vllm(port, name, log)
    try:
        _wait_until_it_answers(process, server)
        yield server
    finally:
        _end(process)


def _wait_until_it_answers(process: subprocess.Popen, server: Vllm) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM did not come up: {server.output[-3000:]}")
        with suppress(OSError), urllib.request.urlopen(f"{server.http}/health", timeout=5):
            return True
        return False

    wait_until(answers, READY_S)


def _end(process: subprocess.Popen) -> None:
    """It and the engine process it started: the group is its own."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
