"""Live signals of vLLM-Omni's duplex sessions: their clients report playback, but vLLM-Omni's schedulers do not get it.

`attach` listens where a session takes its client's commands and where it sends, in the orchestrator's process. It
passes fields of `engines.turns.signals.Signal` on to the stages that make tokens (vllm_omni 0.30.0,
engine/duplex/session/runner.py 236 and emitter.py 101), and changes neither.
"""

# pyright: reportMissingImports=false
import asyncio
import json
from collections.abc import Callable
from functools import wraps
from typing import Any

Send = Callable[..., None]
"""Takes the name of a call and its arguments."""


class SessionSignals:
    """One duplex session: turns its client's commands, and sound that leaves for it, into signals of its turns.

    A final commit ends a turn. A client that plays a trace puts the length of the reply, as JSON, into the commit's
    `event_id`; the modelled stages read it there.
    """

    def __init__(self, session: str, send: Send) -> None:
        self._session = session
        self._send = send
        self._turn = -1
        self._speaking = False
        self._sent_s = self._heard_s = 0.0
        self._complete = False

    def command(self, command: Any) -> None:
        """Take a command of the client (vllm_omni 0.30.0, protocol/realtime/commands.py,
        protocol/duplex/commands.py)."""
        match command.wire_type:
            case "input_audio_buffer.append" if not self._speaking:
                self._speaking = True
                self._tell("speech_start")
            case "input_audio_buffer.commit" if command.final:
                self._speaking = self._complete = False
                self._turn += 1
                self._sent_s = self._heard_s = 0.0
                self._tell_lengths(command.event_id)
                self._tell("turn_committed", turn=self._turn)
            case "playback.ack" if self._turn >= 0:
                self._heard_s = command.played_ms / 1e3
                playing = self._heard_s < self._sent_s
                self._tell("playback_ack", turn=self._turn, seconds=self._heard_s, playing=playing)
                self._end_if_heard()
            case "response.cancel" | "output_audio_buffer.clear" | "barge_in":
                self._tell("barge_in")
            case "session.close":
                self._tell("close")

    def event(self, event: dict[str, Any]) -> None:
        """Take an event that leaves for the client."""
        kind = event.get("type")
        if kind == "response.output_audio.delta" and event.get("audio_duration_ms"):
            seconds = event["audio_duration_ms"] / 1e3
            self._sent_s += seconds
            self._tell("audio_sent", turn=max(0, self._turn), seconds=seconds)
        elif kind == "response.done":
            self._complete = event.get("status") not in ("cancelled", "failed")
            self._end_if_heard()

    def _end_if_heard(self) -> None:
        if self._complete and self._sent_s and self._heard_s >= self._sent_s:
            self._complete = False
            self._tell("playback_done", turn=self._turn)

    def _tell_lengths(self, event_id: str | None) -> None:
        try:
            lengths = json.loads(event_id or "")
        except ValueError:
            return
        if isinstance(lengths, dict) and isinstance(lengths.get("output_tokens"), int):
            self._send("rehearsal_lengths", self._session, lengths["output_tokens"], lengths.get("reply_audio_s"))

    def _tell(self, verb: str, **fields: Any) -> None:
        self._send("rehearsal_signal", {"verb": verb, "session": self._session, **fields})


def attach(signals: bool) -> None:
    """Listen to all duplex sessions that begin from now on in this process. `signals`: pass signals on; else only
    lengths."""
    from vllm_omni.engine.duplex.session.emitter import SessionEmitter
    from vllm_omni.engine.duplex.session.runner import DuplexSessionRunner

    submit, emit = DuplexSessionRunner.submit, SessionEmitter.emit

    @wraps(submit)
    def heard_submit(runner: Any, command: Any) -> None:
        _signals(runner, signals).command(command)
        submit(runner, command)

    @wraps(emit)
    def heard_emit(emitter: Any, payload: dict[str, Any]) -> None:
        _signals(emitter._ctx.services, signals).event(payload)
        emit(emitter, payload)

    DuplexSessionRunner.submit, SessionEmitter.emit = heard_submit, heard_emit


def _signals(runner: Any, all_of_them: bool) -> SessionSignals:
    signals = vars(runner).get("rehearsal_signals")
    if signals is None:
        pools = runner.stage_port.stage_pools
        under_way: set[asyncio.Task[Any]] = set()

        def send(call: str, *args: Any) -> None:
            if call == "rehearsal_signal" and not all_of_them:
                return
            for pool in pools[:-1]:  # the last stage makes no tokens
                rpc = pool.collective_rpc(0, call, args=args)
                under_way.add(task := asyncio.ensure_future(rpc))
                task.add_done_callback(under_way.discard)

        signals = runner.rehearsal_signals = SessionSignals(runner.session.session_id, send)
    return signals
