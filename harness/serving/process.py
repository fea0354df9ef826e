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
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from harness.exit_status import BAD_INPUT
from harness.serving.engine_server import LEAVE_S, Ready, leave, serve
from harness.serving.serve_config import ServeConfig
from workloads.bounds import MOST_SEED
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
        self._said: IO[bytes]

    def __enter__(self) -> Self:
        self.begin()
        try:
            self.wait()
        except BaseException:
            self.end()
            raise
        return self

    def begin(self) -> None:
        """Start it, without waiting until it serves; the caller then calls `wait` and, at last, `end`."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (`end` closes it)
        root = str(Path(__file__).absolute().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.serving"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C at a terminal is for this process, which then ends that one
        )
        self.pid = self._process.pid

    def wait(self) -> None:
        """Wait until it serves. UserError with its sentence when it cannot begin."""
        self.url, self.metrics_url = self._wait()

    def drain(self) -> None:
        """Let it reject new clients, finish the running replies and end, without waiting for that."""
        self._process.terminate()

    def end(self) -> None:
        """End it, whatever it does, and whether it still lives."""
        try:
            self._stop()
        finally:
            self._said.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        died = self._process.poll()
        said = "" if died is None else self.said()
        self.end()
        if died is not None and kind is None:
            raise RuntimeError(f"the server ended by itself, with status {died}: {said}")

    def said(self) -> str:
        """Return the end of its standard error."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 4000))
        return self._said.read().decode(errors="replace").strip()

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


@contextlib.contextmanager
def fleet(config: ServeConfig, count: int) -> Iterator[list[ServerProcess]]:
    """Start `count` servers on ports of their own of this machine for as long as the block lasts. They load in
    parallel, and are independent. Each draws its replies' lengths from a seed of its own. UserError when they cannot
    begin."""
    local = {"host": "127.0.0.1", "port": 0}
    servers = [
        ServerProcess(config.model_copy(update={**local, "seed": (config.seed + place) % (MOST_SEED + 1)}))
        for place in range(count)
    ]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.begin()
            stack.callback(server.end)
        for server in servers:
            server.wait()
        yield servers


def main() -> None:
    """Run the server of a `ServerProcess`: the configuration comes as a line, and the server ends when its input
    ends."""
    told = (
        sys.stdin.fileno()
    )  # read without Python's buffer, whose lock a waiting thread would hold to the end

    line = b""
    while not line.endswith(b"\n"):
        more = os.read(told, 65536)
        if not more:
            sys.exit("python -m harness.serving reads from its standard input what to serve.")
        line += more
    config = ServeConfig.model_validate_json(line)

    def end_with_the_input() -> None:
        while os.read(told, 65536):
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
