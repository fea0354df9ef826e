"""The preflight: one look at the target before a run, which turns what the user can fix into one usage error."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from harness.clocks import clock
from harness.live.endpoints.dialects import detect, dialect_of
from harness.live.endpoints.target import TargetParams
from harness.live.expand import expand
from harness.live.live_experiment import live_experiment
from harness.live.run import measure_live as live_measure
from harness.live.run import preflight as preflight_module
from harness.live.run.live_executor import LiveExecutor
from harness.live.run.preflight import ask_one_token, preflight
from harness.metrics.live import LAG
from harness.serving.starting import starting
from tests.builders import refused, say, web_server
from tests.live.gateways import Authority, server_tls
from tests.live.scripted import HEAD, OURS, SESSION, Call, chunked, over_http
from workloads.errors import UserError

STREAM = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
TOKEN = "opensesame"
NO_KEY = json.dumps({"error": {"message": f"no key {TOKEN}"}})
MODELS = json.dumps({"data": [{"id": "tiny"}, {"id": "huge"}]})


def asked(data: bytes | None, **target: Any) -> list[Call]:
    """The requests of the probe to a server that sends `data` and hangs up; None: it never answers."""

    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if data is not None:
            writer.write(data)
            writer.close()

    async def use(url: str) -> None:
        await ask_one_token(TargetParams.model_validate({"url": url, **target}))

    return clock.run(over_http(answer, use), virtual=False)


def status(code: int, body: str = "") -> bytes:
    return HEAD % code + chunked([body.encode()] if body else [])


def test_the_probe_asks_for_one_token_with_the_run_s_model_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", TOKEN)
    (call,) = asked(status(200, STREAM), model="tiny", token_env="MINE")
    assert call.path.startswith("POST /v1/chat/completions ")
    assert call.headers["Authorization"] == f"Bearer {TOKEN}"
    (wanted,) = call.received
    assert (wanted["max_tokens"], wanted["stream"], wanted["model"]) == (1, True, "tiny")


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (404, "", ("has no chat completions there (HTTP status 404)", "often /v1", "set model")),
        (404, '{"error":{"message":"no model  x"}}', ("(HTTP status 404: no model x)",)),
        (405, '{"detail":"Method Not Allowed"}', ("(HTTP status 405: Method Not Allowed)",)),
        (400, '{"error":{"message":"max_tokens is too old"}}', ("HTTP status 400: max_tokens is too old",)),
        (400, "unsupported request body\n", ("(HTTP status 400: unsupported request body)", "or the url")),
        (400, "'max_tokens' is wrong; use 'max_completion_tokens'", ("max_tokens=max_completion_tokens",)),
        (400, "unknown field stream_options", ("--extra-body '{\"stream_options\": null}'",)),
        (400, "reasoning_effort is required", ("--extra-body '{\"FIELD\": VALUE}'",)),
        (401, "header x-route is missing", ("--header 'NAME: VALUE'",)),
        (307, "", ("sends elsewhere (HTTP status 307)",)),
        (200, "<html>hello</html>", ("no stream of chat completions", "often /v1")),
        (401, NO_KEY, ("wants a token or key, and none is sent (HTTP status 401)", "--token-env")),
    ],
)
def test_an_answer_that_the_user_can_fix_is_a_usage_error_with_the_fix(
    code: int, body: str, words: tuple[str, ...]
) -> None:
    with refused("url http://127.0.0.1:", *words) as excinfo:
        asked(status(code, body))
    assert TOKEN not in str(excinfo.value)


@pytest.mark.parametrize("data", [status(429), status(500), status(503), None], ids=[429, 500, 503, "says nothing"])
def test_a_busy_broken_or_slow_server_is_measured(data: bytes | None) -> None:
    assert len(asked(data, connect_timeout_s=5 if data else 0.2)) == 1


Answers = Callable[[ServerConnection, Request], Response | None]


@contextmanager
def websockets(answer: Answers, greet: Callable[[ServerConnection], None] = lambda connection: None) -> Iterator[str]:
    """HOST:PORT of a server of WebSockets; `answer`: of its handshakes, None: it takes one."""
    with serve(greet, "127.0.0.1", 0, process_request=answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()


@contextmanager
def realtime(
    session: dict[str, Any] | None, metrics: str | None = None, answer: dict[str, Any] | None = None
) -> Iterator[str]:
    """The url of a server that greets with `session`, has a page of `metrics`, and sends `answer` for each message."""

    def open_call(connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/metrics" and metrics is not None:
            return connection.respond(HTTPStatus.OK, metrics)
        taken = request.path.partition("?")[0] == "/v1/realtime"
        return None if taken else connection.respond(HTTPStatus.NOT_FOUND, "")

    def greet(connection: ServerConnection) -> None:
        connection.send(json.dumps({"type": "session.created", "session": session}))
        for _ in connection:
            connection.send(json.dumps(answer or {"type": "session.updated", "session": session}))

    with websockets(open_call, greet) as where:
        yield f"ws://{where}/v1/realtime"


def look(url: str, serves: str = "turns", **target: Any) -> TargetParams:
    return preflight(TargetParams.model_validate({"url": url, **target}), dialect_of, serves)


def test_a_server_of_ours_is_scraped_at_its_own_metrics_page() -> None:
    page = f'{LAG}_bucket{{le="+Inf"}} 3\n'
    with realtime(OURS, page) as url:
        for dialect in ("auto", "rehearsal"):
            seen = look(url, dialect=dialect)
            assert seen.dialect == "rehearsal"
            assert seen.scrape == url.replace("ws://", "http://").replace("/v1/realtime", "/metrics")
        elsewhere = "http://127.0.0.1:9/metrics"
        assert look(url, scrape=elsewhere).scrape == elsewhere
        assert look(url, dialect="openai") == TargetParams.model_validate({"url": url, "dialect": "openai"})
    for session, metrics in ((OURS, None), (OURS, "up 1\n"), (SESSION, page)):
        with realtime(session, metrics) as url:
            assert look(url).scrape is None


@contextmanager
def fastapi(models: int | None, wants: str | None = None) -> Iterator[str]:
    """HOST:PORT of a server that rejects each WebSocket with 403. `models`: the status with which it lists its models;
    None: it lists none. `wants`: the token that the list needs."""

    def answer(connection: ServerConnection, request: Request) -> Response:
        if request.path == "/v1/models" and models is not None:
            ok = wants is None or request.headers.get("Authorization") == f"Bearer {wants}"
            return connection.respond(HTTPStatus(models if ok else 401), MODELS)
        route = request.headers.get("Upgrade") is not None
        return connection.respond(HTTPStatus.FORBIDDEN if route else HTTPStatus.NOT_FOUND, "")

    with websockets(answer) as where:
        yield where


@pytest.mark.parametrize(
    ("models", "wants", "token", "words"),
    [
        (200, None, None, ("no WebSocket at the path /nope (HTTP status 403", "/v1/models answers without a token;")),
        (200, None, TOKEN, ("/v1/models answers with the token in MINE; correct the path",)),
        (None, None, None, ("no WebSocket at the path /nope", "or wants a token;", "--token-env")),
        (200, TOKEN, None, ("wants a token or key, and none is sent (HTTP status 403)",)),
        (200, "another", TOKEN, ("refuses the token in MINE (HTTP status 403); put the right one into MINE",)),
    ],
)
def test_a_rejected_websocket_is_explained_by_the_path_or_by_the_token(
    models: int | None, wants: str | None, token: str | None, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REHEARSAL_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINE", token or "")
    with fastapi(models, wants) as where, refused(f"url ws://{where}/nope ", *words) as excinfo:
        look(f"ws://{where}/nope", token_env="MINE" if token else None)
    assert TOKEN not in str(excinfo.value)


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/v1", "The model `tinny` does not exist.", "correct model; the server has tiny, huge."),
        ("/v1", "This model's maximum context length is 8 tokens", "such as model, or the url"),
    ],
)
def test_an_unknown_model_is_answered_with_the_models_of_the_server(path: str, error: str, words: str) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        if request.command == "GET":
            say(request, MODELS)
        else:
            request.rfile.read(int(request.headers["Content-Length"]))
            say(request, json.dumps({"error": {"code": "model_not_found", "message": error}}), 400)

    with web_server(answer, answer) as where, refused(f"url http://{where}{path} ", words):
        look(f"http://{where}{path}", model="tinny")


FRAMES = {**OURS, "rehearsal": {**OURS["rehearsal"], "serves": "frames"}}
UNKNOWN_MODEL = {"type": "error", "error": {"code": "model_not_found", "message": "There is no model tinny."}}


@pytest.mark.parametrize(
    ("session", "answer", "target", "words"),
    [
        (OURS, None, {"serves": "frames"}, ("serves turns", "made of frames", "--workload speech")),
        (FRAMES, None, {}, ("serves frames", "made of turns", "--workload metronome")),
        (FRAMES, None, {"dialect": "rehearsal"}, ("serves frames",)),
        (OURS, None, {"dialect": "vllm_omni"}, ("speaks dialect rehearsal, not vllm_omni", "leave --dialect out")),
        (SESSION, None, {"dialect": "vllm", "model": "m"}, ("speaks dialect openai, not vllm",)),
        (None, None, {"dialect": "openai"}, ("speaks dialect vllm, not openai",)),
        (SESSION, UNKNOWN_MODEL, {"model": "tinny"}, ("refuses", "no model tinny", "correct model,")),
        (None, UNKNOWN_MODEL, {"dialect": "vllm", "model": "tinny"}, ("dialect vllm", "no model tinny")),
        (SESSION, UNKNOWN_MODEL, {"dialect": "openai"}, ("name one with --set model=NAME",)),
    ],
)
def test_a_workload_dialect_or_model_that_does_not_fit_the_server_is_named(
    session: Any, answer: Any, target: dict[str, Any], words: tuple[str, ...]
) -> None:
    with realtime(session, answer=answer) as url, refused(url, *words):
        look(url, **target)


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_a_loading_server_of_ours_is_waited_for(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers that it starts, and what comes after takes its place at the same address."""
    monkeypatch.setattr(preflight_module, "AGAIN_S", 0.05)
    waited: list[float] = []

    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as loads:
        loads.enter_context(starting(listener))
        where = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/v1" + "/realtime" * (scheme == "ws")

        def on_wait(waited_s: float) -> None:
            waited.append(waited_s)
            if len(waited) == 3:
                loads.close()
                listener.close()

        with pytest.raises(UserError, match="nothing can be reached"):  # it was not called absent before
            preflight(TargetParams.model_validate({"url": where}), dialect_of, waits=on_wait)
    assert len(waited) == 3 and waited == sorted(waited)


