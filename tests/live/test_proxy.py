"""The proxy over real sockets: what passes through, what is tried again, what fails, and how."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import psutil
import pytest
from aiohttp import web

from harness.proxy import ProxyConfig
from harness.proxy.run import running
from harness.serving.listening import bound
from tests.cli.conftest import rehearse  # noqa: F401  (the fixture)

WITHIN_S = 60  # of real time: far beyond what any of this takes
SSE = {"Content-Type": "text/event-stream"}

Answer = Callable[["Scripted", web.Request], Awaitable[web.StreamResponse]]


class Scripted:
    """A server that answers as `answer` says. `bodies`: of the requests that have come."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[Any] = []
        self.step = asyncio.Semaphore(0)
        self.left = asyncio.Event()
        self.runner: web.AppRunner
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        async def post(request: web.Request) -> web.StreamResponse:
            self.bodies.append(await request.json())
            try:
                return await self.answer(self, request)
            except asyncio.CancelledError:
                self.left.set()
                raise

        async def health(_: web.Request) -> web.StreamResponse:
            return web.Response(text="ok")

        async def models(_: web.Request) -> web.StreamResponse:
            return web.json_response({"data": [{"id": "shared"}, {"id": f"only-{self.port}"}]})

        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", post), web.post("/v1/completions", post)])
        app.add_routes([web.get("/health", health), web.get("/v1/models", models)])
        app.add_routes([web.get("/v1/realtime", echo)])
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self.runner.addresses[0][1]


async def echo(request: web.Request) -> web.StreamResponse:
    """A session that says what it hears and obeys two words."""
    ws = web.WebSocketResponse(protocols=["realtime"])
    await ws.prepare(request)
    async for message in ws:
        if message.data == "die":
            request.transport.abort()  # type: ignore[union-attr]
        elif message.data == "go":
            await ws.close(code=1013, message=b"full")
        else:
            await ws.send_str(f"{request.headers.get('Authorization')} {message.data}")
    return ws


async def whole(_: Scripted, request: web.Request) -> web.StreamResponse:
    return web.json_response({"said": await request.json()})


async def stepwise(server: Scripted, request: web.Request) -> web.StreamResponse:
    """A piece of the stream for every time that `step` is released, three in all."""
    out = web.StreamResponse(headers=SSE)
    await out.prepare(request)
    for n in range(3):
        await server.step.acquire()
        await out.write(f"data: {n}\n\n".encode())
    return out


async def status_503(_: Scripted, request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="full")


async def hangs_up(_: Scripted, request: web.Request) -> web.StreamResponse:
    """After the head of its answer and before anything of the body."""
    out = web.StreamResponse(headers=SSE)
    await out.prepare(request)
    request.transport.abort()  # type: ignore[union-attr]
    return out


def breaks_off(headers: dict[str, str]) -> Answer:
    async def answer(_: Scripted, request: web.Request) -> web.StreamResponse:
        out = web.StreamResponse(headers=headers)
        await out.prepare(request)
        await out.write(b'data: {"half": ')
        request.transport.close()  # type: ignore[union-attr]  (what is written goes out)
        return out

    return answer


class Proxied:
    """A proxy before scripted servers, and a client."""

    def __init__(self, url: str, servers: list[Scripted], client: aiohttp.ClientSession) -> None:
        self.url = url
        self.servers = servers
        self.client = client

    def post(self, content: str = "hello", headers: dict[str, str] | None = None, **more: Any) -> Any:
        body = {"messages": [{"role": "user", "content": content}], **more}
        return self.client.post(f"{self.url}/v1/chat/completions", json=body, headers=headers)

    async def measured(self) -> dict[str, float]:
        """Its metrics, labels as they stand there."""
        return await measured(self.client, self.url)

    async def settled(self) -> dict[tuple[int, str], int]:
        """Requests by the server's place and outcome, once nothing is in flight any more."""
        places = {server.url: place for place, server in enumerate(self.servers)}
        counted = await settled(self.client, self.url)
        return {(places[server], outcome): count for (server, outcome), count in counted.items()}


async def measured(client: aiohttp.ClientSession, url: str) -> dict[str, float]:
    async with client.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {name: float(value) for name, value in (each.rsplit(" ", 1) for each in lines if each[0] != "#")}


async def settled(client: aiohttp.ClientSession, url: str) -> dict[tuple[str, str], int]:
    """Requests by the server's url and outcome, once nothing is in flight any more."""
    while True:
        now = await measured(client, url)
        if not any(value for name, value in now.items() if "_in_flight" in name):
            break
        await asyncio.sleep(0.02)
    shape = re.compile(r'rehearsal_proxy_requests_total\{outcome="(\w+)",server="([^"]+)"\}')
    return {
        (found[2], found[1]): int(value)
        for name, value in now.items()
        if value and (found := shape.fullmatch(name))
    }


