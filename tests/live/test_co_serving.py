"""Online requests next to a batch that holds all slots, at stock vLLM's own API server on the CPU.

Whether a document had ended is asked of the server's own counters: clients may be kept waiting by the machine.
"""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live.foreign import Vllm, vllm_server, write_text_model
from tests.waiting import wait_until

pytestmark = pytest.mark.slow("starts vLLM's own server")

pytest.importorskip("vllm", reason="needs vLLM")

SLOTS, BATCH, ONLINE = 4, 8, 10
CONSERVE = {"rehearsal": {"engine": "conserve", "deployment": "llama_8b_1gpu"}}
SCHEDULER = ("--scheduler-cls", "engines.stock.scheduler.Scheduler", "--additional-config", json.dumps(CONSERVE))
OPTIONS = ("--max-num-seqs", str(SLOTS), "--no-async-scheduling", *SCHEDULER)


def complete(server: Vllm, words: int, tokens: int, priority: int) -> None:
    asked = {"model": server.model, "prompt": " ".join(f"word{(7 * i + words) % 2000}" for i in range(words))}
    asked |= {"max_tokens": tokens, "ignore_eos": True, "priority": priority}
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.http}/v1/completions", json.dumps(asked).encode(), head)
    with urllib.request.urlopen(request) as answer:
        answer.read()


def test_online_requests_take_slots_from_a_batch_that_holds_all(tmp_path: Path):
    model = write_text_model(tmp_path / "text")
    with ThreadPoolExecutor(BATCH) as clients, vllm_server(model, tmp_path / "log", *OPTIONS) as server:
        for i in range(BATCH):
            clients.submit(complete, server, 100 + i, 8000, priority=10)
        wait_until(lambda: server.counted("num_requests_running") == SLOTS)
        for n in range(1, ONLINE + 1):
            complete(server, 20 + n, 8, priority=0)
            assert server.counted("request_success_total") <= n, "no document had ended by then"
        assert server.counted("num_preemptions_total") >= 1
