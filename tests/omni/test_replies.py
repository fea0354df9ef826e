"""Replies of vLLM-Omni's own API server, whose stages run on modelled GPUs and under our policy."""

import asyncio

import aiohttp
import pytest

from harness.serving.omni_server import OmniServer
from tests.omni.chat import Heard, ask, request


def gathered(address: str, *asked: dict) -> list[Heard]:
    async def all_of_them() -> list[Heard]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as http:
            return await asyncio.gather(*(ask(http, address, each) for each in asked))

    return asyncio.run(all_of_them())


def test_a_reply_has_the_requested_text_tokens_and_its_frames_in_chunks_of_the_deployment(liveserve: OmniServer):
    (heard,) = gathered(liveserve.address, request("one", 30, 100))
    assert heard.text == 30
    chunks = [4, 25, 25, 25, 21]  # frames of 0.08 s; qwen3_omni_2gpu sends a first chunk of 4 and then chunks of 25
    assert [seconds for _, seconds in heard.audio] == pytest.approx([0.08 * frames for frames in chunks], abs=0.0005)


def test_replies_at_once_are_whole_and_share_steps(liveserve: OmniServer):
    alone = gathered(liveserve.address, request("alone", 60, 250))[0]
    together = gathered(liveserve.address, *(request(f"of eight {i}", 60, 250) for i in range(8)))
    assert all(heard.text == 60 and heard.audio_s == pytest.approx(20.0) for heard in together)
    longest_s = max(heard.audio[-1][0] for heard in together)
    assert longest_s < 4 * alone.audio[-1][0]


def test_a_reply_whose_length_nobody_says_ends_by_itself(liveserve: OmniServer):
    asked = request("open", 0, 0)
    del asked["sampling_params_list"]
    (heard,) = gathered(liveserve.address, asked)
    assert heard.text and heard.audio_s >= 0.08 * heard.text
