"""A look at the target before anything that takes time: whether it answers, what it speaks, and whether it is ours."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

from engines.endpoint.websocket_server import METRICS_PATH
from harness.clocks.ctrl_c import run_until_ctrl_c
from harness.endpoints.dialects.detect import begin_session, resolve
from harness.endpoints.dialects.dialect import Dialect
from harness.endpoints.mixed_endpoint import text_target
from harness.endpoints.synthesis_endpoint import ask_one_word
from harness.endpoints.target import TargetParams
from harness.endpoints.text_probe import ask_one_document, ask_one_token
from harness.endpoints.transport.connect_diagnosis import PLAIN, asked, reach
from harness.live.background_batch import batch_target
from harness.live.run.scrape import scraper_of
from harness.metrics.live import LAG
from workloads.errors import UserError

LOADING_S = 600.0
"""After which a server of ours has loaded its models, or never will. [chosen]"""
AGAIN_S = 1.0
"""Between two looks at it. [chosen]"""

Speaks = Callable[[TargetParams], Dialect]


def preflight(
    target: TargetParams,
    speaks: Speaks,
    serves: str = "turns",
    waits: Callable[[float], None] = lambda waited_s: None,
) -> TargetParams:
    """Return `target` with its dialect for auto, and for a server of ours with its metrics, which its verdict needs.

    `speaks`: the dialect that users will speak to a realtime target; `serves`: turns or frames, which they need. A
    loading server of ours is waited for; `waits` gets the time, s. UserError when no server listens, the token is
    rejected, or the address has nothing of the needed kind; when no session of the dialect begins; and when the batch
    has no target, or none that takes its priority.
    """
    begun_s, loading = time.monotonic(), False
    while True:
        check_answers(target)
        try:
            target = run_until_ctrl_c(_spoken_to(target, speaks, serves))
            break
        except UserError:
            waited_s = time.monotonic() - begun_s
            loaded_meanwhile, loading = loading, _loads(target.url)
            if waited_s > LOADING_S or not (loading or loaded_meanwhile):
                raise
            waits(waited_s)
            time.sleep(AGAIN_S)
    if target.scrape is None and target.dialect in ("rehearsal", "text"):
        own = target.model_copy(update={"scrape": _metrics_url(target.url)})
        return own if _tells_its_lag(own) else target
    return target


async def _spoken_to(target: TargetParams, speaks: Speaks, serves: str) -> TargetParams:
    if target.is_text and await ask_one_token(target) == 503 and _loads(target.url):
        raise UserError(f"url {target.url} still loads its models; call it when they are loaded.")
    if target.batch is not None:
        check_answers(batch := batch_target(target))
        await ask_one_document(batch)
    if target.text_url is not None:
        check_answers(beside := text_target(target))
        await ask_one_token(beside)
    target = await resolve(target)
    if target.is_http and target.synthesizes:
        await ask_one_word(target)
    elif not target.is_text:
        await begin_session(speaks(target), serves)
    return target


def _loads(url: str) -> bool:
    """Return whether a server of ours answers there that its models load."""
    from harness.serving.starting import BODY

    found = asked(url, urlsplit(url).scheme in PLAIN, "/health")
    return found is not None and (found.status, found.body) == (503, BODY)


def check_answers(target: TargetParams) -> None:
    """Raise UserError when no server listens there."""
    try:
        reach(target.url, target.connect_timeout_s)
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise UserError(
            f"nothing can be reached at {target.url} ({why}); start the server, or correct the url."
        ) from None


def _metrics_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = "https" if parts.scheme in PLAIN else "http"
    return urlunsplit((scheme, parts.netloc, METRICS_PATH, "", ""))


def _tells_its_lag(target: TargetParams) -> bool:
    scraper = scraper_of(target, time.monotonic())
    assert scraper is not None
    scraper.start()
    scraper.stop()
    return f"{LAG}_bucket" in scraper.table()["name"].unique().to_pylist()
