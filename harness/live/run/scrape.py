"""A Prometheus endpoint over the time of a run: what the server said of itself, once a second, as a table.

Polling takes a thread of its own in the process that oversees a run, never in one that sends. Each answer is kept as it
came and parsed after the run. As with Prometheus itself every poll leaves a sample `up`, 1 or, with the reason as
label, 0, and `scrape_duration_seconds`; an endpoint that is slow or gone therefore shows, and stops nothing.
"""

from __future__ import annotations

import json
import math
import threading
import time
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pyarrow as pa

from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.get import get
from harness.live.endpoints.transport.limits import size
from harness.live.endpoints.transport.route import DIRECT, Route
from workloads.errors import UserError

TIMEOUT_S = 2.0
"""After which an endpoint counts as silent; polls that fall into the wait are skipped. [chosen]"""
MOST_ANSWER = 4 * 2**20
"""Bytes of one answer; vLLM's has about 100 KB. [chosen]"""
MOST_LINE = 16 * 2**10
"""Characters of one line; vLLM's have up to 2,000. [chosen] The parser's time grows with their square."""
MOST_ANSWERS = 512 * 2**20
"""Bytes of all answers of a run: of vLLM's 1.5 hours. [chosen]"""

Sample = tuple[str, str, float]
"""name, labels as JSON with sorted keys, value."""


@dataclass(frozen=True)
class _Poll:
    t_s: float
    took_s: float
    body: bytes
    """Compressed."""
    reason: str


class Scraper:
    """Polls `url` in a `with` block, at once and once more at its end; `table()` has the answers.

    `origin` is the run's time 0 on `time.monotonic()`, in s; `token` is sent to the endpoint; `period_s`: between two
    polls; `route`: how it is reached; `slower`: real seconds in a second of the run. UserError for anything but an HTTP
    address.
    """

    def __init__(
        self,
        url: str,
        origin: float,
        token: str | None = None,
        period_s: float = 1.0,
        route: Route = DIRECT,
        slower: float = 1.0,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise UserError(f"scrape {url!r} is not an HTTP address; write for example http://host:8000/metrics.")
        self._url, self._period_s, self._route = url, period_s, route
        self._origin, self._slower = origin, slower
        self._headers = {"Accept": "text/plain;version=0.0.4"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._polls: list[_Poll] = []
        self._kept = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrape", daemon=True)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(2 * TIMEOUT_S)  # a look-up of the host's name may take any time

    def table(self) -> pa.Table:
        """Return columns t_s (s since `origin`, when the poll was sent), name, labels (JSON), value; in order of
        time."""
        times, values = array("d"), array("d")
        names: list[str] = []
        labels: list[str] = []
        for poll in list(self._polls):
            for name, label, value in _samples(poll):
                times.append(poll.t_s)
                names.append(name)
                labels.append(label)
                values.append(value)
        columns = {"t_s": pa.array(times, pa.float64())}
        columns |= {
            key: pa.array(texts, pa.string()).dictionary_encode()
            for key, texts in (("name", names), ("labels", labels))
        }
        return pa.table({**columns, "value": pa.array(values, pa.float64())})

    def _run(self) -> None:
        last = False
        while True:
            begin = time.monotonic()
            self._polls.append(self._poll(begin))
            if last:
                return
            # On whole periods from time 0, so that a slow answer costs its polls and shifts no later one.
            passed = self._run_s(time.monotonic())
            left_s = self._period_s * (math.floor(passed / self._period_s) + 1) - passed
            last = self._ended.wait(left_s * self._slower)

    def _run_s(self, at_s: float) -> float:
        return (at_s - self._origin) / self._slower

    def _poll(self, begin: float) -> _Poll:
        body, reason = b"", ""
        try:
            body = self._answer()
        except OSError as error:
            reason = _reason(error)
        except ValueError as error:
            reason = str(error)
        return _Poll(self._run_s(begin), time.monotonic() - begin, zlib.compress(body, 1), reason)

    def _answer(self) -> bytes:
        """Return the metrics. OSError or ValueError without them."""
        answer = get(self._url, timeout_s=TIMEOUT_S, most_bytes=MOST_ANSWER, headers=self._headers, route=self._route)
        if answer.status != 200:
            redirects = " (a redirect, which is not followed)" if 300 <= answer.status < 400 else ""
            raise ValueError(f"status {answer.status}{redirects}")
        if answer.cut:
            raise ValueError(answer.cut)
        self._kept += len(answer.body)
        if self._kept > MOST_ANSWERS:
            raise ValueError(f"answers above {size(MOST_ANSWERS)} in all")
        return answer.body


def scraper_of(target: TargetParams, origin: float, slower: float = 1.0) -> Scraper | None:
    """Return a scraper of the metrics that the target names; None where it names none. Otherwise as `Scraper`."""
    if target.scrape is None:
        return None
    period_s, route = target.scrape_period_s or 1.0, target.route(target.scrape)
    return Scraper(target.scrape, origin, target.scrape_token(), period_s, route, slower)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionError):
        return "no connection"
    return error.strerror or str(error) or type(error).__name__


def _samples(poll: _Poll) -> Iterator[Sample]:
    samples, reason = _parsed(poll)
    label = _label({"reason": reason} if reason else {})
    yield "up", label, 0.0 if reason else 1.0
    yield "scrape_duration_seconds", _label({}), poll.took_s
    yield from samples


def _parsed(poll: _Poll) -> tuple[list[Sample], str]:
    from prometheus_client.parser import text_string_to_metric_families

    if poll.reason:
        return [], poll.reason
    try:
        text = zlib.decompress(poll.body).decode()
        if max(map(len, text.split("\n"))) > MOST_LINE:
            return [], f"a line above {size(MOST_LINE)}"
        families = text_string_to_metric_families(text)
        # When a counter was made is no series.
        samples = [
            (one.name, _label(one.labels), float(one.value))
            for family in families
            for one in family.samples
            if not one.name.endswith("_created")
        ]
    except (ValueError, UnicodeDecodeError, IndexError, KeyError):  # the parser raises any of them
        return [], "garbage"
    return samples, ""


def _label(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))