@asynccontextmanager
async def proxied(*answers: Answer, router: str = "round_robin", **config: Any) -> AsyncIterator[Proxied]:
    servers = [Scripted(answer) for answer in answers]
    for server in servers:
        await server.start()
    urls = tuple(server.url for server in servers)
    with bound("127.0.0.1", 0) as listener:
        async with (
            running(ProxyConfig(urls=urls, router=router, **config), listener),
            aiohttp.ClientSession() as client,
        ):
            yield Proxied(f"http://127.0.0.1:{listener.getsockname()[1]}", servers, client)
    for server in servers:
        await server.runner.cleanup()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, WITHIN_S))


def test_pieces_pass_through_as_they_come():
    async def test() -> None:
        async with proxied(stepwise) as proxy:
            server = proxy.servers[0]
            server.step.release()
            async with proxy.post(stream=True) as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                for n in range(3):  # the server sends no more before the client has this
                    assert await answer.content.readany() == f"data: {n}\n\n".encode()
                    server.step.release()
                assert await answer.content.readany() == b""
            assert await proxy.settled() == {(0, "answered"): 1}

    run(test())


def test_body_and_headers_reach_the_server_and_its_answer_the_client():
    async def test() -> None:
        async with proxied(whole) as proxy:
            async with proxy.post("hi", temperature=0.5) as answer:
                said = (await answer.json())["said"]
            assert said == {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}
            async with proxy.client.post(f"{proxy.url}/v1/completions", json={"prompt": "p"}) as answer:
                assert (await answer.json())["said"] == {"prompt": "p"}
            async with proxy.client.get(f"{proxy.url}/v1/models") as answer:
                listed = [model["id"] for model in (await answer.json())["data"]]
            assert listed == ["shared", f"only-{proxy.servers[0].port}"]
            async with proxy.client.get(f"{proxy.url}/v1/chat/completions") as answer:
                assert answer.status == 405 and (await answer.json())["error"]["code"] == 405

    run(test())


@pytest.mark.parametrize("first", [status_503, hangs_up])
def test_what_was_not_begun_is_tried_on_another(first: Answer):
    async def test() -> None:
        async with proxied(first, whole) as proxy:
            for n in range(4):
                async with proxy.post(str(n)) as answer:
                    assert answer.status == 200
                    assert (await answer.json())["said"]["messages"][0]["content"] == str(n)
            tried = len(proxy.servers[0].bodies)
            assert tried and await proxy.settled() == {(1, "answered"): 4, (0, "retried"): tried}

    run(test())


def test_the_last_refusal_is_the_answer_where_nobody_takes_it():
    async def test() -> None:
        async with proxied(status_503, status_503) as proxy:
            async with proxy.post() as answer:
                assert (answer.status, await answer.text()) == (503, "full")
            assert await proxy.settled() == {(0, "retried"): 1, (1, "refused"): 1}

    run(test())


def test_a_stream_that_breaks_off_ends_with_an_event_of_its_error():
    async def test() -> None:
        async with proxied(breaks_off(SSE), whole) as proxy:
            async with proxy.post(stream=True) as answer:
                text = (await answer.content.read()).decode()
            assert answer.status == 200 and text.startswith('data: {"half": \n\ndata: ')
            error = json.loads(text.split("data: ")[2])["error"]
            assert "was lost while it answered" in error["message"] and error["code"] == 502
            assert await proxy.settled() == {(0, "failed"): 1}
            assert not proxy.servers[1].bodies, "what the client has seen is not said again by another"

    run(test())


def test_an_answer_that_is_no_stream_breaks_off_for_the_client_too():
    async def test() -> None:
        async with proxied(breaks_off({"Content-Type": "application/json"})) as proxy:
            with pytest.raises(aiohttp.ClientPayloadError):
                async with proxy.post() as answer:
                    await answer.content.read()
            assert await proxy.settled() == {(0, "failed"): 1}

    run(test())


def test_a_client_that_leaves_takes_its_request_along():
    async def test() -> None:
        async with proxied(stepwise) as proxy:
            server = proxy.servers[0]
            server.step.release()
            async with proxy.post(stream=True) as answer:
                await answer.content.readany()
                answer.close()
            await server.left.wait()
            assert await proxy.settled() == {(0, "left"): 1}

    run(test())


