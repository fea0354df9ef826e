"""A server in a process of its own, for as long as somebody needs it."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Self

from harness.exit_status import BAD_INPUT
from harness.serving.engine_server import LEAVE_S, Ready, leave, serve
from harness.serving.serve_config import ServeConfig
from workloads.errors import UserError

READY_S = 180
"""[chosen] in which a server must be ready."""


class ServerProcess:
    """A server in a process of its own, as a context manager; it ends with the block, and with this process. On entry
    UserError with the sentence of the server when it cannot begin; on exit RuntimeError when it has not lived until
    then."""

    url: str
    metrics_url: str
    pid: int

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes]
        self._stderr: IO[bytes]

    def __enter__(self) -> Self:
        self._stderr = tempfile.TemporaryFile()  # `_end` closes it
        root = str(Path(__file__).absolute().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.serving"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C at a terminal is for this process, which then ends that one
        )
        self.pid = self._process.pid
        try:
            self.url, self.metrics_url = self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        died = self._process.poll()
        output = "" if died is None else self.said()
        self._end()
        if died is not None and kind is None:
            raise RuntimeError(f"the server ended by itself, with status {died}: {output}")

    def said(self) -> str:
        """Return the end of its standard error."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - 4000))
        return self._stderr.read().decode(errors="replace").strip()

    def _wait(self) -> Ready:
        """Send the configuration and wait until it serves."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(self._config.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        if not select.select([process.stdout], [], [], READY_S)[0]:
            raise RuntimeError(f"the server is not ready after {READY_S:g} s: {self.said()}")
        line = process.stdout.readline()
        if line:
            return Ready(**json.loads(line))
        if process.wait() == BAD_INPUT:
            raise UserError(self.said())
        raise RuntimeError(f"the server ended before it was ready: {self.said()}")

    def _end(self) -> None:
        """End it, whatever it does, and whether it still lives."""
        try:
            self._stop()
        finally:
            self._stderr.close()

    def _stop(self) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        try:
            process.wait(LEAVE_S + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Run the server of a `ServerProcess`: the configuration comes as a line, and the server ends when its input
    ends."""
    stdin = sys.stdin.fileno()  # read without Python's buffer, whose lock a waiting thread would hold to the end

    line = b""
    while not line.endswith(b"\n"):
        more = os.read(stdin, 65536)
        if not more:
            sys.exit("python -m harness.serving reads from its standard input what to serve.")
        line += more
    config = ServeConfig.model_validate_json(line)

    def end_with_the_input() -> None:
        while os.read(stdin, 65536):
            pass
        os.kill(os.getpid(), signal.SIGINT)  # nobody is left to whom a reply would be of use

    def ready(where: Ready) -> None:
        print(json.dumps(where._asdict()), flush=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    threading.Thread(target=end_with_the_input, name="input", daemon=True).start()
    try:
        leave(serve(config, ready))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_INPUT)
