"""A Locust worker plays one shard of a plan in a process of its own, so gevent and the senders' uvloop stay apart.

What it needs comes in messages, and what it measures goes back in messages while it is written: a worker that dies
takes the last second of its part with it, no more. Between master (M) and worker (W), each with the id of the run:

    M → W  rehearsal_part     index, plan, trace            what to play
                              recordings                    that it speaks with, if any
                              floor                         what to play to a null server before
    W → M  rehearsal_ask      n                             what time is it?
    M → W  rehearsal_tell     n, at_s                       s of the master's CLOCK_MONOTONIC
    W → M  rehearsal_ready    clock, floor                  the shard waits; how far the master's clock is ahead
           rehearsal_refused  error                         or it cannot be played
    M → W  rehearsal_start    at_s                          time 0 of the run by the master's clock
           rehearsal_stop                                   the run is over, finished or not
    W → M  rehearsal_piece    name, at, data                bytes of a file of the shard, from byte `at` on
    W → M  rehearsal_done     status, error, clock          exit status, and how far the master's clock is ahead by now
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gevent
from gevent.event import AsyncResult
from locust.env import Environment
from locust.runners import WorkerRunner

from harness.live.locust.clock_offset import Exchange, Offset, offset_of
from harness.live.run.plan import command, results_of, unpack_shard
from harness.records.record import LOG

EXCHANGES = 32
"""Questions about the time, so that some of them find the network quiet. [chosen]"""
BETWEEN_S = 0.01
"""Between two of them. [chosen]"""
ANSWER_S = 2.0
"""Without an answer for so long the next question is asked. [chosen]"""
SEND_S = 0.5
"""Between two looks at what the shard has written. [chosen]"""
PIECE = 1 << 20
"""Bytes of a file in one message at most. [chosen]"""

_FLOOR = """
import json, sys
from dataclasses import asdict
from harness.live.run.floor import measure_floor
print(json.dumps(asdict(measure_floor(**json.loads(sys.argv[1])))))
"""


class Worker:
    """The worker's side of a run. `on_line`: sessions at the moment."""

    def __init__(self, environment: Environment) -> None:
        assert isinstance(environment.runner, WorkerRunner)
        self._environment = environment
        self._runner = environment.runner
        self._part: _Part | None = None
        self._asked: dict[int, Any] = {}
        self._questions = 0
        self.floors: dict[str, dict[str, Any]] = {}
        """Delay that this host adds to a latency, measured once for each load: by the arguments of `measure_floor`,
        JSON."""
        self._runner.register_message("rehearsal_part", self._take, concurrent=True)
        self._runner.register_message("rehearsal_start", self._start)
        self._runner.register_message("rehearsal_stop", self._stop)
        self._runner.register_message("rehearsal_tell", self._told)

    @property
    def on_line(self) -> int:
        return self._part.on_line if self._part is not None else 0

    def stop(self) -> None:
        """End the running shard, if there is one."""
        part, self._part = self._part, None
        if part is not None:
            part.kill()

    def _take(self, msg: Any, **_: Any) -> None:
        self.stop()
        run = msg.data["run"]
        folder = Path(tempfile.mkdtemp(prefix="rehearsal-"))
        try:
            part = self._part = _Part(self, folder, msg.data)
            part.play()
        except Exception as error:
            self.send("refused", run, error=f"{type(error).__name__}: {error}")
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, msg: Any, **_: Any) -> None:
        if self._part is not None and self._part.run == msg.data["run"]:
            self._part.start(msg.data["at_s"])

    def _stop(self, msg: Any, **_: Any) -> None:
        if self._part is not None and self._part.run == msg.data["run"]:
            self.stop()

    def send(self, kind: str, run: str, **data: Any) -> None:
        self._runner.send_message(f"rehearsal_{kind}", {"run": run, **data})

    def clock(self, run: str) -> Offset | None:
        """Return the offset of the master's clock ahead of this host's; None when it does not answer."""
        exchanges = []
        for _ in range(EXCHANGES):
            self._questions += 1
            number = self._questions
            answer: Any = AsyncResult()
            self._asked[number] = answer
            asked_s = time.monotonic()
            self.send("ask", run, n=number)
            with contextlib.suppress(gevent.Timeout):
                answered_s, received_s = answer.get(timeout=ANSWER_S)
                exchanges.append(Exchange(asked_s, answered_s, received_s))
            del self._asked[number]
            gevent.sleep(BETWEEN_S)
        return offset_of(exchanges) if exchanges else None

    def _told(self, msg: Any, **_: Any) -> None:
        received_s = time.monotonic()
        waiting = self._asked.get(msg.data["n"])
        if waiting is not None:
            waiting.set((msg.data["at_s"], received_s))

    def request(self, kind: str, name: str, seconds: float | None, error: str = "") -> None:
        """Add an entry to Locust's statistics. `seconds` None: nothing was timed."""
        self._environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=None if seconds is None else 1e3 * seconds,
            response_length=0,
            exception=RuntimeError(error) if error else None,
            context={},
        )


