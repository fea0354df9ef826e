"""A whole live run with documents beside its users: who gets what, what is cut, and whose fault a failure is."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.experiments.expand import expand
from harness.experiments.experiment import Experiment
from harness.live.live_experiment import live_experiment
from harness.live.run.live_executor import LiveExecutor
from harness.live.run.run_progress import RunProgress
from harness.null_server.null_server import NullServer
from harness.records.record import load_record
from harness.records.results import claim, write_summary
from reports.pages.html import write_report
from tests.builders import say, web_server
from tests.live.test_run import SHORT
from tests.reports.page import Page
from workloads.errors import UserError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_floor")]

WORDS = {"document_input_tokens": "50", "document_output_tokens": "40"}
LOOSE = {"send_delay_limit_ms": "10000"}
"""Nothing here is about how late a busy machine sends."""


@pytest.fixture
def text(tmp_path: Path) -> Iterator[str]:
    with NullServer("text", tmp_path) as server:
        yield server.url


def asked(url: str, *batch: int, batch_url: str | None = None, **settings: str) -> Experiment:
    target = {"url": url, **({} if batch_url is None else {"batch_url": batch_url})}
    short = {} if url.startswith("http") else SHORT
    return live_experiment(
        target,
        {**short, **WORDS, **LOOSE, **settings},
        sessions=[2],
        rates=None,
        duration_s=3,
        repeats=1,
        batch=batch,
    )


def measured(folder: Path, experiment: Experiment, show: Callable[[RunProgress], None] | None = None) -> Any:
    points = expand(experiment)
    with claim(folder, experiment) as points_dir:
        outcomes = list(LiveExecutor(points_dir, timeout_s=60, show=show).run(points))
        write_summary(folder, [point.id for point in points])
    return outcomes


@contextmanager
def refusing(
    status: int, taken: Callable[[bytes], bool] = lambda _: False
) -> Iterator[tuple[str, list[bytes]]]:
    """A server that refuses completions with `status` but those that are `taken`, and what it was asked."""
    bodies: list[bytes] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        bodies.append(request.rfile.read(int(request.headers["Content-Length"])))
        if not taken(bodies[-1]):
            request.send_error(status)
            return
        time.sleep(0.2)
        say(request, 'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n')

    with web_server(post=answer) as address:
        yield f"http://{address}/v1", bodies


def test_the_same_users_are_measured_with_documents_and_without(text: str, tmp_path: Path) -> None:
    alone, beside = measured(tmp_path / "run", asked(text, 0, 3))
    assert [alone.status, beside.status] == ["ok", "ok"], (alone.reason, beside.reason)
    records = [load_record(outcome.folder) for outcome in (alone, beside)]
    assert records[0].trace().header.hash == records[1].trace().header.hash
    first, second = ({name: m["value"] for name, m in record.metrics.items()} for record in records)
    assert first["batch_tps"] == 0 and "batch.ttft_p99" not in first
    for values in (first, second):
        assert values["online.ttft_p99"] == values["ttft_p99"]  # the ordinary metrics are the users' alone
        assert values["online.priority"] == 0 and values["failed"] == 0
    documents = records[1].table("batch_requests")
    assert set(documents["status"]) == {"completed", "unfinished"}
    assert (documents["status"] == "unfinished").sum() == second["batch_cut"] == 3
    assert set(documents["request_class"]) == {"batch"} and set(documents["priority"]) == {10}
    assert second["batch_failed"] == 0 and records[1].table("batch_failures").empty
    assert second["batch_in_flight"] == pytest.approx(3, abs=0.1)
    assert second["batch_tps"] == second["batch.output_tps"] > 0
    online = records[1].table("requests")
    assert set(online["request_class"]) == {"online"} and len(online) == len(records[1].table("requests"))
    last_s = records[1].table("events")["t"].max()
    assert records[1].table("batch_events")["t"].max() >= last_s  # for as long as there were users

    page = Page(write_report(tmp_path / "run").read_text())
    rows = page.section("Cost of batch jobs for the users")
    assert (tmp_path / "run" / "figures" / "batch_cost.svg").is_file()
    assert [row[:2] for row in rows if row[0] == "2"] == [["2", "0"], ["2", "3"]]


def test_callers_who_speak_have_documents_beside_at_another_address(text: str, tmp_path: Path) -> None:
    with NullServer("voice", tmp_path) as voice:
        experiment = asked(voice.url, 2, batch_url=text, dialect="rehearsal")
        (outcome,) = measured(tmp_path / "run", experiment)
    assert outcome.status == "ok", outcome.reason
    record = load_record(outcome.folder)
    assert record.table("requests")["spoken"].all() and record.metrics["batch_tps"]["value"] > 0
    assert record.metrics["continuity"]["value"] is not None
    assert not record.table("batch_requests")["spoken"].any()


def test_a_target_that_refuses_documents_costs_the_users_nothing_and_is_not_asked_for_ever(
    text: str, tmp_path: Path
) -> None:
    with refusing(503) as (elsewhere, bodies):
        (outcome,) = measured(tmp_path / "run", asked(text, 2, batch_url=elsewhere))
    assert outcome.status == "ok", outcome.reason
    record = load_record(outcome.folder)
    assert record.metrics["failed"]["value"] == 0 and record.metrics["batch_tps"]["value"] == 0
    assert set(record.table("batch_failures")["reason"]) == {"http 503"}
    assert record.metrics["batch_failed"]["value"] and len(bodies) <= 2 * (
        record.manifest["cost"]["simulated_s"] + 2
    )  # a second between two
    assert (
        f"batch=2: {len(bodies) - 1} documents failed with http 503"
        in write_report(tmp_path / "run").read_text()
    )


def test_documents_without_a_generator_make_the_point_invalid(text: str, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(progress: RunProgress) -> None:
        for process in psutil.Process().children(recursive=True) if progress.total("turns") >= 2 else []:
            command = process.cmdline()
            if not killed and len(command) > 2 and command[-2].endswith("/batch"):
                killed.append(process.pid)
                process.kill()

    (outcome,) = measured(tmp_path / "run", asked(text, 2), kill)
    assert outcome.status == "failed"
    assert outcome.reason.startswith("INVALID: the load generator of the batch was killed by SIGKILL at ")
    assert len(load_record(outcome.folder).table("requests"))


def test_a_server_without_priorities_is_told_from_one_that_has_them(tmp_path: Path) -> None:
    with refusing(400, lambda body: b'"priority"' not in body) as (url, bodies):
        with pytest.raises(
            UserError, match="--scheduling-policy priority, or send none with --set document_p"
        ):
            measured(tmp_path / "run", asked(url, 0, 2))
        assert [b'"priority":10' in body for body in bodies] == [False, True, False]
        (outcome,) = measured(tmp_path / "none", asked(url, 2, document_priority="0"))
        assert outcome.status == "ok", outcome.reason
        assert not any(b"priority" in body for body in bodies[3:])
    with (
        refusing(404) as (nowhere, _),
        NullServer("text", tmp_path) as server,
        pytest.raises(UserError, match=r"the batch's url http://\S+ has no chat completions there"),
    ):
        measured(tmp_path / "nowhere", asked(server.url, 2, batch_url=nowhere))
