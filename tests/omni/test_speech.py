"""Qwen3-TTS of vLLM-Omni on modelled GPUs: its own speech endpoint, under LiveServe's policy at the talker."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
import psutil
import pytest

from tests.builders import free_ports

FRAME_BYTES = 3840
WORD = "say "
"""One token."""
START = """
import sys
from engines.stock.omni.omni_params import OmniParams
from harness.serving.omni_server import OmniServer
params = OmniParams(engine="liveserve", deployment="qwen3_tts_2gpu")
with OmniServer(params, int(sys.argv[1])) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""
WITHIN_S = 10.0
"""[chosen] until a reply that was cut must be gone, s; the whole reply takes longer."""


@dataclass
class Started:
    """A server of a process of its own."""

    process: subprocess.Popen[str]
    address: str


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    pipe, port = subprocess.PIPE, str(free_ports(1)[0])
    with subprocess.Popen([sys.executable, "-c", START, port], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield Started(process, process.stdout.readline().strip())
        process.stdin.close()


@dataclass
class Heard:
    """Bytes of sound as they came, and how long (s) it took."""

    pieces: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def frames(self) -> float:
        return sum(self.pieces) / FRAME_BYTES


async def say(http: aiohttp.ClientSession, server: Started, text: str, pieces: int = 0) -> Heard:
    """Return the speech of `text`, or its first `pieces`."""
    asked = {"input": text, "stream": True, "stream_format": "audio", "response_format": "pcm"}
    heard, sent_s = Heard(), time.monotonic()
    async with http.post(f"{server.address}/v1/audio/speech", json=asked) as answer:
        answer.raise_for_status()
        async for piece in answer.content.iter_any():
            heard.pieces.append(len(piece))
            if len(heard.pieces) == pieces:
                break
    heard.seconds = time.monotonic() - sent_s
    return heard


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60))


async def is_empty(http: aiohttp.ClientSession, server: Started) -> bool:
    async with http.get(f"{server.address}/rehearsal/state") as answer:
        state = await answer.json()
    return state["requests"] == 0 and state["free_blocks"] == state["blocks"]


def test_a_text_is_spoken_in_frames_by_its_number_of_tokens(started: Started):
    async def said() -> list[Heard]:
        async with client() as http:
            return [await say(http, started, WORD * tokens) for tokens in (2, 20, 40)]

    word, sentence, two = asyncio.run(said())
    assert (word.frames, sentence.frames, two.frames) == (7, 70, 140)  # 0.28 s a token, 0.08 s a frame
    assert sentence.pieces[0] == two.pieces[0] == FRAME_BYTES, "the first packet is one frame"
    assert sentence.seconds < 5.6


async def becomes_empty(http: aiohttp.ClientSession, server: Started) -> bool:
    """Return whether all requests and blocks are gone within the time that a cut reply has."""
    until_s = time.monotonic() + WITHIN_S
    while not await is_empty(http, server):
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(0.1)
    return True


def test_requests_and_cache_blocks_of_clients_that_hang_up_are_freed(started: Started):
    async def hang_up() -> Heard:
        async with client() as http:
            assert await is_empty(http, started)
            await asyncio.gather(*(say(http, started, WORD * 400, pieces=count) for count in (1, 2, 3, 4)))
            assert await becomes_empty(http, started)
            return await say(http, started, WORD * 20)

    assert asyncio.run(hang_up()).frames == 70  # the next reply is whole: 20 tokens of 3.5 frames


def test_all_processes_of_a_server_end_when_the_one_that_started_it_is_killed(started: Started):
    """The last test of this file, because it ends the server that they share."""
    children = psutil.Process(started.process.pid).children(recursive=True)
    stages = [child for child in children if "StageEngineCoreProc" in " ".join(child.cmdline())]
    assert len(stages) == 2, "talker and vocoder"
    started.process.kill()
    started.process.wait()
    _, still_running = psutil.wait_procs(children, timeout=WITHIN_S)
    for process in still_running:
        process.kill()
    assert not still_running
