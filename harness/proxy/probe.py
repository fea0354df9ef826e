"""Whether the servers behind the proxy live: who does not take a connection is dead, who is healthy lives."""

import asyncio
from http import HTTPStatus

import aiohttp

from harness.proxy.pool import Pool

PROBE_S = 1.0
"""[chosen] between two looks at every server."""

LOOK = aiohttp.ClientTimeout(total=5.0)
"""[chosen] in which a server that lives answers; one that does not is slow, and left as it is."""


async def look(pool: Pool, client: aiohttp.ClientSession, place: int) -> None:
    """At one server."""
    backend = pool.backends[place]
    try:
        async with client.get(f"{backend.url}/health", timeout=LOOK) as answer:
            alive = answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
    except aiohttp.ClientConnectorError:
        alive = False
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return  # whether it lives shows the next look
    if alive != backend.alive:
        (pool.found if alive else pool.lost)(place)


async def keep_looking(pool: Pool, client: aiohttp.ClientSession) -> None:
    """At all of them, for ever."""
    while True:
        await asyncio.gather(*(look(pool, client, place) for place in range(len(pool.backends))))
        await asyncio.sleep(PROBE_S)
