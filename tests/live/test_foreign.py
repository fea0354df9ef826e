"""`rehearse live` against servers that are not ours: chat completions and /v1/realtime of stock vLLM on the CPU."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import Record, load_record
from reports.live.server_side import both_sides
from tests.builders import REHEARSE
from tests.live.foreign import REALTIME_OPTIONS, Vllm, vllm_server, write_realtime_model, write_text_model

pytestmark = pytest.mark.slow("starts vLLM's own servers")

pytest.importorskip("vllm", reason="needs vLLM")

BUSY = ["--set", "send_delay_limit_ms=2000"]
"""vLLM computes on the cores that the clients send from; what is sent late is in the record."""


ALL_TOKENS = ["--extra-body", '{"skip_special_tokens": false}']
"""A model without weights also says special tokens, which vLLM leaves out of a reply's text, and so of its history."""
BLOCK = 32
"""Tokens of a block of the prefix cache, the fewest that vLLM has on a CPU."""


def rehearse_live(url: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*REHEARSE, "live", url, "--seed", "0", *options, *BUSY, "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def live(url: str, out: Path, *options: str) -> Record:
    """The record of the one point that `rehearse live` measures; of few turns it decides nothing."""
    done = rehearse_live(url, out, *options)
    assert done.returncode in (0, 3) and done.stdout.startswith(("PASS", "INCONCLUSIVE")), done.stdout + done.stderr
    (folder,) = (out / "points").iterdir()
    return load_record(folder)


def table(record: Record, name: str) -> Any:
    """As pandas has it, whose types say less than its values."""
    return record.table(name)


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    folder = tmp_path_factory.mktemp("completions")
    options = ("--block-size", str(BLOCK), "--enable-prompt-tokens-details")
    with vllm_server(write_text_model(folder / "text"), folder / "log", *options) as server:
        yield server


@pytest.fixture(scope="module")
def realtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    folder = tmp_path_factory.mktemp("realtime")
    model = write_realtime_model(folder / "realtime")
    with vllm_server(model, folder / "log", *REALTIME_OPTIONS) as server:
        yield server


SHORT = ["--set", "prompt_tokens=20", "--set", "max_prompt_tokens=200", "--set", "max_reply_tokens=60"]


def test_chat_completions_of_stock_vllm(completions: Vllm, tmp_path: Path):
    metrics = f"{completions.http}/metrics"
    asked = ["--set", f"model={completions.model}", "--set", "ignore_eos=true", "--scrape", metrics]
    asked += ["--slo", "ttft_p90<=60s"]  # a crowded machine is slow, and too few turns decide nothing
    record = live(f"{completions.http}/v1", tmp_path, "--rate", "4", "--duration", "6", *asked, *SHORT)
    trace = record.trace().columns()
    requests = table(record, "requests").sort_values("session")
    began = trace["arrival_s"] <= 6
    assert requests["turn_start_s"].tolist() == trace["arrival_s"][began].tolist()
    assert set(requests["status"]) == {"completed"}
    assert requests["generated_entry"].tolist() == trace["output_tokens"][began].tolist()
    assert (requests["ttft_s"] > 0).all()
    assert (requests["ttft_s"] <= requests["e2e_s"]).all()
    scraped = table(record, "scrape")
    made = scraped["value"][scraped["name"] == "vllm:generation_tokens_total"].max()
    assert made == trace["output_tokens"][began].sum() + 1, "what the client received, and the first look's token"
    sides = {both.name: both for both in both_sides(scraped, requests, table(record, "events"))}
    first, reply = sides["ttft"], sides["tpot"]
    assert first.client_n == first.server_n == len(requests), "the first look was before the first poll"
    assert reply.client_n == (requests["generated_entry"] > 1).sum()
    assert first.server_mean_s is not None and first.client_mean_s > first.server_mean_s, "what is around it counts"


def test_conversations_of_a_file_arrive_as_their_text(completions: Vllm, tmp_path: Path):
    said = [[10 + 7 * (chat % 5) + turn for turn in range(TURNS)] for chat in range(1000)]
    (tmp_path / "chats.json").write_text(json.dumps([conversation(*chat) for chat in enumerate(said)]))
    names = ("prompt_tokens_total", "prefix_cache_hits_total")
    before = [completions.counted(name) for name in names]
    data = ["--data", str(tmp_path / "chats.json"), "--sessions", "4", "--duration", "6"]
    asked = ["--set", f"model={completions.model}", "--set", "ignore_eos=true"]
    asked += [*ALL_TOKENS, "--slo", "ttft_p90<=60s"]

    record = live(f"{completions.http}/v1", tmp_path / "out", *data, *asked)

    stated = table(record, "events").pivot_table("value", ["session", "turn"], "kind")
    expected = expected_prompts(record, said, stated["finish"])
    assert [*zip(stated["prompt"], stated["prompt_cached"].fillna(0), strict=True)] == expected
    prompts, hits = (sum(column) for column in zip(*expected, strict=True))
    counted = [completions.counted(name) - at_first for name, at_first in zip(names, before, strict=True)]
    assert hits > 0 and counted == [prompts + 1, hits], "and the first look's word"


TURNS = 3


def expected_prompts(record: Record, said: list[list[int]], replies: Any) -> list[tuple[float, float]]:
    """Tokens of each prompt, and of those in the cache: a word is a token, also `</s>` in a reply. A later turn finds
    the whole blocks of what was said and answered before, but for the last token, which the server has never read."""
    trace, expected, context = record.trace().columns(), [], {}
    content = dict(zip(zip(trace["session"], trace["turn"], strict=True), trace["content"], strict=True))
    for (session, turn), reply in replies.items():
        chat, at = divmod(int(content[session, turn]), TURNS)
        history = context.get(session, 0)
        expected.append((history + said[chat][at], max(0, history - 1) // BLOCK * BLOCK))
        context[session] = expected[-1][0] + reply
    return expected


def conversation(chat: int, said: list[int]) -> dict[str, Any]:
    """In ShareGPT's layout; users say as many words, the first of which no other conversation has."""
    messages = []
    for at, count in enumerate(said):
        words = " ".join(f"word{(31 * chat + 7 * at + each) % 2000}" for each in range(count))
        messages += [{"from": "human", "value": words}, {"from": "gpt", "value": "a reply of it " * 3}]
    return {"id": str(chat), "conversations": messages}


def test_a_model_that_is_not_there_is_found_before_the_run(completions: Vllm, tmp_path: Path):
    asked = ["--set", "model=nobody", "--rate", "4", "--duration", "3"]
    done = rehearse_live(f"{completions.http}/v1", tmp_path, *asked, *SHORT)
    assert done.returncode == 2 and "HTTP status 404" in done.stderr
    assert done.stderr.endswith(f"correct model; the server has {completions.model}.\n")
    assert not [*(tmp_path / "points").iterdir()]


def test_the_realtime_endpoint_of_stock_vllm(realtime: Vllm, tmp_path: Path):
    """Speech in real time over its WebSocket, in the dialect that its greeting tells; text comes back."""
    asked = ["--set", f"model={realtime.model}", "--sessions", "3", "--duration", "10", "--set", "p=0"]
    record = live(realtime.realtime, tmp_path, *asked)
    requests, events, sends = (table(record, name) for name in ("requests", "events", "sends"))
    assert set(requests["status"]) == {"completed"}
    assert requests["turn"].max() >= 1, "a second turn on the same connection"
    assert (requests["ttft_s"] > 0).all()
    assert (requests["ttft_s"] <= requests["e2e_s"]).all()
    assert (requests["generated_entry"] > 0).all()
    assert len(table(record, "failures")) == 0
    connected = events[events["kind"] == "connected"]["session"]
    assert sorted(connected) == sorted(set(requests["session"])), "one connection for a session"
    seconds = (requests["turn_end_s"] - requests["turn_start_s"]).sum()
    pieces = (sends["kind"] == "audio").sum()
    assert abs(pieces - seconds / 0.02) <= len(requests), "20 ms in a message, the last one shorter"


def test_vllms_realtime_refuses_what_it_does_not_serve(realtime: Vllm, tmp_path: Path):
    asked = ["--set", "model=nobody", "--sessions", "2", "--duration", "3"]
    done = rehearse_live(realtime.realtime, tmp_path, *asked)
    assert done.returncode == 2 and "refuses a session of dialect vllm (The model `nobody`" in done.stderr
    assert not [*(tmp_path / "points").iterdir()]
