"""One client's interaction session: audio that never stops, cut into frames, and an answer to each."""

from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from engines.endpoint.base_session import BaseSession, SessionContext, appended
from engines.endpoint.detokenizer import CONTEXT
from engines.endpoint.lengths import MOST_INPUT, FrameLengths
from engines.endpoint.protocol import OVERLOADED, Incoming, Outbox, Refusal
from engines.endpoint.settings import KEPT, Settings
from engines.endpoint.turn_detection import WHERE
from engines.frames.gateway import TickGateway
from workloads.distributions.speech import audio_tokens
from workloads.trace import CONTENTS, Turn

MOST_BEHIND = 120
"""[chosen] frames without an answer at which a session ends: four minutes of the paper's."""

MOST_AHEAD = 64
"""[chosen] frames for which a client may give lengths of answers ahead."""

FAILED = 1011
"""Close code: the server cannot go on with this session."""


class FrameSession(BaseSession):
    """One client's interaction session, and the gateway's listener: it calls `accepted`, `rejected`, `frame` and
    `failed`."""

    def __init__(self, context: SessionContext, number: int, outbox: Outbox, gateway: TickGateway) -> None:
        super().__init__(context, number, outbox, Settings(False, context.deployment.model.name, "text"))
        self._gateway = gateway
        self._lengths = FrameLengths(context.seed, number)
        self._pcm = bytearray()
        self._next = 0
        self._hints: dict[int, tuple[int | None, int | None]] = {}
        self._complete_s: OrderedDict[int, float] = OrderedDict()
        # Model time may lag, and a frame that was dated by it would have waited longer than it was here.
        self._real_time: Callable[[], float] = getattr(context.loop, "real_time", context.loop.time)
        self._sent_tokens = 0
        self._response_id, self._item_id = f"resp_{number}", f"item_{number}"

    @property
    def busy(self) -> bool:
        return bool(self._complete_s)

    def opened(self) -> None:
        self._gateway.open(self.number, self)

    def closed(self) -> None:
        self._gateway.close(self.number)

    # Called by the gateway.

    def accepted(self) -> None:
        self.say_session("session.created")

    def rejected(self) -> None:
        self.error("no more sessions are admitted now; try again later.", "overloaded")
        self._outbox.close(OVERLOADED, "try again later")
        self.end()

    def failed(self, reason: str) -> None:
        self.send("rehearsal.session.failed", reason=reason)
        self.error(f"the session has failed: {reason}.", "session_failed")
        self._outbox.close(FAILED, reason[:100])
        self.end()

    def frame(self, frame: int, tokens: int) -> None:
        if tokens:
            ids = self._gateway.token_ids(self.number)[-tokens - CONTEXT :]
            text = self.context.detokenizer.text(self.number, self._sent_tokens, ids, min(tokens, len(ids)))
            self._sent_tokens += tokens
            self.send(
                "response.output_text.delta",
                response_id=self._response_id,
                item_id=self._item_id,
                output_index=0,
                content_index=0,
                delta=text,
            )
        waited_s = max(0.0, self._gateway.fed_s(self.number) - self._complete_s[frame])
        self.send("rehearsal.frame.done", frame=frame, tokens=tokens, waited_ms=int(1000 * waited_s))
        now = self._real_time()
        while self._complete_s and next(iter(self._complete_s)) <= frame:
            self.context.stats.frame_s.add(now - self._complete_s.popitem(last=False)[1])

    # Handlers of client events.

    def _session_update(self, event: Incoming) -> None:
        settings = self.settings.updated(event.session or {})
        if settings.input_rate != self.settings.input_rate and self._pcm:
            raise Refusal("the input rate changes between frames only.", param="session")
        if settings.vad is not None:
            raise Refusal(
                f"this server answers frames and finds no ends of turns; set {WHERE} to null. {KEPT}", param=WHERE
            )
        self.settings = settings
        self.say_session("session.updated")

    def _append(self, event: Incoming) -> None:
        self._pcm += appended(event)
        size = 2 * round(self._gateway.frame_s * self.settings.input_rate)
        while len(self._pcm) >= size and not self._ended:
            self._complete(bytes(self._pcm[:size]))
            del self._pcm[:size]

    def _clear(self, event: Incoming) -> None:
        del event
        self._pcm.clear()
        self.send("input_audio_buffer.cleared")

    def _hint(self, event: Incoming) -> None:
        frame, tokens, content = event.frame, event.output_tokens, event.content
        if frame is None or not self._next <= frame < self._next + MOST_AHEAD:
            raise Refusal(f"frame is {frame}, and {self._next} is the one that comes.", param="frame")
        if tokens is not None and not 1 <= tokens <= MOST_INPUT:
            raise Refusal(f"output_tokens is {tokens}; set 1 or more.", param="output_tokens")
        if content is not None and not 0 <= content < CONTENTS:
            raise Refusal(f"content is {content}; set 0 to 2^53 - 1.", param="content")
        self._hints[frame] = tokens, content

    handlers: ClassVar = {
        "session.update": _session_update,
        "input_audio_buffer.append": _append,
        "input_audio_buffer.clear": _clear,
        "rehearsal.frame": _hint,
    }

    def _complete(self, pcm: bytes) -> None:
        """Take in a frame's complete audio."""
        now, frame_s, frame = self.now(), self._gateway.frame_s, self._next
        if len(self._complete_s) >= MOST_BEHIND:
            self.failed(f"{MOST_BEHIND} frames have had no answer")
            return
        tokens, content = self._hints.pop(frame, (None, None))
        drawn, deployment = self._lengths.next(), self.context.deployment
        entry = deployment.stages[deployment.entry]
        turn = Turn(
            session=self.number,
            turn=frame,
            arrival_s=now - frame_s,
            modality="audio",
            input_tokens=int(audio_tokens(np.array([frame_s]))[0]),
            audio_s=frame_s,
            output_tokens=min(tokens or drawn, entry.max_tokens),
            reply_audio_s=None,
            content=content,
        )
        self.context.audio_store.put(turn, pcm, self.settings.input_rate)
        self._complete_s[frame] = self._real_time()
        self._next += 1
        self._gateway.append(turn)
