"""One reply as its client receives it: OpenAI's response, with one output item that has one part."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

from engines.endpoint.base_session import BaseSession
from engines.endpoint.settings import OUTPUT_RATE
from engines.endpoint.voice import pieces
from workloads.trace import Turn


@dataclass(slots=True)
class PlaybackEstimate:
    """Follows the playback of one reply; times in s on the loop's clock. `reported`: True if the client reports
    playback. `longest_gap_s`: the longest silence of a player that waited for late audio."""

    sent_s: float = 0.0
    first_s: float | None = None
    reported: bool = False
    longest_gap_s: float = 0.0
    _ends_s: float = 0.0
    _at_s: float = 0.0
    _played_s: float = 0.0
    _playing: bool = False

    def send(self, audio_s: float, now: float) -> float:
        """Note that `audio_s` seconds leave for the client; returns the player's silence before it, s."""
        if self.first_s is None:
            self.first_s = self._ends_s = now
        gap_s = max(0.0, now - self._ends_s)
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        self._ends_s += gap_s + audio_s
        self.sent_s += audio_s
        return gap_s

    def report(self, played_s: float, playing: bool, now: float) -> None:
        """Take the client's report of seconds played; `playing`: its player goes on."""
        self.reported, self._at_s, self._played_s, self._playing = True, now, played_s, playing

    def played_s(self, now: float) -> float:
        """Return the seconds played: the last report, extrapolated while playing, else as a player that waits for late
        audio would; never more than was sent."""
        if self.reported:
            played_s = self._played_s + (now - self._at_s if self._playing else 0.0)
            return min(played_s, self.sent_s)
        return self.sent_s - max(0.0, self._ends_s - now)


Status = Literal["in_progress", "completed", "cancelled", "failed"]


class Response:
    """Events of one reply, in OpenAI's order. `interrupted`: its listener has stopped listening, before or after it was
    complete. `over`: its listener has heard all of it. `produced`: tokens by stage, when it is complete."""

    def __init__(self, session: BaseSession, turn: Turn, item_id: str, metadata: dict[str, str] | None) -> None:
        self.turn = turn
        self.id = f"resp_{session.number}_{turn.turn}"
        self.item_id = item_id
        self.status: Status = "in_progress"
        self.interrupted = self.over = False
        self.playback = PlaybackEstimate()
        self.produced: dict[str, int] = {}
        self.committed_s = session.now()
        self.text_sent_s: float | None = None
        self.prompt_tokens = 0
        self.text_tokens = 0
        self._session = session
        self._metadata = metadata
        self._text: list[str] = []
        self._samples = 0
        self._part = "audio" if turn.reply_audio_s is not None else "text"
        self._where: dict[str, Any] = {
            "response_id": self.id,
            "item_id": item_id,
            "output_index": 0,
            "content_index": 0,
        }
        # Only the audio differs between the largest messages: the rest is encoded once.
        self._audio_head = (
            f'{{"type":"response.output_audio.delta","response_id":"{self.id}","item_id":"{item_id}",'
            '"output_index":0,"content_index":0,"event_id":"'
        ).encode()

    @property
    def spoken(self) -> bool:
        return self._part == "audio"

    def announce(self, previous_item_id: str | None) -> None:
        """Announce the reply."""
        send = self._session.send
        send("response.created", response=self._response_object())
        item = self._item("in_progress")
        send("response.output_item.added", response_id=self.id, output_index=0, item=item)
        send("conversation.item.added", previous_item_id=previous_item_id, item=item)
        send("response.content_part.added", **self._where, part=self._content("", self._part))

    def say_text(self, text: str, tokens: int) -> None:
        self.text_tokens += tokens
        self._text.append(text)
        kind = "response.output_audio_transcript.delta" if self.spoken else "response.output_text.delta"
        self._session.send(kind, **self._where, delta=text)

    def say_audio(self) -> None:
        """Send the unsent rest of the audio that `playback` counts as sent, in whole samples."""
        session = self._session
        samples = round(self.playback.sent_s * OUTPUT_RATE) - self._samples
        for piece in pieces(samples):
            pcm = session.context.voice.speak(session.number, self._samples, piece)
            self._samples += piece
            session.send_raw(
                b"".join((self._audio_head, session.event_id().encode(), b'","delta":"', base64.b64encode(pcm), b'"}'))
            )

    def finish(self, status: Status, reason: Any = None, played: dict[str, int] | None = None) -> None:
        """End the reply, whose requests have ended too; `produced` is known. `reason`: of a failed one, its error."""
        self.status = status
        session, text = self._session, "".join(self._text)
        self._text = [text]
        if self.spoken:
            session.send("response.output_audio.done", **self._where)
            session.send("response.output_audio_transcript.done", **self._where, transcript=text)
        else:
            session.send("response.output_text.done", **self._where, text=text)
        session.send("response.content_part.done", **self._where, part=self._content(text, self._part))
        item = self._item("completed" if status == "completed" else "incomplete")
        session.send("response.output_item.done", response_id=self.id, output_index=0, item=item)
        session.send("conversation.item.done", item=item)
        named = {} if reason is None else {"error" if status == "failed" else "reason": reason}
        details = {"type": status, **named}
        response = {**self._response_object(item), "status_details": details, "usage": self._usage()}
        if played is not None:
            response["rehearsal"] = {"heard": played}
        session.send("response.done", response=response)

    def _usage(self) -> dict[str, Any]:
        text, frames = (self.produced.get(stage, 0) for stage in self._session.context.stats.stages)
        return {
            "total_tokens": self.prompt_tokens + text + frames,
            "input_tokens": self.prompt_tokens,
            "output_tokens": text + frames,
            "output_token_details": {"text_tokens": text, "audio_tokens": frames},
        }

    def _response_object(self, item: dict[str, Any] | None = None) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "realtime.response",
            "status": self.status,
            "conversation_id": f"conv_{self._session.number}",
            "output_modalities": [self._part],
            "output": [item] if item is not None else [],
            "metadata": self._metadata,
        }

    def _item(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._content(self._text[0], f"output_{self._part}")]
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _content(self, text: str, kind: str) -> dict[str, str]:
        return {"type": kind, "transcript" if self.spoken else "text": text}
