"""A look at the target before anything that takes time: whether it answers, what it speaks, and whether it is ours.

What the user can fix is refused in one sentence. A server that is busy, slow or broken is not: that is what a run
measures.
"""

import asyncio
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit, urlunsplit

from harness.clocks.ctrl_c import run_until_ctrl_c
from harness.live.endpoints import synthesis_endpoint
from harness.live.endpoints.dialects.audio_format import AudioFormat
from harness.live.endpoints.dialects.chat import any_json, stated_error
from harness.live.endpoints.dialects.detect import MOST_WORDS, begin_session, model_remedy, refused_token, resolve
from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.speech_body import SpeechBody
from harness.live.endpoints.dialects.synthesis import Sound
from harness.live.endpoints.mixed_endpoint import text_target
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.text_endpoint import message, pool_of, request_body
from harness.live.endpoints.transport.connect_diagnosis import PLAIN, asked, client_certificate_fault, reach
from harness.live.endpoints.transport.content_encoding import unread
from harness.live.endpoints.transport.http import HttpPool
from harness.live.endpoints.transport.limits import STARTING
from harness.live.endpoints.transport.route import ProxyRefused, certificate_fault
from harness.live.run.scrape import scraper_of
from harness.metrics.live import LAG, PREFIX_CACHE
from workloads.errors import UserError

LOADING_S = 600.0
"""After which a server of ours has loaded its models, or never will. [chosen]"""
AGAIN_S = 1.0
"""Between two looks at it. [chosen]"""

BEGIN_AND_END_S = 86_400.0
"""Between two polls of counters, s: longer than a run, as reading its metrics costs a server time. [chosen]"""

Speaks = Callable[[TargetParams], Dialect]


def preflight(
    target: TargetParams, speaks: Speaks, serves: str = "turns", waits: Callable[[float], None] = lambda waited_s: None
) -> TargetParams:
    """Return `target` with its dialect for auto, and with its metrics: those of a server of ours, which its verdict
    needs, and counters of a prefix cache, which are read at the begin and the end.

    `speaks`: the dialect that users will speak to a realtime target; `serves`: turns or frames, which they need. A
    loading server of ours is waited for; `waits` gets the time, s. UserError when no server listens, the token is
    rejected, or the address has nothing of the needed kind; and when no session of the dialect begins.
    """
    begun_s, loading = time.monotonic(), False
    while True:
        check_answers(target)
        try:
            target = run_until_ctrl_c(_spoken_to(target, speaks, serves))
            break
        except UserError:
            waited_s = time.monotonic() - begun_s
            loaded_meanwhile, loading = loading, _loads(target)
            if waited_s > LOADING_S or not (loading or loaded_meanwhile):
                raise
            waits(waited_s)
            time.sleep(AGAIN_S)
    if target.scrape is None and target.dialect in ("rehearsal", "text"):
        scraped = target.model_copy(update={"scrape": _metrics_url(target.url)})
        tells = _metrics(scraped)
        if f"{LAG}_bucket" in tells:
            return scraped
        if any(queries in tells for queries, _ in PREFIX_CACHE):
            return scraped.model_copy(update={"scrape_period_s": BEGIN_AND_END_S})
    return target


async def _spoken_to(target: TargetParams, speaks: Speaks, serves: str) -> TargetParams:
    if target.is_text and await ask_one_token(target) == 503 and _loads(target):
        raise UserError(f"url {target.url} still loads its models; call it when they are loaded.")
    if target.text_url is not None:
        check_answers(beside := text_target(target))
        await ask_one_token(beside)
    target = await resolve(target)
    if target.is_http and target.synthesizes:
        await ask_one_word(target)
    elif not target.is_text:
        await begin_session(speaks(target), serves)
    return target


MOST_BYTES = 4096
"""[chosen] Most bytes read of an answer."""
_NO_SUCH_PLACE = (404, 405, 501)
MODEL = re.compile(
    r"model_not_found|model.{0,80}(not (found|exist|available|supported)|required|is invalid)"
    r"|(no such|no|unknown|invalid|provide an?) model\b",
    re.IGNORECASE | re.DOTALL,
)
"""In what a server says where it lacks the model, or no model was named. [chosen]"""
LATER = (408, 425, 429)
"""HTTP statuses of the client's doing that pass by themselves. [config: RFC 9110, RFC 6585, RFC 8470]"""


SPEECH = {"http": "ws", "https": "wss"}
OTHER = {"http": "https", "https": "http"}