def test_a_dead_server_is_left_alone_until_it_answers_again():
    async def test() -> None:
        async with proxied(whole) as proxy:
            server = proxy.servers[0]
            async with proxy.post() as answer:
                assert answer.status == 200
            await server.runner.cleanup()
            async with proxy.post() as answer:
                assert answer.status in (502, 503)
            async with proxy.client.get(f"{proxy.url}/health") as answer:
                assert answer.status == 503
            async with proxy.post() as answer:
                assert answer.status == 503
                assert "no server behind the proxy answers" in (await answer.json())["error"]["message"]
            await server.start()  # on the same port
            while True:
                async with proxy.client.get(f"{proxy.url}/health") as answer:
                    if answer.status == 200:
                        break
                await asyncio.sleep(0.05)
            async with proxy.post() as answer:
                assert answer.status == 200

    run(test())


@pytest.mark.parametrize(
    ("router", "order"), [("omniproxy", [10, 700, 1000]), ("round_robin", [1000, 700, 10])]
)
def test_who_waits_at_the_proxy_goes_in_the_rules_order(router: str, order: list[int]):
    """However long they have waited: that is worth 0.2 at most, and these lengths differ by more."""

    async def answered(proxy: Proxied, length: int) -> None:
        async with proxy.post("x" * length, stream=True) as answer:
            await answer.content.read()

    async def test() -> None:
        async with proxied(stepwise, router=router, max_in_flight=1) as proxy:
            server = proxy.servers[0]
            asked = [asyncio.create_task(answered(proxy, 1))]
            while not server.bodies:
                await asyncio.sleep(0.001)
            for waiting, length in enumerate((1000, 700, 10), 1):
                asked.append(asyncio.create_task(answered(proxy, length)))
                while (await proxy.measured())["rehearsal_proxy_waiting"] < waiting:
                    await asyncio.sleep(0.001)
            assert len(server.bodies) == 1, "one at a time"
            for _ in range(12):
                server.step.release()
            await asyncio.gather(*asked)
            lengths = [len(body["messages"][0]["content"]) for body in server.bodies]
            assert lengths == [1, *order]

    run(test())


def test_prompts_that_begin_alike_go_where_the_beginning_is_and_sessions_stay():
    async def test() -> None:
        async with proxied(whole, whole, whole, router="omniproxy") as proxy:
            for n in range(9):
                async with proxy.post(f"{'system prompt ' * 100}{n}") as answer:
                    await answer.read()
            assert sorted(len(server.bodies) for server in proxy.servers) == [0, 0, 9]
        async with proxied(whole, whole, whole, router="session_affinity") as proxy:
            for n in range(12):
                async with proxy.post(str(n), headers={"X-Session-Id": f"s{n % 2}"}) as answer:
                    await answer.read()
                async with proxy.post(str(n), user=f"u{n % 2}") as answer:
                    await answer.read()
            seen: dict[str, set[int]] = {}
            for place, server in enumerate(proxy.servers):
                for body in server.bodies:
                    n = int(body["messages"][0]["content"])
                    seen.setdefault(body.get("user", f"s{n % 2}"), set()).add(place)
            assert all(len(places) == 1 for places in seen.values()) and len(seen) == 4

    run(test())


def test_without_the_token_only_health_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROXY_TOKEN", "sesame")

    async def test() -> None:
        async with proxied(whole, token_env="PROXY_TOKEN") as proxy:
            for headers, status in ((None, 401), ({"Authorization": "Bearer sesame"}, 200)):
                async with proxy.post(headers=headers) as answer:
                    assert answer.status == status
            async with proxy.client.get(f"{proxy.url}/metrics") as answer:
                assert answer.status == 401
            async with proxy.client.get(f"{proxy.url}/health") as answer:
                assert answer.status == 200

    run(test())


