"""Additions to vLLM's engine process besides a scheduler class: it takes live signals, and rests while a policy holds
all requests. `install` adds two utility calls to `EngineCoreProc` and wraps its step; `uninstall` undoes both.

vLLM 0.32 has no extension point for either. The class of the engine process is fixed
(`EngineCoreProc.run_engine_core`), and a utility call is looked up on it alone (`_handle_client_request`). Of its own
calls, `collective_rpc` ends in the workers, which with tensor parallelism are other processes. A signal sent as a
request would take a step of its own and count in vLLM's request metrics. Resting needs the queue of messages, which no
scheduler sees: if a scheduler's `has_requests` returned False, the engine would wait in that queue, but for ever, and a
drain or a pause would end with requests still held.
"""

import queue
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any

from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.request import Request

from engines.turns.signals import Signal

_RANDOM_SUFFIX = re.compile(r"-[0-9a-f]{8}$")

Step = Callable[[EngineCoreProc], bool]


class LiveScheduler(ABC):
    """The scheduler's interface for its engine process."""

    @abstractmethod
    def take_signal(self, signal: Signal) -> list[Request]:
        """Take a client's report; return the requests that it has ended."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the state that `engines.stock.live_signals.LiveSignals.state` shows."""

    @abstractmethod
    def rest_s(self) -> float:
        """Seconds for which nothing can run unless something happens; 0 when something can."""


_stock_step: Step | None = None
"""vLLM's own step while ours replaces it."""


def install() -> None:
    """Install both in `EngineCoreProc`; each process runs one. A second call does nothing."""
    global _stock_step
    if _stock_step is not None:
        return
    _stock_step = EngineCoreProc._process_engine_step
    EngineCoreProc._process_engine_step = resting(_stock_step)  # type: ignore[method-assign]
    for name, call in CALLS.items():
        setattr(EngineCoreProc, name, call)


def uninstall() -> None:
    """Restore `EngineCoreProc` as vLLM defines it."""
    global _stock_step
    if _stock_step is None:
        return
    EngineCoreProc._process_engine_step = _stock_step  # type: ignore[method-assign]
    for name in CALLS:
        delattr(EngineCoreProc, name)
    _stock_step = None


def resting(step: Step) -> Step:
    """Wrap vLLM's step: when a policy holds all requests, wait for a message (request, abort, signal, shutdown), or
    until the policy's wake time. With data parallelism other ranks wait for this one, so it must not."""

    @wraps(step)
    def step_then_rest(engine: EngineCoreProc) -> bool:
        executed = step(engine)
        scheduler: Any = engine.scheduler
        if not executed and isinstance(scheduler, LiveScheduler) and not engine.engines_running:
            rest_s = scheduler.rest_s()
            if rest_s:
                try:
                    message = engine.input_queue.get(timeout=rest_s)
                except queue.Empty:
                    return executed
                engine._handle_client_request(*message)
        return executed

    return step_then_rest


def external_id(request: Request) -> str:
    return without_suffix(request.request_id)


def without_suffix(name: str) -> str:
    """Return the client's id of a request from its name in vLLM, which has added a random suffix."""
    return _RANDOM_SUFFIX.sub("", name)


def _take_signal(engine: EngineCoreProc, values: Any) -> dict[str, Any]:
    """Utility call: take one signal's fields; return `aborted`, the requests that it ended with their tokens so far."""
    signal = Signal.of(values)
    ended = _scheduler(engine).take_signal(signal)
    engine._send_abort_outputs(ended)
    return {"aborted": [{"request": external_id(r), "tokens": r.num_output_tokens} for r in ended]}


def _state(engine: EngineCoreProc) -> dict[str, Any]:
    return _scheduler(engine).state()


def _scheduler(engine: EngineCoreProc) -> LiveScheduler:
    scheduler: Any = engine.scheduler
    assert isinstance(scheduler, LiveScheduler), "only such a scheduler installs these calls"
    return scheduler


CALLS = {"rehearsal_signal": _take_signal, "rehearsal_state": _state}
"""Utility calls by the names under which `engines.stock.live_signals` makes them."""