class _Part:
    """One shard: its process, and how far its files have been sent."""

    def __init__(self, worker: Worker, folder: Path, data: dict[str, Any]) -> None:
        self.run: str = data["run"]
        self.on_line = 0
        self._worker = worker
        self._folder = folder
        self._index: int = data["index"]
        self._results = results_of(folder, self._index)
        self._load = json.dumps(data["floor"])
        self._sent: dict[str, int] = {}
        self._counted = dict.fromkeys(("failed", "shed"), 0)
        self._clock: Offset | None = None
        self._error = ""
        self._child: subprocess.Popen[str] | None = None
        self._stopped = False
        unpack_shard(folder, data)

    def play(self) -> None:
        """Play until its process ends; then the master has everything that it wrote."""
        self._measure_floor()
        child = self._begin(command(self._folder, self._index))
        reading = gevent.spawn(self._read_status, child)
        while child.poll() is None:
            gevent.sleep(SEND_S)
            self._send_new()
        reading.join()
        self._send_new()
        self.on_line = 0
        clock = None if self._stopped else self._worker.clock(self.run)
        self._worker.send("done", self.run, status=child.returncode, error=self._error, clock=clock)

    def _begin(self, command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        with (self._results / LOG).open("ab") as log:
            child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
        self._child = child
        if self._stopped:
            child.kill()
        return child

    def _measure_floor(self) -> None:
        if self._load not in self._worker.floors:
            child = self._begin([sys.executable, "-P", "-c", _FLOOR, self._load])
            output, _ = child.communicate()
            if child.returncode != 0:
                raise RuntimeError(f"the floor was not measured:\n{(self._results / LOG).read_text()}")
            self._worker.floors[self._load] = json.loads(output)

    def start(self, at_s: float) -> None:
        """Start the run: time 0 is `at_s` by the master's clock."""
        assert self._clock and self._child and self._child.stdin, "it said that it is ready"
        self._child.stdin.write(f"start {self._clock.here(at_s)!r}\n")
        self._child.stdin.flush()

    def kill(self) -> None:
        self._stopped = True
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()

    def _read_status(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for text in child.stdout:
            status = json.loads(text)
            if "error" in status:
                self._error = status["error"]
                self._worker.send("refused", self.run, error=self._error)
            elif "ready" in status:
                self._clock = self._worker.clock(self.run)
                if self._clock is None:
                    self._worker.send("refused", self.run, error="the master does not say what time it is")
                    continue
                floor = self._worker.floors.get(self._load)
                self._worker.send("ready", self.run, clock=self._clock, floor=floor)
            else:
                self._count(status)

    def _count(self, status: dict[str, Any]) -> None:
        """Add a status of `harness.live.run.run_progress` to Locust's statistics."""
        self.on_line = status["sessions"]
        for seconds in status["ttfp_s"]:
            self._worker.request("turn", "time to first packet", seconds)
        for seconds in status["reply_s"]:
            self._worker.request("turn", "reply complete", seconds)
        for name in self._counted:
            for _ in range(status[name] - self._counted[name]):
                self._worker.request("turn", name, None, error=f"{name}, see the record's failures")
            self._counted[name] = status[name]

    def _send_new(self) -> None:
        for path in sorted(self._results.glob("*")):
            at = self._sent.get(path.name, 0)
            with path.open("rb") as file:
                file.seek(at)
                while data := file.read(PIECE):
                    self._worker.send("piece", self.run, name=path.name, at=at, data=data)
                    at += len(data)
            self._sent[path.name] = at
