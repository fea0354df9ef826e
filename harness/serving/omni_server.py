"""vLLM-Omni's own API server over modelled GPUs, for as long as somebody needs it."""

import base64
import contextlib
import csv
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil
import pyarrow as pa
from websockets.sync.client import connect

from engines.stock.omni.omni_params import OmniParams, python
from engines.stock.omni.shared_gpu import FOLDER
from engines.stock.omni.step_file import FIELDS, SUFFIX
from harness.live.endpoints.transport.get import get

READY_S = 300
"""[chosen] in which its stages must be ready; on two quiet cores they take 40 to 80 s."""
TONE = (b"\x00\x20" * 40 + b"\x00\xe0" * 40) * 200
"""One second of 200 Hz, 16 kHz, 16 bit."""
WARM_S = 60
"""[chosen] within which the first request must be answered."""
END_S = 20
"""[chosen] time in which it ends by itself, s; then the rest of it is killed."""


class OmniServer:
    """API server and stages in a process group of their own, as a context manager. Nothing of it outlives the block.

    `url`, `dialect`: where and how `rehearse live` calls it. `log`: file of its output; None: a temporary one.
    UserError on entry for an impossible configuration; RuntimeError when it does not begin.
    """

    def __init__(self, params: OmniParams, port: int, log: Path | None = None) -> None:
        params.check()
        self._python = python()
        self._params = params
        self._port = port
        self._log = log
        self.address = f"http://127.0.0.1:{port}"
        if params.served.speech_only:
            self.url, self.dialect = f"{self.address}/v1/audio/speech", "synthesis"
        else:
            self.url, self.dialect = f"ws://127.0.0.1:{port}/v1/realtime", "vllm_omni"

    def __enter__(self) -> Self:
        root = str(Path(__file__).absolute().parents[2])
        self._folder = tempfile.TemporaryDirectory(prefix="rehearsal-omni-")
        self._output = tempfile.TemporaryFile() if self._log is None else self._log.open("w+b")
        self._process = subprocess.Popen(
            [self._python, "-P", "-m", "engines.stock.omni", str(self._port), self._params.model_dump_json()],
            stdin=subprocess.PIPE,  # its end tells the server that this process has ended
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": root, FOLDER: self._folder.name},
            start_new_session=True,
        )
        try:
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def processes(self) -> list[psutil.Process]:
        """The live processes of the server: the API server with its orchestrator, the stages, and vLLM's helpers."""
        try:
            server = psutil.Process(self._process.pid)
            return [server, *server.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def said(self) -> str:
        """Return the end of its output."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - 4000))
        return self._output.read().decode(errors="replace").strip()

    def steps(self, origin_s: float) -> pa.Table:
        """Return a row for each step of the modelled stages so far, in the order in which they began on their GPUs.

        Columns `stage` and `FIELDS`; times in s of the server's clock since `origin_s`, which is s of the machine's
        monotonic clock.
        """
        rows: list[tuple[str | float, ...]] = []
        for path in sorted(Path(self._folder.name).glob(f"*{SUFFIX}")):
            with path.open() as file:
                rows += [(path.name.removesuffix(SUFFIX), *map(float, line)) for line in csv.reader(file)]
        rows.sort(key=lambda row: row[1 + FIELDS.index("begin_s")])
        columns: dict[str, list[str | float]] = {name: [] for name in ("stage", *FIELDS)}
        for row in rows:
            for name, value in zip(columns, row, strict=True):
                if name.endswith("_s"):
                    value = (float(value) - origin_s) / self._params.slower
                columns[name].append(value)
        return pa.table(columns)

    def wait(self, until: Callable[[], bool]) -> int | None:
        """Wait until that holds or the server ends. Return its exit status, None while it lives."""
        while self._process.poll() is None and not until():
            time.sleep(0.2)
        return self._process.poll()

    def _wait(self) -> None:
        until_s = time.monotonic() + READY_S
        if self.wait(lambda: self._healthy() or time.monotonic() > until_s) is not None:
            raise RuntimeError(f"vLLM-Omni's server ended before it was ready: {self.said()}")
        if not self._healthy():
            raise RuntimeError(f"vLLM-Omni's server is not ready after {READY_S} s: {self.said()}")
        warm_up = say_a_word if self._params.served.speech_only else take_a_turn
        warm_up(self.url)

    def _healthy(self) -> bool:
        try:
            return get(f"{self.address}/health", timeout_s=2, most_bytes=2**10).status == 200
        except (OSError, ValueError):
            return False

    def _end(self) -> None:
        """End it as Ctrl-C does, and kill the processes that have not ended in time: vLLM-Omni leaves stages behind."""
        theirs = self.processes
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        _, left = psutil.wait_procs(theirs, timeout=2)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._output.close()
        self._folder.cleanup()


def say_a_word(url: str) -> None:
    """Let it speak a first text, for which its server loads the tokenizer."""
    body = json.dumps({"input": "word", "response_format": "pcm", "stream": True, "stream_format": "audio"})
    asked = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=WARM_S) as answer:
        answer.read()


def take_a_turn(url: str) -> None:
    """Take the first turn of a duplex session, for which its server loads its audio reader, which takes seconds."""
    url = f"{url}?duplex=1&autostart=0&model=qwen3-omni"
    tone = base64.b64encode(TONE).decode()  # silence is no turn
    lengths = json.dumps({"output_tokens": 4, "reply_audio_s": 0.32})
    about = {"modalities": ["audio", "text"], "turn_detection": None, "model": "qwen3-omni"}
    append = {"type": "input_audio_buffer.append", "audio": tone, "format": "pcm16", "sample_rate_hz": 16_000}
    commit = {"type": "input_audio_buffer.commit", "final": True, "create_response": True, "event_id": lengths}
    with connect(url, max_size=None) as session:
        for message in ({"type": "session.update", "session": about}, append, commit):
            session.send(json.dumps(message))
        while json.loads(session.recv(timeout=WARM_S))["type"] != "response.done":
            pass
