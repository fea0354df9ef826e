"""The look at a target before a run, where something else than such a server answers."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler

import pytest

from tests.builders import refused, say, web_server
from tests.live.test_preflight import look
from workloads.errors import UserError


@contextmanager
def web(tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """HOST:PORT of a web server that is none of ours, behind TLS if wanted."""

    def page(request: BaseHTTPRequestHandler) -> None:
        say(request, "", 200 if request.path == "/" else 404)

    with web_server(page, wrap=partial(tls.wrap_socket, server_side=True) if tls else lambda s: s) as address:
        yield address


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Of a server whose certificate nobody trusts."""
    folder = tmp_path_factory.mktemp("tls")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key -out cert"
    subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context


@pytest.mark.parametrize(
    ("secure", "url", "words"),
    [
        (False, "wss://{}/v1/realtime", ("has no TLS; give ws://{}/v1/realtime",)),
        (False, "https://{}/v1", ("has no TLS; give http://{}/v1",)),
        (
            False,
            "ws://{}/v1/realtime",
            ("is a web server that opens no WebSocket there (HTTP status 404", "or the port"),
        ),
        (False, "ws://{}/", ("is a web server that opens no WebSocket there (HTTP status 200",)),
        (False, "http://{}/v1/realtime", ("takes no chat completions", "give ws://{}/v1/realtime for speech")),
        (False, "http://{}/v1", ("has no chat completions there", "or its port")),
        (True, "ws://{}/v1/realtime", ("wants TLS; give wss://{}/v1/realtime",)),
        (True, "http://{}/v1", ("wants TLS; give https://{}/v1",)),
    ],
)
def test_what_stands_there_instead_is_said(secure: bool, url: str, words: tuple[str, ...], tls: ssl.SSLContext) -> None:
    with (
        web(tls if secure else None) as where,
        refused(f"url {url} ".format(where), *(word.format(where) for word in words)),
    ):
        look(url.format(where))


def test_what_speaks_no_http_is_said_to_be_that() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                peer.sendall(b"SSH-2.0-OpenSSH_9\r\n")
                peer.close()

        threading.Thread(target=speak, daemon=True).start()
        with pytest.raises(UserError, match=r"speaks no HTTP.*correct the port"):
            look(f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/realtime")
        listener.shutdown(socket.SHUT_RDWR)