class Answer:
    """An answer to a probe. Implements `harness.live.endpoints.transport.http.StreamReceiver`. `ended`: "" or why
    there is no answer."""

    def __init__(self) -> None:
        self.code = 0
        self.body = b""
        self.headers: Mapping[str, str] = {}
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def status(self, code: int, at_s: float) -> None:
        self.code = code

    def data(self, chunk: bytes, at_s: float) -> None:
        self.body = (self.body + chunk)[:MOST_BYTES]
        if b"data: [DONE]" in self.body:  # some servers leave the body open
            self._end("")

    def done(self, at_s: float) -> None:
        self._end("")

    def failed(self, reason: str, at_s: float) -> None:
        self._end(reason)

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


async def ask(pool: HttpPool, body: bytes, target: TargetParams) -> tuple[Answer, str | None]:
    """Return the answer to one request, and the reason if it is no answer: "" for an answer, None if none came in
    time."""
    answer = Answer()
    asking = pool.post(body, answer)
    answer.headers = asking.headers
    try:
        async with asyncio.timeout(target.connect_timeout_s):
            return answer, await answer.ended
    except TimeoutError:
        return answer, None
    finally:
        asking.abort()
        await pool.aclose()


async def ask_one_token(target: TargetParams) -> int:
    """Return the HTTP status; 0: no answer in time. UserError when `target` streams no chat completions at any load."""
    body = request_body([message("user", "word")], 1, target)
    answer, reason = await ask(pool_of(target), body, target)
    why = None if reason is None else await asyncio.to_thread(_why_not, target, answer, reason)
    if why is not None:
        raise UserError(f"url {target.url} {why}")
    return answer.code


def _why_not(target: TargetParams, answer: Answer, reason: str) -> str | None:
    code, parts = answer.code, urlsplit(target.url)
    status = f"HTTP status {code}{said_words(answer.body)}"
    path = "correct its path, often /v1, or its port"
    if code in (401, 403):
        return _other_header(status) or refused_token(target, code)
    if code in _NO_SUCH_PLACE and target.url.rstrip("/").endswith("realtime"):
        speaks = urlunsplit(parts._replace(scheme=SPEECH[parts.scheme]))
        return f"takes no chat completions ({status}), as a realtime endpoint does not; give {speaks} for speech."
    if MODEL.search(status) and 400 <= code < 500 and code not in LATER:
        return f"does not take the model ({status}); {model_remedy(target)}."
    if code in _NO_SUCH_PLACE:
        model = "give another model" if target.model else "set model where it has several"
        return f"has no chat completions there ({status}); {path}, or {model}."
    if 300 <= code < 400:
        return f"sends elsewhere ({status}); give the address that it sends to."
    if 400 <= code < 500 and code not in LATER:
        return f"takes no chat completions as they are asked ({status}); {_other_field(status, target)}."
    if why := _compressed(answer):
        return why
    if 200 <= code < 300 and b"data:" not in answer.body and stated_error(any_json(answer.body)) is None:
        return f"answers, but with no stream of chat completions; {path}."
    if not code and reason:
        other = urlunsplit(parts._replace(scheme=OTHER[parts.scheme]))
        if why := client_certificate_fault(target.url, target.route()):
            return why
        if asked(target.url, tls=parts.scheme == "http", route=target.route()) is not None:
            return f"{'wants TLS' if parts.scheme == 'http' else 'has no TLS'}; give {other}."
        speech = "or give the ws:// url of an endpoint for speech"
        return f"has no chat completions there (no HTTP answer: {reason}); {path}, {speech}."
    return None


def _other_header(status: str) -> str | None:
    """Return why a request is rejected that lacks a header other than that of a token; None where that is not said."""
    if not re.search(r"\bheader\b|api-key", status, re.IGNORECASE):
        return None
    return f"wants another header ({status}); give it with --header 'NAME: VALUE', a secret as ${{VARIABLE}}."


def _other_field(status: str, target: TargetParams) -> str:
    """Return the option that changes a field which the server's words name; of none of ours the ways to add one."""
    fields = json.loads(request_body([], 1, target)).keys() - {"messages", "model", "stream"}
    named = next((name for name in sorted(fields) if re.search(rf"\b{re.escape(name)}\b", status)), None)
    if named is None:
        ours = "correct what it names, such as model, or the url"
        return f"{ours}; --extra-body '{{\"FIELD\": VALUE}}' adds a field"
    other = "max_completion_tokens" if "max_completion_tokens" in status else "OTHER"
    return f"--body-name {named}={other} renames it, --extra-body '{{\"{named}\": null}}' leaves it out"


