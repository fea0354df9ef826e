"""vLLM-Omni's own benchmark and a client of ours on one server, the same load: both columns, and what they define.

    .venv-omni/bin/python -m tests.omni.bench_beside [calls at once] [replies]

The server is LiveServe's over modelled GPUs, so every reply has the text and the frames that its request says. Ours are
taken from the arrivals of each packet at a client of its own run, after theirs.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from engines.stock.omni.omni_params import OmniParams
from harness.serving.omni_server import OmniServer
from tests.builders import free_ports
from tests.omni.chat import Heard, ask, request

TEXT, FRAMES = 30, 100
ROWS = {
    "audio_ttfp_ms": "first audio less the request's send (benchmarks/patch/patch.py 2023)",
    "audio_rtf": "last audio less the request's send, over seconds of audio (patch.py 2025, 2135)",
    "audio_underrun_s": "buffer that would have been needed at the start (audio_continuity.py 64); not computed by "
    "their chat backend, which says 0",
    "continuity": "share of replies with an underrun of at most 0.1 s (definitions.py 343); theirs as above",
}


def underrun_s(heard: Heard) -> float:
    """The most by which a packet came later than a player that began with the first would have needed it."""
    first_s, played_s, worst_s = heard.audio[0][0], 0.0, 0.0
    for at_s, seconds in heard.audio:
        worst_s = max(worst_s, at_s - first_s - played_s)
        played_s += seconds
    return worst_s


def ours(address: str, at_once: int, replies: int) -> dict[str, float]:
    """By a client of ours."""

    async def all_of_them() -> list[Heard]:
        places = asyncio.Semaphore(at_once)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(300)) as http:

            async def one(number: int) -> Heard:
                async with places:
                    return await ask(http, address, request(f"ours {number}", TEXT, FRAMES))

            return await asyncio.gather(*map(one, range(replies)))

    heard = asyncio.run(all_of_them())
    return {
        "audio_ttfp_ms": 1e3 * statistics.median(each.audio[0][0] for each in heard),
        "audio_rtf": statistics.median(each.audio[-1][0] / each.audio_s for each in heard),
        "audio_underrun_s": statistics.median(map(underrun_s, heard)),
        "continuity": statistics.fmean(underrun_s(each) <= 0.1 for each in heard),
    }


def theirs(address: str, at_once: int, replies: int) -> dict[str, float]:
    """By `vllm bench serve --omni`."""
    told = request("theirs", TEXT, FRAMES)
    more = {name: told[name] for name in ("modalities", "sampling_params_list")}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "engines.stock.omni", "bench", "serve", "--omni"]
        command += [
            "--backend",
            "openai-chat-omni",
            "--endpoint",
            "/v1/chat/completions",
            "--base-url",
            address,
        ]
        command += [
            "--model",
            model_of(address),
            "--served-model-name",
            "qwen3-omni",
            "--dataset-name",
            "random",
        ]
        command += [
            "--random-input-len",
            "20",
            "--random-output-len",
            str(TEXT),
            "--num-prompts",
            str(replies),
        ]
        command += ["--max-concurrency", str(at_once), "--num-warmups", "1", "--extra-body", json.dumps(more)]
        command += ["--percentile-metrics", "audio_ttfp,audio_rtf,audio_underrun,audio_duration"]
        command += ["--save-result", "--result-dir", folder, "--result-filename", "theirs.json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=dict(os.environ))
        file = Path(folder) / "theirs.json"
        if not file.exists():
            raise RuntimeError(done.stdout[-3000:] + done.stderr[-3000:])
        found = json.loads(file.read_text())
    names = {
        "audio_ttfp_ms": ("median_audio_ttfp_ms",),
        "audio_rtf": ("median_audio_rtf",),
        "audio_underrun_s": ("median_audio_underrun_s", "median_audio_underrun_ms"),
        "continuity": ("audio_continuity_ok_rate", "streaming_continuity_ok_rate"),
    }
    return {
        row: next((float(found[n]) for n in known if found.get(n) is not None), float("nan"))
        for row, known in names.items()
    }


def model_of(address: str) -> str:
    """The folder from which their benchmark reads a tokenizer."""
    from engines.stock.omni.model import qwen3_omni_folder

    return qwen3_omni_folder(65536)


def main() -> None:
    """Print the table."""
    at_once, replies = (int(word) for word in (*sys.argv[1:], "4", "16")[:2])
    with OmniServer(OmniParams.model_validate({"engine": "liveserve"}), free_ports(1)[0]) as server:
        their, begun_s = theirs(server.address, at_once, replies), time.monotonic()
        our = ours(server.address, at_once, replies)
        print(f"{replies} replies, {at_once} at once, {time.monotonic() - begun_s:.0f} s for ours")
        print(f"{'':<18}{'theirs':>10}{'ours':>10}{'ours/theirs':>13}")
        for row, meaning in ROWS.items():
            over = our[row] / their[row] if their[row] else float("nan")
            print(f"{row:<18}{their[row]:>10.3f}{our[row]:>10.3f}{over:>13.3f}  {meaning}")


if __name__ == "__main__":
    main()
