"""One client's session of turns: the user speaks or types, asks for a reply, hears it, and may cut it short."""

from functools import partial
from typing import Any, ClassVar

import msgspec

from engines.core.gateway import Gateway
from engines.endpoint.connection import BaseConnection, House, appended
from engines.endpoint.lengths import Hint, ReplyLengths, hint_of
from engines.endpoint.protocol import Incoming, Outbox, Refusal
from engines.endpoint.response import Response
from engines.endpoint.settings import Modality, ServerVad, Settings, limit_of
from engines.endpoint.user_turn import LEAST_S, Buffer, Items, Said, message_of
from engines.endpoint.vad import FRAME_S, OF_FRAMES, Vad
from engines.endpoint.words import CONTEXT
from workloads.speech import AUDIO_TOKENS_PER_S
from workloads.trace import Turn


class TurnConnection(BaseConnection):
    """Also the gateway's listener: ``text``, ``audio`` and ``reply_done`` are what it calls."""

    def __init__(self, house: House, number: int, outbox: Outbox, gateway: Gateway) -> None:
        speaks, model = house.deployment.speaks, house.deployment.model.name
        settings = Settings(speaks, model, "audio" if speaks else "text", vad=ServerVad())
        super().__init__(house, number, outbox, settings)
        self._gateway = gateway
        self._lengths = ReplyLengths(house.seed, number, house.deployment)
        self._items = Items()
        self._last_item: str | None = None
        self._items_made = self._turns = 0
        self._response: Response | None = None
        self._waits = False  # for the reply under way to end, so that its own can begin
        self._speaks_since: float | None = None
        self._end_of_playback: Any = None
        self._listen_anew()

    def opened(self) -> None:
        self._gateway.open(self.number, self)
        self.say_session("session.created")

    def closed(self) -> None:
        """What it was still being told is lost, and counts so."""
        if self._engaged is not None:
            self._interrupt(self._engaged, None, "client_cancelled", "lost")
        self._stop_timer()
        self._gateway.close(self.number)

    # What the gateway calls.

    def text(self, turn: int, tokens: int) -> None:
        response, reply = self._response, self._gateway.reply(self.number)
        assert response is not None and response.turn.turn == turn and reply is not None
        begin = response.text_tokens
        ids = reply.text_ids[max(0, begin - CONTEXT) : begin + tokens]
        said = self.house.words.text(self.number, begin, ids, tokens)
        response.say_text(said, tokens)

    def audio(self, turn: int, audio_s: float) -> None:
        response, now, ledger = self._response, self.now(), self.house.ledger
        assert response is not None and response.turn.turn == turn
        if response.player.first_s is None:
            ledger.ttfp_s.add(now - response.committed_s)
        ledger.audio_sent_s += audio_s
        response.say_audio(audio_s, now)

    def reply_done(self, turn: int) -> None:
        assert self._response is not None
        self.house.ledger.when_ended(self.number, turn, partial(self._completed, self._response))

    # What the client sends.

    def _session_update(self, event: Incoming) -> None:
        settings = self.settings.updated(event.session or {})
        if settings.input_rate != self.settings.input_rate and (self._buffer.samples or len(self._items)):
            raise Refusal(
                "the input rate changes between turns only; commit or clear before.", param="session"
            )
        anew = (settings.input_rate, settings.vad) != (self.settings.input_rate, self.settings.vad)
        self.settings = settings
        if anew:
            self._listen_anew()
        self.say_session("session.updated")

    def _append(self, event: Incoming) -> None:
        pcm = appended(event)
        if self.settings.vad is not None:
            self._unheard += pcm
            if self._vad is None:
                self._vad = Vad(self._buffer.rate, self.settings.vad)
            size = self._vad.frame_bytes
            for begin in range(0, len(self._unheard) - size + 1, size):
                self._hear(self._vad, self.settings.vad, bytes(self._unheard[begin : begin + size]))
            del self._unheard[: len(self._unheard) // size * size]
            return
        most_s = self.house.longest_s
        if self._buffer.seconds + len(pcm) / 2 / self._buffer.rate > most_s:
            raise Refusal(
                f"the buffer holds {most_s:g} s of audio; commit or clear it.", "buffer_full", "audio"
            )
        self._buffer.append(pcm)
        if self._speaks_since is None and not self._replying:
            self._speech_starts()

    def _clear(self, event: Incoming) -> None:
        del event
        self._buffer.clear()
        self._speaks_since = None
        self.send("input_audio_buffer.cleared")

    def _commit(self, event: Incoming) -> None:
        del event
        if self._buffer.seconds < LEAST_S:
            raise Refusal(
                f"the buffer holds {self._buffer.seconds * 1000:.0f} ms of audio; append {LEAST_S * 1000:.0f} ms or "
                "more before a commit.",
                "input_audio_buffer_commit_empty",
            )
        self._commit_as(self._new_item())

    def _create_item(self, event: Incoming) -> None:
        role, text, said = message_of(event.item)
        assert event.item is not None
        id = event.item.get("id") or self._new_item()
        if not isinstance(id, str) or len(id) > 64:
            raise Refusal("an item's id is a string of at most 64 characters.", param="item.id")
        self._items.add(id, said)
        kind = "output_text" if role == "assistant" else "input_text"
        self._tell_item(id, role, {"type": kind, "text": text})

    def _delete_item(self, event: Incoming) -> None:
        if event.item_id is None or event.item_id not in self._items:
            raise Refusal(
                "only items that no reply has read yet can be deleted.", "item_not_found", "item_id"
            )
        self._items.remove(event.item_id)
        self.send("conversation.item.deleted", item_id=event.item_id)

    def _create_response(self, event: Incoming) -> None:
        if self._replying:
            assert self._response is not None
            raise Refusal(
                f"reply {self._response.id} is under way; wait for its end or cancel it.",
                "conversation_already_has_active_response",
            )
        asked = event.response or {}
        hint, metadata, modality = hint_of(asked), asked.get("metadata"), self.settings.modality
        try:
            if asked.get("output_modalities") is not None:
                modality = self.settings.allowed(msgspec.convert(asked["output_modalities"], list[Modality]))
            limit = asked.get("max_output_tokens")
            limit = (
                self.settings.max_output_tokens
                if limit is None
                else limit_of(msgspec.convert(limit, int | str))
            )
            metadata = msgspec.convert(metadata, dict[str, str] | None)
        except msgspec.ValidationError as error:
            raise Refusal(f"response.create is refused: {error}", param="response") from None
        self._respond(hint, modality, limit, metadata)

    def _cancel(self, event: Incoming) -> None:
        response = self._response
        if response is not None and event.response_id in (None, response.id):
            # Who reports playback and has not heard the end interrupts the playing, though nothing is left to abort.
            playing = response.player.reported and not (response.interrupted or response.over)
            if self._replying or playing:
                self._interrupt(response, None, "client_cancelled")
                return
        raise Refusal("there is no reply to cancel.", "response_cancel_not_active")

    def _truncate(self, event: Incoming) -> None:
        response, end_ms = self._response, event.audio_end_ms
        if response is None or event.item_id != response.item_id:
            raise Refusal("only the newest reply can be truncated.", "item_not_found", "item_id")
        sent_ms = 1000 * response.player.sent_s
        if end_ms is None or not 0 <= end_ms <= sent_ms + 1:
            raise Refusal(f"audio_end_ms lies between 0 and the {sent_ms:.0f} ms sent.", param="audio_end_ms")
        heard_s = end_ms / 1000
        if self._engaged is not None:
            self._interrupt(response, heard_s, "client_cancelled")
        elif response.player.sent_s:
            self._gateway.truncate(self.number, response.turn.turn, heard_s)
        self.send(
            "conversation.item.truncated", item_id=response.item_id, content_index=0, audio_end_ms=end_ms
        )

    def _clear_output(self, event: Incoming) -> None:
        del event
        response = self._response
        if response is None:
            raise Refusal("there is no reply to clear.", "response_cancel_not_active")
        if self._engaged is not None:
            self._interrupt(response, None, "client_cancelled")
        self.send("output_audio_buffer.cleared", response_id=response.id)

    def _playback(self, event: Incoming) -> None:
        response, now = self._response, self.now()
        if event.played_ms < 0:
            raise Refusal(f"played_ms is {event.played_ms}; it counts from 0.", param="played_ms")
        if response is None or event.response_id not in (None, response.id):
            return  # it crossed with what made it out of date
        if response.interrupted or response.over or response.player.first_s is None:
            return
        played_s = min(event.played_ms / 1000, response.player.sent_s)
        response.player.report(played_s, event.playing, now)
        self._gateway.playback_ack(self.number, response.turn.turn, played_s, event.playing, now)
        self._gateway.monitor.view(self.number, now)  # or reports pile up until somebody looks
        if event.done and response.status == "completed":
            self._heard_out(response)

    handlers: ClassVar = {
        "session.update": _session_update,
        "input_audio_buffer.append": _append,
        "input_audio_buffer.commit": _commit,
        "input_audio_buffer.clear": _clear,
        "conversation.item.create": _create_item,
        "conversation.item.truncate": _truncate,
        "conversation.item.delete": _delete_item,
        "response.create": _create_response,
        "response.cancel": _cancel,
        "output_audio_buffer.clear": _clear_output,
        "rehearsal.playback": _playback,
    }

    # Turns.

    @property
    def _replying(self) -> bool:
        return self._response is not None and self._response.status == "in_progress"

    @property
    def _engaged(self) -> Response | None:
        """The reply that is being made or, for all that is known, listened to."""
        response = self._response
        if response is None or response.interrupted or response.over:
            return None
        left_s = response.player.sent_s - response.player.played_s(self.now())
        return response if self._replying or left_s > 0 else None

    def _listen_anew(self) -> None:
        self._buffer = Buffer(self.settings.input_rate, self.house.sounds.kept)
        self._vad: Vad | None = None
        self._unheard = bytearray()
        self._heard_samples = 0

    def _hear(self, vad: Vad, settings: ServerVad, frame: bytes) -> None:
        """The next 20 ms of an open microphone."""
        buffer = self._buffer
        buffer.append(frame)
        self._heard_samples += len(frame) // 2
        change = vad.frame(frame)
        if not vad.speaking and change is None:
            buffer.keep_last(settings.prefix_padding_ms / 1000 + OF_FRAMES * FRAME_S)
        elif change == "started":
            self._spoken_item = self._new_item()
            begun_ms = round(1000 * (self._heard_samples - buffer.samples) / buffer.rate)
            self.send("input_audio_buffer.speech_started", item_id=self._spoken_item, audio_start_ms=begun_ms)
            if settings.interrupt_response and self._engaged:
                self._interrupt(self._engaged, None, "turn_detected")
            self._speech_starts()
        elif change == "stopped" or buffer.seconds + FRAME_S > self.house.longest_s:
            vad.speaking = False
            ended_ms = round(1000 * self._heard_samples / buffer.rate)
            self.send("input_audio_buffer.speech_stopped", item_id=self._spoken_item, audio_end_ms=ended_ms)
            self._commit_as(self._spoken_item)
            self._waits = settings.create_response and self._replying
            if settings.create_response and not self._waits:
                self._respond(Hint(), self.settings.modality, self.settings.max_output_tokens, None)

    def _speech_starts(self) -> None:
        now = self._speaks_since = self.now()
        self._gateway.speech_start(self._turn_of(now), now)

    def _commit_as(self, id: str) -> None:
        """The buffer becomes an item."""
        previous = self._last_item
        self._items.add(id, self._buffer.take())
        self.send("input_audio_buffer.committed", item_id=id, previous_item_id=previous)
        self._tell_item(id, "user", {"type": "input_audio", "transcript": None})

    def _tell_item(self, id: str, role: str, part: dict[str, Any]) -> None:
        item = {
            "id": id,
            "object": "realtime.item",
            "type": "message",
            "role": role,
            "status": "completed",
            "content": [part],
        }
        self.send("conversation.item.added", previous_item_id=self._last_item, item=item)
        self.send("conversation.item.done", previous_item_id=self._last_item, item=item)
        self._last_item = id

    def _respond(
        self, hint: Hint, modality: Modality, limit: int | None, metadata: dict[str, str] | None
    ) -> None:
        """Begin the reply to what was said since the last one."""
        now, said, number = self.now(), self._items.take(), self.number
        text, reply_s = self._lengths.of(hint, modality == "audio", limit)
        turn = self._turn_of(
            now if self._speaks_since is None else self._speaks_since, said, hint, text, reply_s
        )
        response = self._response = Response(self, turn, self._new_item(), metadata)
        self._turns += 1
        self._waits, self._speaks_since = False, None
        self._stop_timer()
        if turn.modality == "audio":
            pcm = b"".join(each.pcm for each in said)
            samples = round(turn.audio_s * self._buffer.rate) if turn.audio_s else 0
            self.house.sounds.put(turn, pcm[-2 * samples :], self._buffer.rate)
        response.announce(self._last_item)
        self._last_item = response.item_id
        self.house.ledger.follow(number, turn.turn)
        self._gateway.commit(turn)

    def _turn_of(
        self,
        begun_s: float,
        said: list[Said] | None = None,
        hint: Hint | None = None,
        output_tokens: int = 0,
        reply_audio_s: float | None = None,
    ) -> Turn:
        """The next turn, as far as it is known."""
        said, hint = said or [], hint or Hint()
        # Of items that together are too long for one sound the end is heard.
        audio_s = min(sum(each.samples for each in said) / self._buffer.rate, self.house.longest_s)
        typed, shown = sum(each.tokens for each in said), hint.visual_tokens or 0
        if audio_s and not self.house.deployment.model.input_tokens_per_s:
            # A model without ears reads what a recogniser in front of it would have made of the sound.
            typed, audio_s = typed + -(-round(audio_s * AUDIO_TOKENS_PER_S * 1000) // 1000), 0.0
        return Turn(
            session=self.number,
            turn=self._turns,
            arrival_s=begun_s,
            modality="audio" if audio_s else "text",
            # Asked for a reply to nothing, a model reads at least the mark that it is its turn.
            input_tokens=hint.input_tokens or max(1, typed + shown),
            audio_s=audio_s or None,
            output_tokens=output_tokens,
            reply_audio_s=reply_audio_s,
            think_s=None,
            barge_in_after_s=None,
            history_tokens=None,
            network_s=0.0,
            visual_tokens=(typed if audio_s else 0) + shown,  # what the model reads beside the sound
            content=hint.content,
        )

    # Ends.

    def _interrupt(
        self, response: Response, heard_s: float | None, reason: str, status: str = "cancelled"
    ) -> None:
        """Its listener has stopped listening after ``heard_s``; None: as far as is known."""
        if heard_s is None:
            heard_s = response.player.played_s(self.now())
        reply = self._gateway.reply(self.number)
        response.interrupted = True
        self._stop_timer()
        cut = self._gateway.barge_in(self.number, heard_s)
        heard, ledger = {"thinker": cut.text, "talker": cut.frames}, self.house.ledger
        if response.status == "completed":
            ledger.cut(response.produced, heard)
            if response.player.reported:
                self.send("rehearsal.heard", response_id=response.id, item_id=response.item_id, heard=heard)
            return
        response.status = "cancelled"
        if reply is not None and reply.turn is response.turn:
            response.prompt_tokens = len(reply.prompt)

        def ended() -> None:
            response.produced = dict(ledger.settle(self.number, response.turn.turn, status))
            ledger.cut(response.produced, heard)
            response.finish("cancelled", reason, heard)

        ledger.when_ended(self.number, response.turn.turn, ended)

    def _completed(self, response: Response) -> None:
        reply, now = self._gateway.reply(self.number), self.now()
        assert reply is not None
        response.prompt_tokens = len(reply.prompt)
        response.produced = dict(self.house.ledger.settle(self.number, response.turn.turn, "completed"))
        response.finish("completed")
        left_s = response.player.sent_s - response.player.played_s(now)
        self._end_of_playback = self.house.loop.call_later(left_s, self._played_out, response)
        if self._waits:
            self._respond(Hint(), self.settings.modality, self.settings.max_output_tokens, None)

    def _played_out(self, response: Response) -> None:
        """A listener that reports nothing will have heard it all by now."""
        if not response.player.reported:
            self._heard_out(response)

    def _heard_out(self, response: Response) -> None:
        response.over = True
        self._gateway.playback_done(self.number, response.turn.turn)

    def _stop_timer(self) -> None:
        if self._end_of_playback is not None:
            self._end_of_playback.cancel()
            self._end_of_playback = None

    def _new_item(self) -> str:
        self._items_made += 1
        return f"item_{self.number}_{self._items_made}"
