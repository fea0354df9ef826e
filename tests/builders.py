"""What tests of every floor build: turns, commands as processes, small web servers, free ports."""

import multiprocessing
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from workloads.errors import UserError
from workloads.trace import Trace, Turn

REHEARSE = [sys.executable, "-c", "from reports.cli import main; main()"]
"""The command as a process of its own; its arguments follow."""


def turn(session: int = 0, index: int = 0, **fields: Any) -> Turn:
    """A spoken turn; the first of a session arrives at 0 s, later ones come a second after what was heard."""
    first = index == 0
    defaults: dict[str, Any] = {
        "arrival_s": 0.0 if first else None,
        "modality": "audio",
        "input_tokens": 26,
        "audio_s": 2.0,
        "output_tokens": 60,
        "reply_audio_s": 16.8,
        "think_s": None if first else 1.0,
        "barge_in_after_s": None,
        "history_tokens": None,
        "network_s": 0.005,
    }
    return Turn.of(session=session, turn=index, **{**defaults, **fields})


def typed_turn(session: int = 0, index: int = 0, **fields: Any) -> Turn:
    """As `turn`, typed and answered in text."""
    return turn(session, index, **{"modality": "text", "audio_s": None, "reply_audio_s": None, **fields})


def settings(*chosen: str) -> list[str]:
    """`--set` before each."""
    return [word for text in chosen for word in ("--set", text)]


def free_ports(count: int) -> list[int]:
    """Nobody listens at them, and they are not the same."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def web_server(
    get: Callable[[BaseHTTPRequestHandler], None] | None = None,
    post: Callable[[BaseHTTPRequestHandler], None] | None = None,
    wrap: Callable[[socket.socket], socket.socket] = lambda listener: listener,
) -> Iterator[str]:
    """HOST:PORT of an HTTP server whose requests are handed over; `wrap`: its socket, as into TLS."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """On nobody's terminal."""

    for method, answer in (("do_GET", get), ("do_POST", post)):
        if answer is not None:
            setattr(Handler, method, answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = wrap(server.socket)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def say(handler: BaseHTTPRequestHandler, text: str, status: int = 200) -> None:
    """Answer a request in full."""
    handler.send_response(status)
    handler.end_headers()
    handler.wfile.write(text.encode())


def starts(trace: Trace) -> np.ndarray:
    """When the sessions of a trace begin, in s."""
    columns = trace.columns()
    return columns["arrival_s"][columns["turn"] == 0]


@contextmanager
def refused(*words: str) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Fails unless what is within is refused in one sentence that has these words."""
    with pytest.raises(UserError) as error:
        yield error
    said = str(error.value)
    assert "\n" not in said and said.endswith((".", "?")), said
    assert [word for word in words if word not in said] == [], said


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, from a fresh process: vLLM and Triton keep much in globals."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


GONE = object()


def places(facts: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value, also of those that hold others."""
    if place:
        yield place
    pairs = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    for name, each in pairs:
        yield from places(each, (*place, name))


def altered(facts: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with `value` at a place, or without the place."""
    name, *rest = place
    new = altered(facts[name], tuple(rest), value) if rest else value
    pairs = list(facts.items() if isinstance(facts, dict) else enumerate(facts))
    pairs = [(key, new if key == name else each) for key, each in pairs if key != name or new is not GONE]
    return dict(pairs) if isinstance(facts, dict) else [each for _, each in pairs]
