"""The look at a target before a run: what the user can mend costs a sentence, and no floor."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from rehearsal.harness.experiment import expand
from rehearsal.harness.live.client.text_probe import ask_one_token
from rehearsal.harness.live.live_experiment import live_experiment
from rehearsal.harness.live.run import measure as live_measure
from rehearsal.harness.live.run.executor import LiveExecutor
from rehearsal.harness.live.run.first_look import first_look
from rehearsal.harness.live.target import TargetParams
from rehearsal.harness.metrics.live_lag import LAG
from rehearsal.harness.null_server.server import NullServer
from rehearsal.workloads.errors import UserError
from tests.live.scripted import OURS, SESSION
from tests.live.test_run import points

HEAD = "HTTP/1.1 {} X\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{}"
STREAM = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
TOKEN = "opensesame"


def asked(answer: Callable[[bytes], bytes | None], **target: Any) -> list[bytes]:
    """What a server was asked that answers so; None: it says nothing for ever."""
    requests: list[bytes] = []

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        requests.append(head + await reader.readexactly(length))
        said = answer(requests[-1])
        if said is None:
            await reader.read()
        else:
            writer.write(said)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        await ask_one_token(TargetParams(url=url, **target))
        server.close()

    asyncio.run(main())
    return requests


def status(code: int, body: str = "") -> Callable[[bytes], bytes]:
    return lambda _: HEAD.format(code, len(body), body).encode()


def test_one_token_is_asked_for_as_turns_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", TOKEN)
    (request,) = asked(status(200, STREAM), model="tiny", token_env="MINE")
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions ") and f"Bearer {TOKEN}".encode() in head
    wanted = json.loads(body)
    assert (wanted["max_tokens"], wanted["stream"], wanted["model"]) == (1, True, "tiny")


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (404, "", ("has no chat completions there (HTTP status 404)", "often /v1", "set model")),
        (404, '{"error":{"message":"no model  x"}}', ("(HTTP status 404: no model x)",)),
        (404, '{"message":"no model y"}', ("(HTTP status 404: no model y)",)),
        (405, '{"detail":"Method Not Allowed"}', ("(HTTP status 405)",)),
        (501, "<html>", ("(HTTP status 501)", "correct its path")),
        (400, '{"error":{"message":"max_tokens is too old"}}', ("HTTP status 400: max_tokens is too old",)),
        (400, "unsupported request body\n", ("(HTTP status 400: unsupported request body)", "or the url")),
        (400, "[]", ("(HTTP status 400)",)),
        (307, "", ("sends elsewhere (HTTP status 307)",)),
        (200, "<html>hello</html>", ("no stream of chat completions", "often /v1")),
        (
            401,
            '{"error":{"message":"wrong key opensesame"}}',
            ("refuses the token (HTTP status 401)", "token_env"),
        ),
    ],
)
def test_what_the_user_can_mend_is_one_sentence(code: int, body: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as found:
        asked(status(code, body))
    said = str(found.value)
    assert said.startswith("url http://127.0.0.1:") and said.endswith(".") and TOKEN not in said
    for word in words:
        assert word in said, said


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_server_that_is_busy_or_broken_is_measured(code: int) -> None:
    assert len(asked(status(code))) == 1


def test_one_that_says_nothing_for_long_is_measured_too() -> None:
    assert len(asked(lambda _: None, connect_timeout_s=0.2)) == 1


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9\r\n"])
def test_what_is_no_web_server_is_said_to_be_none(said: bytes) -> None:
    with pytest.raises(
        UserError, match=r"has no chat completions there \(no HTTP answer: (closed|garbage.*)\); "
    ):
        asked(lambda _: said)


@contextmanager
def realtime(session: dict[str, Any], metrics: str | None) -> Iterator[str]:
    """The url of a server that greets with `session` and shows `metrics`."""

    def refuse(connection: ServerConnection, request: Any) -> Any:
        if request.path == "/metrics" and metrics is not None:
            return connection.respond(HTTPStatus.OK, metrics)
        return None if request.path == "/v1/realtime" else connection.respond(HTTPStatus.NOT_FOUND, "")

    def greet(connection: ServerConnection) -> None:
        connection.send(json.dumps({"type": "session.created", "session": session}))
        for _ in connection:
            pass

    with serve(greet, "127.0.0.1", 0, process_request=refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/v1/realtime"
        server.shutdown()
        thread.join()


def test_of_a_server_of_ours_the_metrics_are_found_by_which_it_is_judged() -> None:
    told = f'{LAG}_bucket{{le="+Inf"}} 3\n'
    with realtime(OURS, told) as url:
        for dialect in ("auto", "rehearsal"):
            seen = first_look(TargetParams.model_validate({"url": url, "dialect": dialect}))
            assert seen.dialect == "rehearsal"
            assert seen.scrape == url.replace("ws://", "http://").replace("/v1/realtime", "/metrics")
        elsewhere = "http://127.0.0.1:9/metrics"
        asked_for = TargetParams.model_validate({"url": url, "scrape": elsewhere})
        assert first_look(asked_for).scrape == elsewhere
        as_openai = TargetParams.model_validate({"url": url, "dialect": "openai"})
        assert first_look(as_openai) == as_openai
    for session, metrics in ((OURS, None), (OURS, "up 1\n"), (SESSION, told)):
        with realtime(session, metrics) as url:
            assert first_look(TargetParams(url=url)).scrape is None


def test_a_wrong_path_costs_no_floor_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_measure, "_floor_of", lambda *_: pytest.fail("the floor was measured"))
    with (
        realtime(OURS, None) as url,
        pytest.raises(UserError, match=r"no WebSocket there \(HTTP status 404\)"),
    ):
        list(LiveExecutor(tmp_path, timeout_s=60).run(points(url + "e")))
    with (
        NullServer("text", tmp_path) as server,
        pytest.raises(UserError, match="no stream of chat completions"),
    ):
        target = {"url": server.url.replace("/chat/completions", "/models")}
        typed = live_experiment(target, {}, sessions=(2,), rates=None, duration_s=1, repeats=1)
        list(LiveExecutor(tmp_path, timeout_s=60).run(expand(typed)))
    assert not list(tmp_path.glob("*.failed"))
