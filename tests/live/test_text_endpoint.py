"""Chat completions over real sockets: prompts, history, streamed tokens and failures."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.live.endpoints.text_endpoint import completions_url
from harness.metrics.live import summarise_live
from tests.builders import refused, typed_turn
from tests.live.scripted import DONE, HEAD, Call, Outcome, Use, chunked, event, over_http, played, table, typed
from tests.waiting import until
from workloads.registry import make_trace
from workloads.trace import Trace

Parts = Callable[[dict[str, Any]], list[bytes]]


def sse(*events: Any, end: bool = True) -> bytes:
    return b"".join([*map(event, events), DONE if end else b""])


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}}
FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def words(body: dict[str, Any]) -> list[bytes]:
    """Four words in three messages, and the usage."""
    deltas = [delta(role="assistant", content=""), delta(content="a"), delta(content=" b c"), delta(content=" d")]
    return [event(each) for each in deltas] + [sse(USAGE)]


def play(trace: Trace, answer: Parts = words, status: int = 200, piece: int = 10**6, **target: Any) -> Outcome:
    """Play `trace` against a server that sends `answer`'s parts, `piece` bytes at a time."""

    async def server(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        data = HEAD % status + chunked(answer(body))
        for begin in range(0, len(data), piece):
            writer.write(data[begin : begin + piece])
            await writer.drain()
            await asyncio.sleep(0.001)

    return played(trace, lambda use: over_http(server, use), {"turn_timeout_s": 2.0}, **target)


def requests(out: Outcome) -> list[dict[str, Any]]:
    return [call.received[0] for call in out.calls]


@pytest.mark.parametrize("piece", [10**6, 7])
def test_each_turn_sends_the_conversation_so_far_with_the_server_s_replies(piece: int):
    out = play(typed(turns=3), piece=piece, model="m")
    bodies = requests(out)
    roles = [[message["role"] for message in body["messages"]] for body in bodies]
    assert roles == [["user"], ["user", "assistant", "user"], ["user", "assistant"] * 2 + ["user"]]
    assert bodies[2]["messages"][:3] == bodies[1]["messages"]
    assert bodies[1]["messages"][1]["content"] == "a b c d"
    for body in bodies:
        body.pop("messages")
        assert body.pop("type") == "request"
        assert body == {"model": "m", "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    assert out.failures.empty and out.values("first_text") == [1, 1, 1] and out.values("text") == [1] * 6
    rows = table(out)
    assert rows["status"].tolist() == ["completed"] * 3 and min(rows["ttft_s"]) > 0
    assert rows["generated_entry"].tolist() == rows["heard_entry"].tolist() == [4, 4, 4]


@pytest.mark.parametrize(("history", "reply"), [(None, "a b c d"), ("recorded", "as recorded")])
def test_recorded_conversations_continue_with_real_or_recorded_replies(tmp_path: Path, history: str | None, reply: str):
    said = [("system", "be brief"), ("human", "first"), ("gpt", "as recorded"), ("human", "second"), ("gpt", "end")]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([{"conversations": [{"from": role, "value": text} for role, text in said]}]))
    trace = make_trace("conversations", {"path": str(path), "conversations": 1, "rate": 1e3, "network_ms": 0}, 0)
    bodies = requests(play(trace, chat_history=history))
    first, second = ([(each["role"], each["content"]) for each in body["messages"]] for body in bodies)
    assert first == [("system", "be brief"), ("user", "first")]
    assert second == [*first, ("assistant", reply), ("user", "second")]


def test_reasoning_counts_as_text_and_the_answer_after_it_has_its_own_first_token():
    def think(body: dict[str, Any]) -> list[bytes]:
        thought = [] if len(body["messages"]) > 1 else [sse(delta(reasoning_content="hm"), end=False)]
        return [*thought, sse(delta(content="a"), delta(content="b"), USAGE)]

    out = play(typed(turns=2), think, piece=40)
    assert out.values("first_text") == [1, 1] and out.values("text") == [1, 1, 1]
    assert requests(out)[1]["messages"][1]["content"] == "ab", "it is not said again"
    answers = out.events.loc[out.events["kind"] == "first_answer"]
    assert answers["turn"].tolist() == [0], "the second reply does not reason"
    assert answers["t"].item() > out.times("first_text")[0]
    assert metrics_of(out)["first_answer_p50"] == pytest.approx(answers["t"].item() - table(out)["turn_end_s"][0])


def test_output_tokens_per_second_count_the_server_s_usage():
    """Each of 40 replies has four words in three messages."""
    arrival_s = [0.025 * i for i in range(40)]
    out = play(typed(sessions=40, arrival_s=arrival_s))
    assert out.sends["due_s"].tolist() == pytest.approx(arrival_s) and min(out.sends["send_delay_s"]) >= 0
    seconds = out.events["t"].max() - table(out)["turn_start_s"].min()
    assert metrics_of(out)["text_tps"] == pytest.approx(40 * 4 / seconds)
    assert metrics_of(play(typed(sessions=3, arrival_s=0.02)))["text_tps"] is None  # too few for a rate


def test_the_cached_share_of_prompts_is_that_of_the_server_s_usage():
    def cached_later(body: dict[str, Any]) -> list[bytes]:
        first = len(body["messages"]) == 1
        usage = {"prompt_tokens": 40 if first else 120, "completion_tokens": 1}
        cached = {} if first else {"prompt_tokens_details": {"cached_tokens": 64}}  # vLLM leaves out zeros
        return [sse(delta(content="a"), {"choices": [], "usage": usage | cached})]

    metrics = metrics_of(play(typed(turns=2), cached_later))
    assert metrics["prompt_tokens"] == 40 + 120
    assert metrics["cached_prompt_share"] == 64 / 160
    assert metrics_of(play(typed(turns=2)))["cached_prompt_share"] is None


def metrics_of(out: Outcome) -> dict[str, float | None]:
    metrics = summarise_live(out.events, table(out), out.sends, out.failures, {}, late_s=1.0)
    return {name: metric.value for name, metric in metrics.items()}


def test_a_reply_ends_with_its_finish_reason_and_later_usage_still_counts():
    asked_again = asyncio.Event()

    async def server(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        parts = [sse(delta(content="a"), delta(content="b"), FINISH, end=False), sse(USAGE)]
        begun, rest = (chunked([part]) for part in parts)
        writer.write(HEAD % 201 + begun.removesuffix(b"0\r\n\r\n"))
        if len(body["messages"]) == 1:  # its body stays open until the next request has come
            await asyncio.wait_for(asked_again.wait(), 5)
        asked_again.set()
        writer.write(rest)

    out = played(typed(turns=2), lambda use: over_http(server, use))
    rows = table(out)
    assert out.failures.empty and rows["status"].tolist() == ["completed"] * 2
    assert out.values("finish", "entry") == out.values("usage", "entry") == [4, 4]
    assert sorted(out.times("usage")) == out.times("reply_done")
    gaps_s = [b - a for a, b in zip(out.times("first_text"), out.times("text"), strict=True)]
    assert rows["tbt_mean_s"].tolist() == pytest.approx([gap_s / 3 for gap_s in gaps_s])  # 4 tokens, 3 gaps
    assert metrics_of(out)["tokens_stated"] == 1


def test_a_request_that_is_sent_again_is_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.live.endpoints.http_endpoint.OPENED", 1)
    monkeypatch.setattr("harness.live.endpoints.transport.http.REPEAT_S", 60.0)  # a stall may be longer
    came: list[int] = []

    async def server(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        came.append(len(body["messages"]))
        if len(came) == 2:
            writer.close()
        else:
            writer.write(HEAD % 200 + chunked(words(body)))

    out = played(typed(turns=2), lambda use: over_http(server, use))
    assert came == [1, 3, 3] and out.failures.empty
    assert out.sends["kind"].tolist() == ["request", "request", "repeat"]
    assert metrics_of(out)["requests_repeated"] == 1


@pytest.mark.parametrize(("status", "rejected"), [(429, 1), (500, 0), (503, 1)])
def test_a_failed_request_ends_its_session_and_429_and_503_count_as_rejected(status: int, rejected: int):
    out = play(typed(turns=2), status=status)
    assert out.failures[["session", "turn", "reason"]].to_numpy().tolist() == [[0, 0, f"http {status}"]]
    assert out.events["kind"].tolist().count("shed") == rejected
    assert table(out)["status"].tolist() == ["failed"]
    assert out.kinds()[-2:] == ["turn_failed", "session_end"]


@pytest.mark.parametrize(
    ("path", "completions"),
    [
        ("", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/team-a/v1", "/team-a/v1/chat/completions"),
        ("/x/y?z=1", "/x/y?z=1"),
    ],
)
def test_the_url_is_completed_to_chat_completions(path: str, completions: str):
    assert completions_url(f"http://h{path}") == f"http://h{completions}"


def test_the_history_that_a_trace_states_comes_before_the_prompt():
    [body] = requests(play(typed(history_tokens=50), ignore_eos=True))
    lengths = [len(message["content"].split()) for message in body["messages"]]
    assert lengths == [50, 5] and body["ignore_eos"] is True


def test_jobs_send_the_prefix_and_the_history_of_their_trace():
    """Job 1 is called by turn 0 of job 0 and begins with its prompt and half of its reply; jobs 2 and 3 share nothing
    but a prefix of 5 words, with job 0 and with nobody; job 4 has a history longer than its first turn."""
    job: dict[str, Any] = {"network_s": 0.0, "output_tokens": 4, "think_s": 0.0}
    turns = [
        typed_turn(0, 0, input_tokens=5, history_tokens=7, prefix=11, **job),
        typed_turn(0, 1, input_tokens=3, history_tokens=9, prefix=0, waits="1:0", **job),
        typed_turn(1, 0, input_tokens=2, history_tokens=14, prefix=0, waits="-1:0", **job | {"arrival_s": 0.0}),
        typed_turn(2, 0, input_tokens=1, history_tokens=5, prefix=11, **job),
        typed_turn(3, 0, input_tokens=1, history_tokens=5, prefix=12, **job),
        typed_turn(4, 0, input_tokens=1, **job),
        typed_turn(4, 1, input_tokens=1, history_tokens=8, prefix=0, **job),
    ]
    out = play(Trace.from_turns(turns))
    assert out.failures.empty
    conversations = [[each["content"].split() for each in body["messages"]] for body in requests(out)]
    by_lengths = {tuple(map(len, contents)): contents for contents in conversations}
    prefix, prompt = by_lengths[7, 5]
    assert by_lengths[7, 5, 2, 2][:3] == [prefix, prompt, ["a", "b"]]  # 14 words of history: the reply is cut to 2
    assert by_lengths[7, 2, 3][:2] == [prefix, prompt[:2]]  # 9 words of history
    assert (1, 4, 3, 1) in by_lengths  # 8 words of history: 5 were said, and 3 are made up
    shared = [contents[0] for contents in conversations if len(contents) == 2]
    assert sorted(map(len, shared)) == [5, 5, 7]
    assert sum(words[:5] == prefix[:5] for words in shared) == 2


def test_a_reply_that_never_ends_is_given_up_and_its_connection_closed():
    closed: list[bool] = []

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD % 200)
        with suppress(ConnectionError):
            await reader.read()  # until the client hangs up
        closed.append(True)
        writer.close()

    async def serving(use: Use) -> list[Call]:
        async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
            await use(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await until(lambda: closed)
        return []

    out = played(typed(), serving, {"turn_timeout_s": 0.2})
    assert out.failures["reason"].tolist() == ["timeout: no token"] and closed == [True]


def test_an_unreachable_server_is_reported_before_the_run():
    async def nobody(use: Use) -> list[Call]:
        await use("http://127.0.0.1:9/v1")
        return []

    with refused("start the server, or correct the url"):
        played(typed(), nobody)
