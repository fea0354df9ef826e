"""A proxy before servers of ours, one of which is killed."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import psutil
import pytest

from tests.builders import REHEARSE
from tests.live.proxied import measured, settled
from tests.waiting import WITHIN_S, until


@contextmanager
def replicas(*arguments: str) -> Iterator[tuple[str, dict[str, psutil.Process]]]:
    """`rehearse serve` with several processes: its address, and theirs by url. Ctrl-C ends it and them."""
    command = [*REHEARSE, "serve", "vllm_omni_wo", "--port", "0", *arguments]
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

            async def held() -> bool:
                return (await measured(client, url))[name] == 6

            await until(held)
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


@pytest.mark.slow
def test_sigterm_finishes_what_the_replicas_have_begun():
    body = {"messages": [{"role": "user", "content": "hello there"}], "stream": True, "max_tokens": 300}

    async def test(url: str, servers: dict[str, psutil.Process]) -> None:
        (parent,) = {psutil.Process(child.pid).ppid() for child in servers.values()}
        async with aiohttp.ClientSession() as client:
            begun = [await client.post(f"{url}/v1/chat/completions", json=body) for _ in range(4)]
            idle = await client.ws_connect(f"{url}/v1/realtime")
            await idle.receive(timeout=WITHIN_S)
            os.kill(parent, signal.SIGTERM)
            told = await idle.receive(timeout=WITHIN_S)
            assert (told.type, told.data) == (aiohttp.WSMsgType.CLOSE, 1001)
            assert all(["data: [DONE]" in await answer.text() for answer in begun])
        await until(lambda: psutil.Process(parent).status() == psutil.STATUS_ZOMBIE)  # told once is enough

    chosen = ("--set", "deployment=llama_8b_1gpu", "--replicas", "2", "--router", "round_robin")
    with replicas(*chosen) as (url, servers):
        asyncio.run(asyncio.wait_for(test(url, servers), WITHIN_S))
