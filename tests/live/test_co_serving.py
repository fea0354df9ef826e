"""Online requests beside a batch that holds all slots, at stock vLLM's own API server on the CPU.

Whether a document had ended is asked of the server's own counters: clients may be kept waiting by the machine.
"""

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.foreign import Vllm, vllm_server, write_text_model
from tests.waiting import until

pytestmark = pytest.mark.slow

aiohttp = pytest.importorskip("aiohttp", reason="needs an HTTP client, which comes with vLLM")
pytest.importorskip("vllm", reason="needs vLLM")

SLOTS, BATCH, ONLINE, ONLINE_TOKENS = 4, 8, 10, 8
OF_VLLM = ("--max-num-seqs", str(SLOTS), "--no-async-scheduling")
CONSERVE = (
    "--scheduler-cls",
    "engines.stock.scheduler.Scheduler",
    "--additional-config",
    json.dumps({"rehearsal": {"engine": "conserve", "deployment": "llama_8b_1gpu"}}),
)


@dataclass
class Stream:
    """What online clients saw, s, and how many requests the server had ended when each was answered."""

    ttft_s: list[float]
    tbt_s: list[float]
    ended: list[int]
    preemptions: int

    def __str__(self) -> str:
        ttft_s, tbt_s = (np.quantile(times, 0.99) for times in (self.ttft_s, self.tbt_s))
        return f"P99 TTFT {1e3 * ttft_s:.0f} ms, TBT {1e3 * tbt_s:.0f} ms, {self.preemptions} put back"


async def counted(client: aiohttp.ClientSession, counter: str) -> int:
    async with client.get("/metrics") as answer:
        lines = re.findall(rf"^vllm:{counter}\{{.*\}} (\S+)$", await answer.text(), re.MULTILINE)
    return int(sum(map(float, lines)))


def completion(model: str, words: int, tokens: int, priority: int, stream: bool) -> dict[str, Any]:
    prompt = " ".join(f"word{(7 * i + words) % 2000}" for i in range(words))
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0.0,
        "stream": stream,
        "priority": priority,
        "ignore_eos": True,
    }


async def both_streams(server: Vllm, document_tokens: int) -> Stream:
    """Online requests one after another, once the batch has taken every slot and more of it waits."""
    seen = Stream([], [], [], 0)

    async def document(words: int) -> None:
        """Not streamed: a thousand lines a second would be the test of another part of the server."""
        body = completion(server.model, words, document_tokens, 10, stream=False)
        async with client.post("/v1/completions", json=body) as answer:
            answer.raise_for_status()
            await answer.read()

    async with aiohttp.ClientSession(server.http, connector=aiohttp.TCPConnector(force_close=True, limit=0)) as client:
        batch = [asyncio.ensure_future(document(100 + i)) for i in range(BATCH)]

        async def full() -> bool:
            return await counted(client, "num_requests_running") == SLOTS

        await until(full)
        for i in range(ONLINE):
            body = completion(server.model, 20 + i, ONLINE_TOKENS, 0, stream=True)
            last_s = time.monotonic()
            async with client.post("/v1/completions", json=body) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        now = time.monotonic()
                        (seen.tbt_s if len(seen.ttft_s) > i else seen.ttft_s).append(now - last_s)
                        last_s = now
            seen.ended.append(await counted(client, "request_success_total"))
        seen.preemptions = await counted(client, "num_preemptions_total")
        for each in batch:
            each.cancel()
        await asyncio.gather(*batch, return_exceptions=True)
    return seen


def serve(folder: Path, document_tokens: int, *options: str) -> Stream:
    folder.mkdir()
    model = write_text_model(folder / "text")
    with vllm_server(model, folder / "log", *OF_VLLM, *options) as server:
        return asyncio.run(both_streams(server, document_tokens))


def test_online_requests_take_slots_from_the_batch_where_vllms_priority_policy_lets_them_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with ThreadPoolExecutor() as both:
        ours = both.submit(serve, tmp_path / "conserve", 8000, *CONSERVE)
        vllms = both.submit(serve, tmp_path / "priority", 1000, "--scheduling-policy", "priority")
        conserve, priority = ours.result(), vllms.result()
    assert conserve.preemptions >= 1
    assert all(ended <= n for n, ended in enumerate(conserve.ended, 1)), "no document had ended by then"
    assert len(conserve.ended) == len(priority.ended) == ONLINE
    assert priority.preemptions == 0
    assert priority.ended[0] >= 2, "a document had to end first"
    with capsys.disabled():
        print(f"\nconserve: {conserve}; priority: {priority}")
