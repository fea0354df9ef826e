"""Answers of a server while it loads: it says that it starts.

Models load in the thread of the event loop, for ten seconds and more. Requests in that time are answered from another
thread.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from harness.live.endpoints.transport.limits import STARTING

PATIENCE_S = 1.0
"""With a client that connects and asks nothing: [chosen]; the others wait for it, and so does the end of loading."""
POLL_S = 0.05
"""Interval of checks whether loading has ended, s. [chosen]"""


@contextlib.contextmanager
def starting(listener: socket.socket) -> Iterator[None]:
    """Answer every client of this bound socket with status 503, until the block ends; later clients wait in its
    queue."""
    listener.listen()
    server = HTTPServer(("", 0), _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="starting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        self.send_response(HTTPStatus.SERVICE_UNAVAILABLE)
        for name, value in {"Retry-After": "1", "Content-Type": "text/plain; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(STARTING)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(STARTING)

    do_HEAD = do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing of clients that came too early."""
