"""One chat completion of a single token, before a run: whether the address has any.

What the user can fix is refused in one sentence. A server that is busy, slow or broken is not: that is what a run
measures.
"""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from harness.endpoints.dialects.chat import any_json, stated_error
from harness.endpoints.dialects.detect import MOST_WORDS, model_remedy, refused_token
from harness.endpoints.target import TargetParams
from harness.endpoints.text_endpoint import message, pool_of, request_body
from harness.endpoints.transport.connect_diagnosis import asked
from harness.endpoints.transport.http import HttpPool
from workloads.errors import UserError

MOST_BYTES = 4096
"""[chosen] Most bytes read of an answer."""
_NO_SUCH_PLACE = (404, 405, 501)
_REFUSED_FIELD = (400, 422)
"""Status codes for a field that a server does not know, or whose value it does not take. [config: vLLM, FastAPI]"""
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
    """An answer to a probe. Implements `harness.endpoints.transport.http.StreamReceiver`. `ended`: "" or why there is
    no answer."""

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
    answer, why = await _asked(target, 0)
    if why is not None:
        raise UserError(f"url {target.url} {why}")
    return answer.code


async def ask_one_document(target: TargetParams) -> None:
    """Ask for a document with its priority, as `ask_one_token` does. The sentence differs where the server rejects the
    priority."""
    priority = target.document_priority
    answer, why = await _asked(target, priority)
    if why is None:
        return
    if priority and answer.code in _REFUSED_FIELD and (await _asked(target, 0))[1] is None:
        raise UserError(
            f"{target.url} does not take priority={priority} of a document (HTTP status {answer.code}"
            f"{said_words(answer.body)}); start vLLM with --scheduling-policy priority, or send none with "
            "--set document_priority=0."
        )
    raise UserError(f"the batch's url {target.url} {why}")


async def _asked(target: TargetParams, priority: int) -> tuple[Answer, str | None]:
    """Return the answer to a request for one token, and why it is no chat completion; None: it is one, or may be
    later."""
    body = request_body([message("user", "word")], 1, target, priority)
    answer, reason = await ask(pool_of(target), body, target)
    return answer, None if reason is None else await asyncio.to_thread(_why_not, target, answer, reason)


def _why_not(target: TargetParams, answer: Answer, reason: str) -> str | None:
    code, parts = answer.code, urlsplit(target.url)
    said = f"HTTP status {code}{said_words(answer.body)}"
    path = "correct its path, often /v1, or its port"
    if code in (401, 403):
        return refused_token(target, code)
    if code in _NO_SUCH_PLACE and target.url.rstrip("/").endswith("realtime"):
        speaks = urlunsplit(parts._replace(scheme=SPEECH[parts.scheme]))
        return (
            f"takes no chat completions ({said}), as a realtime endpoint does not; give {speaks} for speech."
        )
    if MODEL.search(said) and 400 <= code < 500 and code not in LATER:
        return f"does not take the model ({said}); {model_remedy(target)}."
    if code in _NO_SUCH_PLACE:
        model = "give another model" if target.model else "set model where it has several"
        return f"has no chat completions there ({said}); {path}, or {model}."
    if 300 <= code < 400:
        return f"sends elsewhere ({said}); give the address that it sends to."
    if 400 <= code < 500 and code not in LATER:
        fix = "correct what it names, such as model, or the url"
        return f"takes no chat completions as they are asked ({said}); {fix}."
    if 200 <= code < 300 and b"data:" not in answer.body and stated_error(any_json(answer.body)) is None:
        return f"answers, but with no stream of chat completions; {path}."
    if not code and reason:
        other = urlunsplit(parts._replace(scheme=OTHER[parts.scheme]))
        if asked(target.url, tls=parts.scheme == "http") is not None:
            return f"{'wants TLS' if parts.scheme == 'http' else 'has no TLS'}; give {other}."
        speech = "or give the ws:// url of an endpoint for speech"
        return f"has no chat completions there (no HTTP answer: {reason}); {path}, {speech}."
    return None


def said_words(body: bytes) -> str:
    """Return the server's words about its error, in JSON of any shape or in plain words; "" for a page."""
    said = any_json(body)
    text = body.decode(errors="replace").strip()
    if said is not None:
        text = (stated_error(said) or ("", ""))[1]
    elif text.startswith(("<", "{", "[")):
        return ""
    return f": {' '.join(text.split())[:MOST_WORDS]}" if text else ""
