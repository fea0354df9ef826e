"""A look at the target before anything that takes time: whether it answers, what it speaks, and whether it is ours."""

from __future__ import annotations

import asyncio
import socket
import time
from urllib.parse import urlsplit, urlunsplit

from rehearsal.engines.endpoint.websocket_server import METRICS_PATH
from rehearsal.harness.live.batch import batch_target
from rehearsal.harness.live.client.text_probe import ask_one_document, ask_one_token
from rehearsal.harness.live.dialects.detect import resolve
from rehearsal.harness.live.run.scrape import scraper_of
from rehearsal.harness.live.target import TargetParams
from rehearsal.harness.metrics.live_lag import LAG
from rehearsal.workloads.errors import UserError


def first_look(target: TargetParams) -> TargetParams:
    """`target` with its dialect for auto, and of a server of ours with its metrics, by which it is judged.

    UserError when nobody listens, the token is refused, or the address has nothing of the kind that is called; and when
    the batch beside has nowhere to go, or not with its priority.
    """
    check_answers(target)
    with asyncio.Runner() as runner:
        runner.get_loop()  # there before the coroutine, which Ctrl-C would else leave without anybody to await it
        target = runner.run(_spoken_to(target))
    if target.scrape is None and target.dialect in ("rehearsal", "text"):
        own = target.model_copy(update={"scrape": _metrics_url(target.url)})
        return own if _tells_its_lag(own) else target
    return target


async def _spoken_to(target: TargetParams) -> TargetParams:
    if target.is_text:
        await ask_one_token(target)
    if target.batch is not None:
        check_answers(batch := batch_target(target))
        await ask_one_document(batch)
    return await resolve(target)


def check_answers(target: TargetParams) -> None:
    """UserError when nobody listens there."""
    parts = urlsplit(target.url)
    port = parts.port or (443 if parts.scheme in ("wss", "https") else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=target.connect_timeout_s).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise UserError(
            f"nothing can be reached at {target.url} ({why}); start the server, or correct the url."
        ) from None


def _metrics_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = "https" if parts.scheme in ("wss", "https") else "http"
    return urlunsplit((scheme, parts.netloc, METRICS_PATH, "", ""))


def _tells_its_lag(target: TargetParams) -> bool:
    scraper = scraper_of(target, time.monotonic())
    assert scraper is not None
    scraper.start()
    scraper.stop()
    return f"{LAG}_bucket" in scraper.table()["name"].unique().to_pylist()
