"""`rehearse serve`: usage errors, loading, signals, draining and the token."""

import http.client
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
from typing import IO, NamedTuple

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from harness.serving import ServeConfig, ServerProcess, serve
from harness.serving.starting import starting
from tests.builders import REHEARSE, refused
from tests.conftest import Rehearse

SECRET = "correct-horse-battery"


def test_a_taken_port_is_named(rehearse: Rehearse):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, error = rehearse("serve", "liveserve", "--port", str(port))
    assert status == 2
    assert f"port {port} of 127.0.0.1 is taken; choose another with --port" in error


def test_a_server_process_that_cannot_begin_raises_its_usage_error():
    with refused("unknown engine 'nothing'"), ServerProcess(ServeConfig.model_validate({"engine": "nothing"})):
        pass


# A server that loads


def ask_early(port: int, method: str = "GET", path: str = "/health") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_a_loading_server_answers_503_and_hands_its_port_over():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with starting(bound), socket.create_connection(("127.0.0.1", port)):  # a silent client, which blocks nobody
            assert ask_early(port) == ask_early(port, path="/v1/realtime") == (503, b"starting\n")
            assert ask_early(port, "HEAD") == (503, b"")
            assert ask_early(port, "POST") == (503, b"starting\n")  # chat completions are posted
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            served, _ = bound.accept()  # by the server that has loaded
            with served:
                served.sendall(b"mine")
                assert client.recv(4) == b"mine"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_loading_ends_the_server_with_status_0(number: signal.Signals):
    def loads(where: str) -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was not taken")

    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    config = ServeConfig.model_validate({"engine": "liveserve"})
    assert serve(config, lambda where: None, loading=loads) == 0
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


# A server of its own process


class Command(NamedTuple):
    process: subprocess.Popen[str]
    stdout: IO[str]
    stderr: IO[str]

    def ends(self) -> str:
        """Wait for its end; returns the rest of what it has printed."""
        return "".join(self.process.communicate(timeout=60))


@contextmanager
def loading(*arguments: str, **environment: str) -> Iterator[Command]:
    """`rehearse serve` on a free port."""
    command, env = [*REHEARSE, "serve", *arguments, "--port", "0"], {**os.environ, **environment}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield Command(process, process.stdout, process.stderr)
        finally:
            process.kill()


@contextmanager
def served(*arguments: str, **environment: str) -> Iterator[tuple[Command, str]]:
    """`rehearse serve` once it serves, and its URL."""
    with loading(*arguments, **environment) as command:
        yield command, command.stdout.readline().strip()


def left(client: ClientConnection) -> tuple[int | None, list[str]]:
    """Receive to the end: the code with which the server closes, and what it sent before."""
    messages: list[str] = []
    with pytest.raises(ConnectionClosed) as end:
        while True:
            messages.append(str(client.recv(timeout=60)))
    return end.value.rcvd and end.value.rcvd.code, messages


def ask(client: ClientConnection, output_tokens: int, reply_audio_s: float) -> None:
    """A typed turn; returns when the reply has begun to sound."""
    lengths = {"output_tokens": output_tokens, "reply_audio_s": reply_audio_s}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
    client.send(json.dumps({"type": "conversation.item.create", "item": item}))
    client.send(json.dumps({"type": "response.create", "response": {"metadata": {"rehearsal": json.dumps(lengths)}}}))
    while '"response.output_audio.delta"' not in str(client.recv(timeout=60)):
        pass


@pytest.mark.slow("starts servers in processes of their own")
def test_a_server_says_where_it_loads_and_serves_until_ctrl_c():
    with loading("liveserve") as command:
        line = command.stderr.readline()
        address = re.search(r"loading vLLM … +http://(127\.0\.0\.1:\d+)/health", line)
        assert address, line
        for path in ("/health", "/v1/realtime"):  # vLLM takes seconds to load, and this milliseconds
            with pytest.raises(urllib.error.HTTPError) as early:
                urllib.request.urlopen(f"http://{address[1]}{path}", timeout=20)
            assert (early.value.code, early.value.read()) == (503, b"starting\n")
        url = command.stdout.readline().strip()
        assert url == f"ws://{address[1]}/v1/realtime"
        with connect(url) as client:
            assert '"session.created"' in str(client.recv(timeout=20))
            command.process.send_signal(signal.SIGINT)
            assert left(client) == (1001, [])
        error = command.ends()
    assert command.process.returncode == 0
    assert "Traceback" not in error and f"rehearse live {url}" in error


@pytest.mark.slow("starts servers in processes of their own")
def test_sigterm_finishes_replies_and_rejects_new_callers():
    with served("liveserve") as (command, url):
        with connect(url) as idle, connect(url) as talking:
            ask(talking, 60, 20.0)
            command.process.send_signal(signal.SIGTERM)
            assert left(idle)[0] == 1001
            with pytest.raises(InvalidStatus) as rejected:
                connect(url)
            assert rejected.value.response.status_code == 503
            with pytest.raises(urllib.error.HTTPError) as health:
                urllib.request.urlopen(url.replace("ws", "http", 1).replace("v1/realtime", "health"), timeout=20)
            assert health.value.read() == b"draining\n"
            code, messages = left(talking)
        error = command.ends()
    done = json.loads(messages[-1])
    assert (code, done["type"], done["response"]["status"]) == (1001, "response.done", "completed")
    assert command.process.returncode == 0 and "finishing 1 reply, for 30 s at most" in error


@pytest.mark.slow("starts servers in processes of their own")
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_server_at_once(second: signal.Signals):
    with served("liveserve") as (command, url), connect(url) as talking:
        ask(talking, 500, 170.0)
        command.process.send_signal(signal.SIGTERM)
        while "finishing 1 reply" not in command.stderr.readline():
            pass
        command.process.send_signal(second)
        command.ends()
        assert command.process.returncode == 128 + second
        assert not [message for message in left(talking)[1] if '"response.done"' in message]


@pytest.mark.slow("starts servers in processes of their own")
def test_a_served_token_is_required_and_never_printed():
    with served("liveserve", "--token-env", "A_TOKEN", A_TOKEN=SECRET) as (command, url):
        with pytest.raises(InvalidStatus) as rejected:
            connect(url)
        assert rejected.value.response.status_code == 401
        metrics = url.replace("ws://", "http://").replace("/v1/realtime", "/metrics")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(metrics, timeout=20)
        shown = {"Authorization": f"Bearer {SECRET}"}
        with connect(url, additional_headers=shown) as client:
            assert '"session.created"' in str(client.recv(timeout=20))
        page = urllib.request.urlopen(urllib.request.Request(metrics, headers=shown), timeout=20).read().decode()
        command.process.send_signal(signal.SIGTERM)
        printed = command.ends()
    assert 'rehearsal_refused_total{reason="token"} 2.0' in page
    assert SECRET not in page + printed


@pytest.mark.slow("starts servers in processes of their own")
def test_a_server_in_a_process_of_its_own_ends_with_its_block():
    with ServerProcess(ServeConfig.model_validate({"engine": "metronome"})) as server:
        with connect(server.url) as client:
            assert '"frames"' in str(client.recv(timeout=20))
        assert b"rehearsal_sessions_total 1.0" in urllib.request.urlopen(server.metrics_url, timeout=20).read()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