@pytest.mark.parametrize(
    ("secure", "url", "words"),
    [
        (False, "wss://{}/v1/realtime", "has no TLS; give ws://{}/v1/realtime"),
        (False, "ws://{}/v1/realtime", "correct the path, often /v1/realtime, or the port"),
        (False, "ws://{}/", "is a web server that opens no WebSocket there (HTTP status 200"),
        (False, "http://{}/v1/realtime", "as a realtime endpoint does not; give ws://{}/v1/realtime for speech"),
        (False, "http://{}/v1", "correct its path, often /v1, or its port"),
        (True, "ws://{}/v1/realtime", "wants TLS; give wss://{}/v1/realtime"),
        (True, "http://{}/v1", "wants TLS; give https://{}/v1"),
    ],
)
def test_a_url_with_the_wrong_scheme_or_path_is_corrected(secure: bool, url: str, words: str, tmp_path: Path) -> None:
    def page(request: BaseHTTPRequestHandler) -> None:
        say(request, "", 200 if request.path == "/" else 404)

    def wrap(listener: socket.socket) -> socket.socket:
        tls = server_tls(Authority(tmp_path).certificate("localhost"))
        return tls.wrap_socket(listener, server_side=True) if secure else listener

    with web_server(page, wrap=wrap) as where, refused(f"url {url} ".format(where), words.format(where)):
        look(url.format(where))


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-OpenSSH_9\r\n"])
def test_a_port_that_is_no_web_server_is_named(data: bytes) -> None:
    with pytest.raises(UserError, match=r"has no chat completions there \(no HTTP answer: (closed|garbage.*)\); "):
        asked(data)


