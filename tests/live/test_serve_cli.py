"""`rehearse serve` as its owner meets it: what cannot be served is one sentence, what can is served until Ctrl-C."""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from harness.serving import ServeConfig, ServerProcess, serve
from tests.builders import REHEARSE
from tests.conftest import Rehearse
from workloads.errors import UserError

SECRET = "correct-horse-battery"


def test_a_taken_port_is_named(rehearse: Rehearse):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, error = rehearse("serve", "liveserve", "--port", str(port))
    assert status == 2
    assert f"port {port} of 127.0.0.1 is taken; choose another with --port" in error


def test_a_missing_gpu_is_named(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engines.deployments.available.gpus", lambda: [])
    status, _, error = rehearse("serve", "liveserve", "--device", "cuda")
    assert status == 2 and error.startswith("rehearse: device cuda needs")


@contextmanager
def served(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`rehearse serve` on a free port, and its URL."""
    process = subprocess.Popen(
        [*REHEARSE, "serve", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_it_says_that_it_starts_until_it_serves():
    command = [*REHEARSE, "serve", "liveserve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None and process.stdout is not None
            line = process.stderr.readline()
            address = re.search(r"loading vLLM … +(http://127\.0\.0\.1:\d+)/health", line)
            assert address, line
            for path in ("/health", "/v1/realtime"):  # vLLM takes seconds to load, and this milliseconds
                with pytest.raises(urllib.error.HTTPError) as early:
                    urllib.request.urlopen(address[1] + path, timeout=20)
                assert (early.value.code, early.value.read()) == (503, b"starting\n")
            url = process.stdout.readline().strip()
            assert url.removeprefix("ws://").startswith(address[1].removeprefix("http://"))
            assert urllib.request.urlopen(f"{address[1]}/health", timeout=20).read() == b"ok\n"
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_it_while_it_loads_gives_the_same_status(number: signal.Signals):
    def loads(where: str) -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was not taken")

    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    config = ServeConfig.model_validate({"engine": "liveserve"})
    assert serve(config, lambda where: None, loading=loads) == 0
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.slow
def test_it_serves_until_it_is_told_to_stop_and_tells_its_clients():
    with served("liveserve") as (process, url):
        assert re.fullmatch(r"ws://127\.0\.0\.1:\d+/v1/realtime", url)
        with connect(url) as client:
            assert '"session.created"' in client.recv(timeout=20)
            process.send_signal(signal.SIGINT)
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(timeout=20)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        _, error = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in error
    assert f"rehearse live {url}" in error


def ask(client: ClientConnection, **lengths: float) -> None:
    """A typed turn; returns when the reply has begun to sound."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
    client.send(json.dumps({"type": "conversation.item.create", "item": item}))
    client.send(json.dumps({"type": "response.create", "response": {"metadata": {"rehearsal": json.dumps(lengths)}}}))
    while '"response.output_audio.delta"' not in client.recv(timeout=60):
        pass


@pytest.mark.slow
def test_sigterm_finishes_the_replies_under_way_and_lets_nobody_in():
    with served("liveserve") as (process, url):
        with connect(url) as idle, connect(url) as talking:
            ask(talking, output_tokens=60, reply_audio_s=20.0)
            process.send_signal(signal.SIGTERM)
            message = ""
            with pytest.raises(ConnectionClosed) as over:
                idle.recv(timeout=20)
                idle.recv(timeout=20)
            assert over.value.rcvd is not None and over.value.rcvd.code == 1001
            with pytest.raises(InvalidStatus) as refused:
                connect(url)
            assert refused.value.response.status_code == 503
            with pytest.raises(urllib.error.HTTPError) as health:
                urllib.request.urlopen(url.replace("ws", "http", 1).replace("v1/realtime", "health"), timeout=20)
            assert health.value.read() == b"draining\n"
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    message = talking.recv(timeout=60)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        _, error = process.communicate(timeout=60)
    done = json.loads(message)
    assert (done["type"], done["response"]["status"]) == ("response.done", "completed")
    assert process.returncode == 0 and "finishing 1 reply, for 30 s at most" in error


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_waits_for_nobody(second: signal.Signals):
    with served("liveserve") as (process, url), connect(url) as talking:
        ask(talking, output_tokens=500, reply_audio_s=170.0)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "finishing 1 reply" not in process.stderr.readline():
            pass
        process.send_signal(second)
        process.communicate(timeout=60)
        assert process.returncode == 128 + second
        with pytest.raises(ConnectionClosed):
            while True:
                assert '"response.done"' not in talking.recv(timeout=20)


@pytest.mark.slow
def test_what_is_not_finished_in_the_time_given_is_cut():
    with served("liveserve", "--drain", "0.2") as (process, url), connect(url) as talking:
        ask(talking, output_tokens=500, reply_audio_s=170.0)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                assert '"status":"completed"' not in talking.recv(timeout=20)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0 and "1 reply cut" in error


@pytest.mark.slow
def test_a_token_is_asked_for_and_never_shown():
    with served("liveserve", "--token-env", "A_TOKEN", A_TOKEN=SECRET) as (process, url):
        with pytest.raises(InvalidStatus) as refused:
            connect(url)
        assert refused.value.response.status_code == 401
        metrics = url.replace("ws://", "http://").replace("/v1/realtime", "/metrics")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(metrics, timeout=20)
        shown = {"Authorization": f"Bearer {SECRET}"}
        with connect(url, additional_headers=shown) as client:
            assert '"session.created"' in client.recv(timeout=20)
        page = urllib.request.urlopen(urllib.request.Request(metrics, headers=shown), timeout=20).read().decode()
        process.send_signal(signal.SIGTERM)
        output, error = process.communicate(timeout=60)
    assert 'rehearsal_refused_total{reason="token"} 2.0' in page
    assert SECRET not in page + output + error


@pytest.mark.slow
def test_a_server_in_a_process_of_its_own_ends_with_its_block():
    with ServerProcess(ServeConfig.model_validate({"engine": "metronome"})) as server:
        with connect(server.url) as client:
            assert '"frames"' in client.recv(timeout=20)
        assert b"rehearsal_sessions_total 1.0" in urllib.request.urlopen(server.metrics_url, timeout=20).read()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_a_server_that_cannot_begin_says_why_to_whoever_started_it():
    with (
        pytest.raises(UserError, match="unknown engine 'nothing'"),
        ServerProcess(ServeConfig.model_validate({"engine": "nothing"})),
    ):
        pass
