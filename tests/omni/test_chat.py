"""Replies of vLLM-Omni's own API server on modelled GPUs under our policy, with signals and barge-ins."""

import asyncio
from typing import Any

import aiohttp
import pytest

from harness.serving.omni_server import OmniServer
from tests.omni.chat import Heard, ask, request

BARGE_INS = 100
WITHIN_S = 10.0
"""[chosen] in which a reply that was cut must end at its client."""


async def tell(http: aiohttp.ClientSession, server: OmniServer, verb: str, session: str, **fields: Any) -> Any:
    values = {"verb": verb, "session": session, **fields}
    async with http.post(f"{server.address}/rehearsal/signal", json=values) as answer:
        return await answer.json()


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120), connector=aiohttp.TCPConnector(limit=0))


def gathered(server: OmniServer, *asked: dict[str, Any]) -> list[Heard]:
    async def all_of_them() -> list[Heard]:
        async with client() as http:
            return await asyncio.gather(*(ask(http, server.address, each) for each in asked))

    return asyncio.run(all_of_them())


def test_a_reply_has_the_requested_text_tokens_and_its_frames_in_chunks_of_the_deployment(liveserve: OmniServer):
    (heard,) = gathered(liveserve, request("one", 30, 100))
    assert heard.text == 30
    chunks = [4, 25, 25, 25, 21]  # frames of 0.08 s; qwen3_omni_2gpu sends a first chunk of 4 and then chunks of 25
    assert [seconds for _, seconds in heard.audio] == pytest.approx([0.08 * frames for frames in chunks], abs=0.0005)


def test_replies_at_once_are_whole_and_share_steps(liveserve: OmniServer):
    alone = gathered(liveserve, request("alone", 60, 250))[0]
    together = gathered(liveserve, *(request(f"of eight {i}", 60, 250) for i in range(8)))
    assert all(heard.text == 60 and heard.audio_s == pytest.approx(20.0) for heard in together)
    longest_s = max(heard.audio[-1][0] for heard in together)
    assert longest_s < 4 * alone.audio[-1][0]


def test_a_reply_whose_length_nobody_says_ends_by_itself(liveserve: OmniServer):
    asked = request("open", 0, 0)
    del asked["sampling_params_list"]
    (heard,) = gathered(liveserve, asked)
    assert heard.text and heard.audio_s >= 0.08 * heard.text


def test_a_barge_in_ends_the_reply_at_its_client_and_at_every_stage(liveserve: OmniServer):
    async def cut() -> Any:
        async with client() as http:
            await tell(http, liveserve, "turn_committed", "cut", turn=0)
            reply = asyncio.create_task(ask(http, liveserve.address, request("cut", 500, 2000)))
            await asyncio.sleep(1.5)
            told = await tell(http, liveserve, "barge_in", "cut")
            heard = await asyncio.wait_for(reply, WITHIN_S)
            return told["aborted"], heard

    (ended,), heard = asyncio.run(cut())
    assert 0 < ended["tokens"] < 500
    assert heard.audio_s < 100


async def cut_by_signal(http: aiohttp.ClientSession, server: OmniServer, session: str, after_s: float) -> None:
    """Interrupt a reply of 32 s of speech by the signal. TimeoutError unless it ends at the client."""
    reply = asyncio.create_task(ask(http, server.address, request(session, 100, 400)))
    await asyncio.sleep(after_s)
    await tell(http, server, "barge_in", session)
    await asyncio.wait_for(reply, WITHIN_S)


async def cut_by_hanging_up(http: aiohttp.ClientSession, server: OmniServer, session: str, packets: int) -> None:
    """Close the connection of such a reply after its first packets, then send the signal."""
    asked = request(session, 100, 400)
    await asyncio.wait_for(ask(http, server.address, asked, hang_up_after=packets), 60)
    await tell(http, server, "barge_in", session)


def test_a_reply_is_whole_after_a_hundred_interrupted_ones(liveserve: OmniServer):
    async def interrupt(http: aiohttp.ClientSession, number: int, places: asyncio.Semaphore) -> None:
        session = f"cut {number}"
        async with places:
            await tell(http, liveserve, "turn_committed", session, turn=0)
            if number % 2:
                await cut_by_hanging_up(http, liveserve, session, packets=1 + number % 3)
            else:
                await cut_by_signal(http, liveserve, session, after_s=0.02 * (number % 50))

    async def whole_reply_afterwards() -> Heard:
        async with client() as http:
            places = asyncio.Semaphore(8)
            await asyncio.gather(*(interrupt(http, number, places) for number in range(BARGE_INS)))
            return await asyncio.wait_for(ask(http, liveserve.address, request("whole", 30, 100)), 60)

    whole = asyncio.run(whole_reply_afterwards())
    assert whole.text == 30
    assert round(whole.audio_s, 2) == 8.0  # 100 frames of 0.08 s


def test_text_goes_on_although_playback_lags_behind(liveserve: OmniServer):
    """A lead in seconds of speech would hold the text for ever."""

    async def listen() -> Any:
        async with client() as http:
            await tell(http, liveserve, "turn_committed", "slow", turn=0)
            reply = asyncio.create_task(ask(http, liveserve.address, request("slow", 150, 300)))
            heard_s = 0.0
            while not reply.done():
                await asyncio.sleep(0.25)
                await tell(http, liveserve, "audio_sent", "slow", turn=0, seconds=0.5)
                heard_s += 0.1
                await tell(http, liveserve, "playback_ack", "slow", turn=0, seconds=heard_s)
            return await asyncio.wait_for(reply, 60)

    assert asyncio.run(listen()).text == 150