def _compressed(answer: Answer) -> str | None:
    """Return why the body of an answer is not read; None: it is."""
    why = unread(answer.headers.get("content-encoding", ""))
    fix = "turn compression off at the server, or at the proxy before it"
    return f"answers with a body {why}; {fix}." if why else None


def said_words(body: bytes) -> str:
    """Return the server's words about its error, in JSON of any shape or in plain words; "" for a page."""
    document = any_json(body)
    text = body.decode(errors="replace").strip()
    if document is not None:
        text = (stated_error(document) or ("", ""))[1]
    elif text.startswith(("<", "{", "[")):
        return ""
    return f": {' '.join(text.split())[:MOST_WORDS]}" if text else ""


async def ask_one_word(target: TargetParams) -> None:
    """Raise UserError when `target` makes no speech at any load. A busy, slow or broken target is accepted."""
    body = synthesis_endpoint.request_body("word", target)
    pool = HttpPool(target.url, target.request_headers(), target.route())
    answer, reason = await ask(pool, body, target)
    why = None if reason is None else await asyncio.to_thread(_why_no_speech, target, answer, reason)
    if why is not None:
        raise UserError(f"url {target.url} {why}")


def _why_no_speech(target: TargetParams, answer: Answer, reason: str) -> str | None:
    code = answer.code
    status = f"HTTP status {code}{said_words(answer.body)}"
    if code in (401, 403):
        return refused_token(target, code)
    if code in (404, 405, 501):
        remedy = model_remedy(target) if MODEL.search(status) else "set model"
        return f"has no speech synthesis there ({status}); correct its path, often /v1/audio/speech, or {remedy}."
    if 300 <= code < 500 and code not in LATER:
        return f"makes no speech as it is asked ({status}); correct what it names, such as model or voice."
    if why := _compressed(answer):
        return why
    if 200 <= code < 300 and not answer.body:
        return "answers, but with no audio; see the server's log."
    if 200 <= code < 300 and stated_error(any_json(answer.body)) is None:
        format = synthesis_endpoint.stated_by(answer.headers).over(AudioFormat("pcm"))
        body = SpeechBody(answer.headers.get("content-type", ""))
        sound = body.sound(answer.body)
        other = Sound().feed(sound, format)[1].unread if sound else body.error
        if other:
            return (
                f"was asked for response_format=pcm and answers with {other}; give the address of a server that "
                "sends 16-bit PCM, G.711, or a WAV of either."
            )
    if not code and reason:
        if why := client_certificate_fault(target.url, target.route()):
            return why
        return f"has no speech synthesis there (no HTTP answer: {reason}); correct its address."
    return None


def _loads(target: TargetParams) -> bool:
    """Return whether a server of ours answers there that its models load."""
    health = asked_path(target.url, "health")
    answer = asked(target.url, urlsplit(target.url).scheme in PLAIN, health, route=target.route())
    return answer is not None and (answer.status, answer.body) == (503, STARTING)


def check_answers(target: TargetParams) -> None:
    """Raise UserError when no server listens there."""
    try:
        reach(target.url, target.route(), target.connect_timeout_s)
    except ssl.SSLCertVerificationError as error:
        raise UserError(certificate_fault(target.url, error)) from None
    except ProxyRefused as error:
        raise UserError(
            f"{target.url} cannot be reached: {error}; correct HTTPS_PROXY or HTTP_PROXY, or except the host with "
            f"NO_PROXY={urlsplit(target.url).hostname}."
        ) from None
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        where = target.url if target.unix_socket is None else f"the Unix socket {target.unix_socket}"
        raise UserError(f"nothing can be reached at {where} ({why}); start the server, or correct the url.") from None


def _metrics_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = "https" if parts.scheme in PLAIN else "http"
    return urlunsplit((scheme, parts.netloc, asked_path(url, "metrics"), "", ""))


def asked_path(url: str, name: str) -> str:
    """Return the path of `name`, such as metrics, of the server: a gateway may have it below a path of its own, which
    stands before /v1."""
    path = urlsplit(url).path
    before = re.match(r"(.*?)/v\d+(/|$)", path)
    return f"{before[1] if before else ''}/{name}"


def _metrics(target: TargetParams) -> set[str]:
    """Return the names of the target's metrics; none where it has no such endpoint."""
    scraper = scraper_of(target, time.monotonic())
    assert scraper is not None
    with scraper:
        pass
    return set(scraper.table()["name"].unique().to_pylist())
