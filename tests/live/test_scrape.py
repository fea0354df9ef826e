"""The scraper, which polls a server's Prometheus metrics during a run."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pandas as pd
import pytest

from harness.live.endpoints.target import TargetParams
from harness.live.run import scrape
from harness.live.run.scrape import Scraper, scraper_of
from tests.builders import refused, say, web_server
from tests.waiting import wait_until

METRICS = """\
# HELP rehearsal_sessions_open Sessions on line.
# TYPE rehearsal_sessions_open gauge
rehearsal_sessions_open %d
# TYPE rehearsal_turns counter
rehearsal_turns_total{status="completed",engine="liveserve"} 7
rehearsal_turns_created{status="completed",engine="liveserve"} 1.7e9
# TYPE rehearsal_ttfp_seconds histogram
rehearsal_ttfp_seconds_bucket{le="0.1"} 2
rehearsal_ttfp_seconds_bucket{le="+Inf"} 3
rehearsal_ttfp_seconds_sum 0.4
rehearsal_ttfp_seconds_count 3
# TYPE odd gauge
odd{text="a \\"quoted\\" \\\\ line, } and ="} NaN
"""

Answer = Callable[[BaseHTTPRequestHandler, int], None]
"""(handler, number of the poll, from 0)."""


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "TIMEOUT_S", 0.3)


@contextmanager
def endpoint(answer: Answer) -> Iterator[tuple[str, list[int]]]:
    """An HTTP server on loopback; (its address, the polls so far)."""
    polls: list[int] = []

    def poll(request: BaseHTTPRequestHandler) -> None:
        polls.append(len(polls))
        answer(request, polls[-1])

    with web_server(poll) as address:
        yield f"http://{address}/metrics", polls


def polled(answer: Answer, count: int) -> pd.DataFrame:
    """The table after at least `count` polls that reached the server."""
    with endpoint(answer) as (url, polls), Scraper(url, time.monotonic(), period_s=0.02) as scraper:
        wait_until(lambda: len(polls) >= count)
    return scraper.table().to_pandas()


def rows(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table.loc[table["name"] == name]


def test_each_sample_of_each_poll_is_a_row_with_its_labels() -> None:
    table = polled(lambda handler, number: say(handler, METRICS % number), 3)
    assert list(table.columns) == ["t_s", "name", "labels", "value"]
    sessions = rows(table, "rehearsal_sessions_open")
    assert sessions["value"].tolist() == list(range(len(sessions))) and len(sessions) >= 4  # and a last one
    assert sessions["t_s"].is_monotonic_increasing and sessions["t_s"].iloc[0] >= 0
    turns = rows(table, "rehearsal_turns_total")
    assert set(turns["labels"]) == {'{"engine":"liveserve","status":"completed"}'}
    assert set(turns["value"]) == {7.0}
    buckets = rows(table, "rehearsal_ttfp_seconds_bucket")
    assert set(buckets["labels"]) == {'{"le":"0.1"}', '{"le":"+Inf"}'}
    assert rows(table, "rehearsal_turns_created").empty
    (odd,) = set(rows(table, "odd")["labels"])
    assert json.loads(odd) == {"text": 'a "quoted" \\ line, } and ='}
    assert all(rows(table, "odd")["value"].isna())
    assert set(rows(table, "up")["value"]) == {1.0}
    assert len(rows(table, "scrape_duration_seconds")) == len(rows(table, "up"))


def test_the_token_is_sent_to_the_target_s_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REHEARSAL_TOKEN", "secret")
    sent: list[str | None] = []
    with endpoint(lambda handler, number: sent.append(handler.headers["Authorization"])) as (scrape, _):
        for url in (scrape.replace("http", "ws", 1), "ws://elsewhere:1/v1/realtime"):
            scraper = scraper_of(TargetParams.model_validate({"url": url, "scrape": scrape}), time.monotonic())
            assert scraper is not None
            with scraper:  # which polls at its end, if not before
                pass
    assert sorted(sent, key=str) == sent and set(sent) == {"Bearer secret", None}


def test_failed_polls_leave_their_reasons_and_the_others_their_samples() -> None:
    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        match number % 4:
            case 0:
                say(handler, METRICS % number)
            case 1:
                say(handler, "no", 503)
            case 2:
                say(handler, "<html>not { metrics</html>")
            case 3:
                handler.rfile.read()  # until the client has had enough

    table = polled(answer, 8)
    up = rows(table, "up")
    reasons = {json.loads(label).get("reason", "") for label in up["labels"]}
    assert reasons == {"", "status 503", "garbage", "timeout"}
    good = up.loc[up["value"] == 1, "t_s"]
    assert set(good) == set(rows(table, "rehearsal_sessions_open")["t_s"])
    assert (up.loc[up["value"] == 0, "labels"] != "{}").all()


@pytest.mark.parametrize("url", ["", "127.0.0.1:9/metrics", "ws://host/metrics", "http:///metrics"])
def test_an_address_that_is_not_http_is_a_usage_error(url: str) -> None:
    with refused("is not an HTTP address"):
        Scraper(url, 0.0)
