"""`rehearse live` against servers that are not ours: chat completions and /v1/realtime of stock vLLM on the CPU."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import Record, load_record
from reports.live.server_side import both_sides
from tests.builders import REHEARSE, settings
from tests.live.foreign import REALTIME_OPTIONS, Vllm, vllm_server, write_realtime_model, write_text_model

pytestmark = pytest.mark.slow("starts vLLM's own servers")

pytest.importorskip("vllm", reason="needs vLLM")

ALL_TOKENS = ("--extra-body", '{"skip_special_tokens": false}')
"""A model without weights also says special tokens, which vLLM leaves out of a reply's text, and so of its history."""
BLOCK = 32
"""Tokens of a block of the prefix cache, the fewest that vLLM has on a CPU."""
CHAT = (*settings("ignore_eos=true"), "--slo", "ttft_p90<=60s")
"""A crowded machine is slow."""


def live(url: str, model: str, out: Path, *options: str) -> Record:
    """The record of the one point that `rehearse live` measures; of few turns it decides nothing. vLLM computes on the
    cores that the clients send from, so sends may be late."""
    chosen = settings(f"model={model}", "send_delay_limit_ms=2000")
    command = [*REHEARSE, "live", url, "--seed", "0", *chosen, *options, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
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


def test_a_run_at_stock_vllm_agrees_with_the_counters_of_the_server(completions: Vllm, tmp_path: Path):
    chats = settings("prompt_tokens=20", "max_prompt_tokens=200", "max_reply_tokens=60")
    asked = ("--rate", "4", "--duration", "6", "--scrape", f"{completions.http}/metrics", *chats, *CHAT)
    record = live(f"{completions.http}/v1", completions.model, tmp_path, *asked)

    trace = record.trace().columns()
    requests = table(record, "requests").sort_values("session")
    began = trace["arrival_s"] <= 6
    assert requests["turn_start_s"].tolist() == trace["arrival_s"][began].tolist()
    assert set(requests["status"]) == {"completed"}
    assert requests["generated_entry"].tolist() == trace["output_tokens"][began].tolist()
    assert requests["ttft_s"].between(0, requests["e2e_s"], inclusive="right").all()
    scraped = table(record, "scrape")
    made = scraped["value"][scraped["name"] == "vllm:generation_tokens_total"].max()
    assert made == trace["output_tokens"][began].sum() + 1, "what the client received, and the first look's token"
    sides = {both.name: both for both in both_sides(scraped, requests, table(record, "events"))}
    first, reply = sides["ttft"], sides["tpot"]
    assert first.client_n == first.server_n == len(requests), "the first look was before the first poll"
    assert first.server_mean_s is not None
    assert first.client_mean_s > first.server_mean_s, "the client also waits for the network"
    assert reply.client_n == (requests["generated_entry"] > 1).sum()


def test_a_conversation_arrives_as_its_text_and_finds_its_history_in_the_cache(completions: Vllm, tmp_path: Path):
    said = [[10 + 7 * (chat % 5) + turn for turn in range(TURNS)] for chat in range(1000)]
    (tmp_path / "chats.json").write_text(json.dumps([conversation(*chat) for chat in enumerate(said)]))
    names = ("prompt_tokens_total", "prefix_cache_hits_total")
    before = [completions.counted(name) for name in names]

    asked = ("--data", str(tmp_path / "chats.json"), "--sessions", "4", "--duration", "6", *ALL_TOKENS, *CHAT)
    record = live(f"{completions.http}/v1", completions.model, tmp_path / "out", *asked)

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


def test_the_realtime_endpoint_of_stock_vllm_transcribes_speech_sent_in_real_time(realtime: Vllm, tmp_path: Path):
    calls = ("--sessions", "3", "--duration", "10", *settings("p=0"))
    record = live(realtime.realtime, realtime.model, tmp_path, *calls)
    requests, events, sends = (table(record, name) for name in ("requests", "events", "sends"))
    assert set(requests["status"]) == {"completed"}
    assert requests["turn"].max() >= 1, "a second turn on the same connection"
    assert requests["ttft_s"].between(0, requests["e2e_s"], inclusive="right").all()
    assert (requests["generated_entry"] > 0).all()
    assert len(table(record, "failures")) == 0
    connected = events[events["kind"] == "connected"]["session"]
    assert sorted(connected) == sorted(set(requests["session"])), "one connection for a session"
    seconds = (requests["turn_end_s"] - requests["turn_start_s"]).sum()
    messages = (sends["kind"] == "audio").sum()
    assert abs(messages - seconds / 0.02) <= len(requests), "20 ms in a message, the last one shorter"
