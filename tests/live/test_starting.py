"""A server that loads answers that it starts, and leaves the socket to the server that it becomes."""

import http.client
import socket

from harness.serving.starting import starting


def ask(port: int, method: str = "GET", path: str = "/health") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def bound() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


def test_whoever_comes_is_answered_and_then_waits_for_the_server() -> None:
    with bound() as listener:
        port = listener.getsockname()[1]
        with starting(listener):
            assert ask(port) == ask(port, path="/v1/realtime") == (503, b"starting\n")
            assert ask(port, "HEAD") == (503, b"")
            assert ask(port, "POST") == (503, b"starting\n")  # chat completions are posted
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            taken, _ = listener.accept()  # by what the server has become
            with taken:
                taken.sendall(b"mine")
                assert client.recv(4) == b"mine"


def test_a_client_that_asks_nothing_does_not_keep_others_waiting_for_ever() -> None:
    with bound() as listener:
        port = listener.getsockname()[1]
        with starting(listener), socket.create_connection(("127.0.0.1", port)):
            assert ask(port) == (503, b"starting\n")


def test_what_fails_while_it_loads_is_not_kept() -> None:
    with bound() as listener:
        try:
            with starting(listener):
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        listener.listen()  # it is nobody else's