@pytest.mark.parametrize(
    ("path", "target", "workload", "words"),
    [
        ("", {"dialect": "vllm"}, "voice", "wants to be asked for a model; set model"),
        ("", {"dialect": "vllm", "model": "m"}, "duplex", "do not detect the ends of turns"),
        ("e", {}, "voice", r"no WebSocket there \(HTTP status 404"),
    ],
)
def test_a_usage_error_measures_no_floor_and_leaves_no_folder(
    path: str, target: dict[str, str], workload: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_measure, "cached_floor", lambda *_: pytest.fail("the floor was measured"))
    with realtime(OURS) as url, pytest.raises(UserError, match=words):
        wrong = live_experiment({"url": url + path, **target}, {"workload": workload}, {2: (8, None)})
        list(LiveExecutor(tmp_path, timeout_s=60).run(expand(wrong)))
    assert not list(tmp_path.glob("*.failed"))


def test_a_session_of_sound_that_is_not_read_is_refused_before_the_run() -> None:
    session = {"type": "realtime", "audio": {"output": {"format": {"type": "audio/opus"}}}}
    with realtime(session) as url, refused(url, "sends audio as opus, which is not read; set the output audio format"):
        look(url)
    with realtime(session) as url:
        assert look(url, modalities="text").dialect == "openai"


FULL = {"type": "error", "error": {"code": "too_many_sessions", "message": "Come back later."}}


@pytest.mark.parametrize("answer", [FULL, {"type": "rate_limits.updated"}])
def test_a_server_that_is_full_or_slow_is_measured(answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "BEGIN_S", 0.2)
    with realtime(SESSION, answer=answer) as url:
        assert look(url).dialect == "openai"
