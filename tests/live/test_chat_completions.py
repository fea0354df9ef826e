"""Chat completions of a server of ours, asked by OpenAI's own client."""

import asyncio
import json
from typing import Any

import openai
import pytest

from engines.endpoint.limits import Limits
from engines.turns.hook import Hook
from tests.live.served import served
from tests.waiting import WITHIN_S, in_a_loop, until
from workloads.trace import Turn

TOKEN = "opensesame"
HELLO = {"messages": [{"role": "user", "content": "hello there"}], "stream": True}


async def streamed(client: openai.AsyncOpenAI, text: str, tokens: int, **more: Any) -> list[Any]:
    """The chunks of a reply of `tokens`, the last of which has its usage."""
    chunks = await client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": text}],
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=more,
    )
    return [chunk async for chunk in chunks]


async def whole(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> str:
    """The text of a reply, streamed or not."""
    completion = await client.chat.completions.create(model="any", **asked)
    if not asked["stream"]:
        return completion.choices[0].message.content
    return "".join([chunk.choices[0].delta.content or "" async for chunk in completion])


@in_a_loop
async def test_replies_are_streamed_one_after_the_other_over_one_connection() -> None:
    async with served() as server, server.client() as client:
        for tokens in (6, 1):
            *chunks, usage = await streamed(client, "word " * 40, tokens, priority=tokens)
            words = [chunk.choices[0].delta.content for chunk in chunks[:-1]]
            assert len(words) == tokens and all(words)
            assert chunks[0].choices[0].delta.role == "assistant"
            assert chunks[-1].choices[0].finish_reason == "length"
            assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (50, tokens)
        assert [turn.request.slo.priority for turn in server.turns] == [6, 1]
        assert server.sockets.sockets == 1
        stats = server.sessions.stats
        assert (stats.ttft_s.count, stats.token_s.count) == (2, 5)  # six tokens have five gaps


@in_a_loop
async def test_without_stream_the_whole_reply_is_one_answer_with_its_usage() -> None:
    async with served() as server, server.client() as client:
        chunks = await streamed(client, "word " * 40, 6)
        asked: Any = {"messages": [{"role": "user", "content": "word " * 40}], "max_tokens": 6}
        reply = await client.chat.completions.create(model="any", **asked)
        (choice,) = reply.choices
        assert (reply.object, reply.model) == ("chat.completion", chunks[0].model)
        assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
        assert len(choice.message.content.split()) == 2  # six syllables, three a word
        assert reply.usage == chunks[-1].usage


@in_a_loop
async def test_the_served_model_is_listed_with_the_length_of_its_context() -> None:
    async with served(token=TOKEN) as server:
        client = server.client(TOKEN)
        (model,) = (await client.models.list()).data
        assert model.id == (await streamed(client, "x", 1))[0].model
        assert model.object == "model" and json.loads(model.to_json())["max_model_len"] > 1000
        with pytest.raises(openai.AuthenticationError):
            await server.client("wrong").models.list()
        with pytest.raises(openai.NotFoundError) as missing:
            await client.models.retrieve("other")
        assert "/v1/models" in missing.value.message and missing.value.code == "path"


@pytest.mark.parametrize("stream", [True, False])
@in_a_loop
async def test_a_draining_server_finishes_its_replies_and_begins_none(stream: bool) -> None:
    async with served() as server, server.client() as client:
        asked = {**HELLO, "stream": stream, "max_tokens": 60}
        talking = asyncio.create_task(whole(client, asked))
        await until(lambda: server.turns)
        draining = asyncio.create_task(server.sockets.drain(WITHIN_S))
        await asyncio.sleep(0)
        with pytest.raises(openai.InternalServerError) as refused:
            await whole(client, asked)
        assert refused.value.status_code == 503 and refused.value.code == "closing"
        assert len((await talking).split()) == 20
        assert await draining == 0 and server.sockets.closed == {1000: 1}
        assert len(server.turns) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"priority": "high"}, "priority"),
        ({"priority": True}, "priority"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 32_769}, "max_tokens"),
        ({"n": 2}, "n"),
    ],
)
@in_a_loop
async def test_a_wrong_field_is_named_as_openai_does(changes: dict[str, Any], field: str) -> None:
    async with served() as server, server.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(**{"model": "any", **HELLO, "extra_body": changes})
        assert refused.value.param == field
        assert len(await streamed(client, "x", 2)) == 4
        assert server.sockets.refused == {"request": 1}


@in_a_loop
async def test_a_body_that_is_no_object_is_answered_with_400() -> None:
    async with served() as server:
        for body in (b"nonsense", b"\xff\xfe", b"[]", b"[" * 10_000):
            assert (await server.post(body))[0] == 400


@in_a_loop
async def test_a_request_without_the_token_is_refused_before_its_body() -> None:
    async with served(token=TOKEN) as server:
        with pytest.raises(openai.AuthenticationError):
            await streamed(server.client("wrong"), "x", 1)
        assert len(await streamed(server.client(TOKEN), "x", 1)) == 3
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Length: 99\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"401"
        writer.close()


@in_a_loop
async def test_generation_ends_when_the_client_disconnects_during_the_reply() -> None:
    most_tokens = 4000
    async with served() as server:
        client = server.client()
        reply = await client.chat.completions.create(model="any", max_tokens=most_tokens, **HELLO)
        await anext(aiter(reply))

        await reply.close()
        await client.close()
        await until(lambda: not server.sockets.sessions)
        await server.sessions.server.settle()  # returns once no stage has work

        stats = server.sessions.stats
        assert stats.turns == {"lost": 1}
        assert 0 < stats.tokens["thinker"] < most_tokens


class Closed(Hook):
    """Rejects all turns."""

    def rejects(self, turn: Turn, tokens: int) -> str:
        return "no more today"


@in_a_loop
async def test_a_rejected_request_is_answered_with_429_and_others_can_follow() -> None:
    async with served() as server, server.client() as client:
        server.sessions.server.gateway.pipeline.attach(Closed())
        for _ in range(2):
            with pytest.raises(openai.RateLimitError, match="no more today"):
                await whole(client, {**HELLO, "stream": False})
        with pytest.raises(openai.APIError, match="no more today"):
            await streamed(client, "x", 1)
        assert server.sockets.sockets == 1 and server.sessions.stats.turns == {"failed": 3}


@in_a_loop
async def test_requests_over_a_limit_are_refused_and_a_full_server_answers_503() -> None:
    limits = Limits.model_validate({"message_bytes": 2048, "max_sessions": 1})
    async with served(limits=limits) as server, server.client() as client:
        assert (await server.post(b" " * 3000))[0] == 413
        assert (await server.post(b"{}", head="X: " + "y" * 20_000 + "\r\n"))[0] == 431
        talking = await client.chat.completions.create(model="any", max_tokens=500, **HELLO)
        await anext(aiter(talking))
        with pytest.raises(openai.InternalServerError) as full:
            await streamed(client, "x", 1)
        assert full.value.status_code == 503 and "1 sessions are on line" in full.value.message
        await talking.close()
        await until(lambda: not server.sockets.sessions)
        assert len(await streamed(client, "x", 1)) == 3


@in_a_loop
async def test_a_reply_that_cannot_be_built_takes_no_session() -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    mistakes: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context["exception"]))
    async with served() as server, server.client() as client:
        assert server.sockets.posted is not None
        server.sockets.posted = server.sockets.posted._replace(begin=fail)
        with pytest.raises(openai.APIConnectionError):
            await streamed(client, "x", 1)
        assert not server.sockets.sessions and str(mistakes[0]) == "a mistake of ours"
