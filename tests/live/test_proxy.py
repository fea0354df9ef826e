"""The proxy over real sockets: what passes through, what is tried again, what fails, and how."""

import asyncio
import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import aiohttp
import pytest
from pydantic import BaseModel, Field

from engines.composition import Routing
from engines.core.router import Target
from harness.proxy import proxy_config
from tests.engines import outside_router
from tests.live.proxied import (
    SSE,
    Answer,
    Proxied,
    breaks_off,
    hangs_up,
    proxied,
    status_503,
    stepwise,
    whole,
)
from tests.waiting import in_a_loop, until
from workloads.errors import UserError


@in_a_loop
async def test_pieces_pass_through_as_they_come():
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


@in_a_loop
async def test_body_and_headers_reach_the_server_and_its_answer_the_client():
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


@pytest.mark.parametrize("first", [status_503, hangs_up])
@in_a_loop
async def test_what_was_not_begun_is_tried_on_another(first: Answer):
    async with proxied(first, whole) as proxy:
        for n in range(4):
            async with proxy.post(str(n)) as answer:
                assert answer.status == 200
                assert (await answer.json())["said"]["messages"][0]["content"] == str(n)
        tried = len(proxy.servers[0].bodies)
        assert tried and await proxy.settled() == {(1, "answered"): 4, (0, "retried"): tried}


@in_a_loop
async def test_the_last_refusal_is_the_answer_where_nobody_takes_it():
    async with proxied(status_503, status_503) as proxy:
        async with proxy.post() as answer:
            assert (answer.status, await answer.text()) == (503, "full")
        assert await proxy.settled() == {(0, "retried"): 1, (1, "refused"): 1}


@in_a_loop
async def test_a_stream_that_breaks_off_ends_with_an_event_of_its_error():
    async with proxied(breaks_off(SSE), whole) as proxy:
        async with proxy.post(stream=True) as answer:
            text = (await answer.content.read()).decode()
        assert answer.status == 200 and text.startswith('data: {"half": \n\ndata: ')
        error = json.loads(text.split("data: ")[2])["error"]
        assert "was lost while it answered" in error["message"] and error["code"] == 502
        assert await proxy.settled() == {(0, "failed"): 1}
        assert not proxy.servers[1].bodies, "what the client has seen is not said again by another"


@in_a_loop
async def test_an_answer_that_is_no_stream_breaks_off_for_the_client_too():
    async with proxied(breaks_off({"Content-Type": "application/json"})) as proxy:
        with pytest.raises(aiohttp.ClientPayloadError):
            async with proxy.post() as answer:
                await answer.content.read()
        assert await proxy.settled() == {(0, "failed"): 1}


@in_a_loop
async def test_a_client_that_leaves_takes_its_request_along():
    async with proxied(stepwise) as proxy:
        server = proxy.servers[0]
        server.step.release()
        async with proxy.post(stream=True) as answer:
            await answer.content.readany()
            answer.close()
        await server.left.wait()
        assert await proxy.settled() == {(0, "left"): 1}


@in_a_loop
async def test_a_dead_server_is_left_alone_until_it_answers_again():
    async with proxied(whole) as proxy:
        server = proxy.servers[0]
        assert await proxy.status() == 200
        await server.runner.cleanup()
        assert await proxy.status() in (502, 503)
        assert await proxy.status("/health") == 503
        async with proxy.post() as answer:
            assert answer.status == 503
            assert "no server behind the proxy answers" in (await answer.json())["error"]["message"]
        await server.start()  # on the same port

        async def healthy() -> bool:
            return await proxy.status("/health") == 200

        await until(healthy)
        assert await proxy.status() == 200


@pytest.mark.parametrize(
    ("router", "order"), [("omniproxy", [10, 700, 1000]), ("round_robin", [1000, 700, 10])]
)
@in_a_loop
async def test_who_waits_at_the_proxy_goes_in_the_rules_order(router: str, order: list[int]):
    """However long they have waited: that is worth 0.2 at most, and these lengths differ by more."""

    async def waits(proxy: Proxied, count: int) -> bool:
        return (await proxy.measured())["rehearsal_proxy_waiting"] == count

    async def answered(proxy: Proxied, length: int) -> None:
        async with proxy.post("x" * length, stream=True) as answer:
            await answer.content.read()

    async with proxied(stepwise, router=router, max_in_flight=1) as proxy:
        server = proxy.servers[0]
        asked = [asyncio.create_task(answered(proxy, 1))]
        await until(lambda: server.bodies)
        for waiting, length in enumerate((1000, 700, 10), 1):
            asked.append(asyncio.create_task(answered(proxy, length)))
            await until(partial(waits, proxy, waiting))
        assert len(server.bodies) == 1, "one at a time"
        for _ in range(12):
            server.step.release()
        await asyncio.gather(*asked)
        lengths = [len(body["messages"][0]["content"]) for body in server.bodies]
        assert lengths == [1, *order]


@in_a_loop
async def test_prompts_that_begin_alike_go_where_the_beginning_is_and_sessions_stay():
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


@in_a_loop
async def test_without_the_token_only_health_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROXY_TOKEN", "sesame")
    async with proxied(whole, token_env="PROXY_TOKEN") as proxy:
        for headers, status in ((None, 401), ({"Authorization": "Bearer sesame"}, 200)):
            assert await proxy.status(headers=headers) == status
        assert await proxy.status("/metrics") == 401
        assert await proxy.status("/health") == 200


@in_a_loop
async def test_a_page_of_another_site_does_not_reach_it_by_a_name_of_its_own():
    async with proxied(whole) as proxy:
        for host, status in (("evil.example", 403), ("localhost:80", 200), ("[::1]", 200)):
            assert await proxy.status(headers={"Host": host}) == status


@in_a_loop
async def test_a_realtime_session_passes_both_ways_and_so_does_its_end():
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


class There(BaseModel):
    place: int = Field(0, ge=0)


class Fixed(outside_router.Loyal):
    """Every request goes to one server."""

    def __init__(self, replicas: Sequence[Target], params: There) -> None:
        super().__init__(replicas, outside_router.LoyalParams())
        self._place = params.place

    def route(self, *asked: Any, among: Sequence[int] | None = None) -> int:
        self.load[self._place] += 1
        return self._place


FIXED = Routing("fixed", "to one server", There, rule=Fixed)


@in_a_loop
async def test_a_rule_is_made_with_its_parameters(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(proxy_config.ROUTINGS, FIXED.name, FIXED)
    for settings, place in (({}, 0), ({"place": 1}, 1)):
        async with proxied(whole, whole, router="fixed", settings=settings) as proxy:
            for _ in range(2):
                async with proxy.post() as answer:
                    await answer.read()
            assert await proxy.settled() == {(place, "answered"): 2}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"plac": 1}, "router fixed: unknown parameter 'plac'. Did you mean 'place'"),
        ({"place": -1}, "'place' should be greater than or equal to 0, got -1"),
    ],
)
def test_parameters_that_a_rule_does_not_have_or_take_are_refused(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, int], sentence: str
):
    monkeypatch.setitem(proxy_config.ROUTINGS, FIXED.name, FIXED)
    asked = proxy_config.ProxyConfig(urls=("http://127.0.0.1:1",), router="fixed", settings=settings)
    with pytest.raises(UserError, match=re.escape(sentence)):
        proxy_config.check(asked)