def test_a_realtime_session_passes_both_ways_and_so_does_its_end():
    async def test() -> None:
        async with proxied(whole) as proxy:
            own = {"headers": {"Authorization": "Bearer own"}, "protocols": ["realtime"]}
            async with proxy.client.ws_connect(f"{proxy.url}/v1/realtime", **own) as ws:
                assert ws.protocol == "realtime"
                for said in ("one", "two"):
                    await ws.send_str(said)
                    assert await ws.receive_str() == f"Bearer own {said}"
                await ws.send_str("go")
                assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
                assert ws.close_code == 1013
            async with proxy.client.ws_connect(f"{proxy.url}/v1/realtime") as ws:
                await ws.send_str("die")
                assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
                assert ws.close_code == 1011
            async with proxy.client.ws_connect(f"{proxy.url}/v1/realtime"):
                pass
            assert await proxy.settled() == {(0, "answered"): 1, (0, "failed"): 1, (0, "left"): 1}

    run(test())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["proxy", "127.0.0.1:8000"], r"url '127.0.0.1:8000' is no server's; write http://HOST:PORT\."),
        (["proxy", "http://a:1", "http://a:1"], "url http://a:1 stands there twice"),
        (
            ["proxy", "http://a:1", "--router", "omniprox"],
            r"unknown router 'omniprox'. Did you mean 'omniproxy",
        ),
        (["proxy", "http://a:1", "--max-in-flight", "0"], "must be at least 1, got 0"),
        (["proxy", "http://a:1", "--port", "70000"], "should be less than or equal to 65535, got 70000"),
        (["proxy", "http://a:1", "--host", "0.0.0.0"], "lets other machines in, and there is no token"),
        (["proxy", "http://a:1", "--token-env", "NOT_SET_ANYWHERE"], "export NOT_SET_ANYWHERE=TOKEN"),
        (["proxy"], "missing argument 'URL...'"),
        (["serve", "liveserve", "--replicas", "0"], "must be at least 1, got 0"),
        (
            ["serve", "liveserve", "--router", "dynamo"],
            "--router dynamo chooses among replicas, and there is one",
        ),
        (["serve", "liveserve", "--replicas", "2", "--router", "x"], "unknown router 'x'"),
        (["serve", "liveserv", "--replicas", "2"], "unknown engine 'liveserv'"),
    ],
)
def test_what_cannot_be_is_one_sentence(rehearse: Callable, arguments: list[str], sentence: str):  # noqa: F811
    status, said, error = rehearse(*arguments)
    assert (status, said) == (2, "")
    assert re.search(sentence, error) and error.count("\n") == 1


@contextmanager
def replicas(*arguments: str) -> Iterator[tuple[str, dict[str, psutil.Process]]]:
    """`rehearse serve` with several processes: its address, and theirs by url. Ctrl-C ends it and them."""
    code = "from reports.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "vllm_omni_wo", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        servers: dict[str, psutil.Process] = {}
        try:
            url = process.stdout.readline().strip()
            assert url, process.stderr.read()
            servers |= {
                f"http://127.0.0.1:{connection.laddr.port}": child
                for child in psutil.Process(process.pid).children()
                for connection in child.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            }
            yield url, servers
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, said
    assert not [child for child in servers.values() if child.is_running()]
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_killed_server_loses_what_it_had_begun_and_nothing_else():
    """Eight streams have begun, four on each; one server is stopped, two more requests reach it; then it is killed."""
    body = {"messages": [{"role": "user", "content": "hello there"}], "stream": True, "max_tokens": 600}

    async def test(url: str, servers: dict[str, psutil.Process]) -> None:
        async with aiohttp.ClientSession() as client:

            async def ask(begun: asyncio.Event, **changes: Any) -> str:
                async with client.post(f"{url}/v1/chat/completions", json=body | changes) as answer:
                    assert answer.status == 200
                    first = await answer.content.readany()
                    begun.set()
                    return (first + await answer.content.read()).decode()

            starts = [asyncio.Event() for _ in range(8)]
            early = [asyncio.create_task(ask(each)) for each in starts]
            await asyncio.gather(*(each.wait() for each in starts))
            doomed, survivor = servers
            os.kill(servers[doomed].pid, signal.SIGSTOP)
            late = [asyncio.create_task(ask(asyncio.Event(), max_tokens=5)) for _ in range(4)]
            name = f'rehearsal_proxy_in_flight{{server="{doomed}"}}'
            while (await measured(client, url))[name] < 6:
                await asyncio.sleep(0.02)
            os.kill(servers[doomed].pid, signal.SIGKILL)
            ends = ["data: [DONE]" in each for each in await asyncio.gather(*early)]
            errors = [f"{doomed} was lost while it answered" in each.result() for each in early]
            assert errors == [not end for end in ends] and sum(errors) == 4
            assert all("data: [DONE]" in each for each in await asyncio.gather(*late))
            lost = {(doomed, "failed"): 4, (doomed, "retried"): 2}
            assert await settled(client, url) == lost | {(survivor, "answered"): 8}
            for _ in range(3):
                assert "data: [DONE]" in await ask(asyncio.Event(), max_tokens=5)
            assert await settled(client, url) == lost | {(survivor, "answered"): 11}

    chosen = ("--set", "deployment=llama_8b_1gpu", "--replicas", "2", "--router", "round_robin")
    with replicas(*chosen) as (url, servers):
        assert len(servers) == 2
        asyncio.run(asyncio.wait_for(test(url, servers), WITHIN_S))
