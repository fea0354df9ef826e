"""One client's session of turns: the client's input, and the sound of its open microphone."""

from typing import ClassVar, Literal

import msgspec

from engines.endpoint.base_session import appended
from engines.endpoint.lengths import hint_of
from engines.endpoint.listening_session import ListeningSession
from engines.endpoint.protocol import Incoming, Refusal
from engines.endpoint.served_fields import check_served
from engines.endpoint.settings import Modality, limit_of
from engines.endpoint.user_turn import LEAST_S, message_of


class _Response(msgspec.Struct):
    """The fields of a response.create that the server acts upon."""

    conversation: Literal["auto"] | None = None
    output_modalities: list[Modality] | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    metadata: dict[str, str] | None = None


class TurnSession(ListeningSession):
    """Implements `protocol.Connection` for turns."""

    def _session_update(self, event: Incoming) -> None:
        settings = self.settings.updated(event.session or {})
        if settings.input_rate != self.settings.input_rate and (self._buffer.samples or len(self._items)):
            raise Refusal("the input rate changes between turns only; commit or clear before.", param="session")
        before, self.settings = self.settings, settings
        anew = (settings.input_rate, settings.vad, settings.interruption) != (
            before.input_rate,
            before.vad,
            before.interruption,
        )
        if anew:
            self._reset_input()
        self.say_session("session.updated")

    def _append(self, event: Incoming) -> None:
        pcm = appended(event)
        if self.settings.vad is not None:
            self._listen(self.settings.vad, pcm)
            return
        most_s = self.context.longest_s
        if self._buffer.seconds + len(pcm) / 2 / self._buffer.rate > most_s:
            raise Refusal(f"the buffer holds {most_s:g} s of audio; commit or clear it.", "buffer_full", "audio")
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
        role, text, user_item = message_of(event.item)
        assert event.item is not None
        id = event.item.get("id") or self._new_item()
        if not isinstance(id, str) or len(id) > 64:
            raise Refusal("an item's id is a string of at most 64 characters.", param="item.id")
        self._items.add(id, user_item)
        kind = "output_text" if role == "assistant" else "input_text"
        self._tell_item(id, role, {"type": kind, "text": text})

    def _delete_item(self, event: Incoming) -> None:
        if event.item_id is None or event.item_id not in self._items:
            raise Refusal("only items that no reply has read yet can be deleted.", "item_not_found", "item_id")
        self._items.remove(event.item_id)
        self.send("conversation.item.deleted", item_id=event.item_id)

    def _create_response(self, event: Incoming) -> None:
        if self._replying:
            assert self._response is not None
            raise Refusal(
                f"reply {self._response.id} is under way; wait for its end or cancel it.",
                "conversation_already_has_active_response",
            )
        request = event.response or {}
        check_served(request, _Response, "response", "No reply is made.")
        hint, modality = hint_of(request), self.settings.modality
        try:
            wanted = msgspec.convert(request, _Response)
        except msgspec.ValidationError as error:
            raise Refusal(f"response.create is refused: {error}", param="response") from None
        limit = self.settings.max_output_tokens
        if wanted.output_modalities is not None:
            modality = self.settings.allowed(wanted.output_modalities)
        if wanted.max_output_tokens is not None:
            limit = limit_of(wanted.max_output_tokens)
        self._respond(hint, modality, limit, wanted.metadata)

    def _cancel(self, event: Incoming) -> None:
        response = self._response
        if response is not None and event.response_id in (None, response.id):
            # A client that reports playback and has not played the end stops playing, though nothing remains to abort.
            playing = response.playback.reported and not (response.interrupted or response.over)
            if self._replying or playing:
                self._interrupt(response, None, "client_cancelled")
                return
        raise Refusal("there is no reply to cancel.", "response_cancel_not_active")

    def _truncate(self, event: Incoming) -> None:
        response, end_ms = self._response, event.audio_end_ms
        if response is None or event.item_id != response.item_id:
            raise Refusal("only the newest reply can be truncated.", "item_not_found", "item_id")
        sent_ms = 1000 * response.playback.sent_s
        if end_ms is None or not 0 <= end_ms <= sent_ms + 1:
            raise Refusal(f"audio_end_ms lies between 0 and the {sent_ms:.0f} ms sent.", param="audio_end_ms")
        played_s = end_ms / 1000
        if self._engaged is not None:
            self._interrupt(response, played_s, "client_cancelled")
        elif response.playback.sent_s:
            self._gateway.truncate(self.number, response.turn.turn, played_s)
        self.send("conversation.item.truncated", item_id=response.item_id, content_index=0, audio_end_ms=end_ms)

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
            return  # it crossed with the event that made it out of date
        if response.interrupted or response.over or response.playback.first_s is None:
            return
        played_s = min(event.played_ms / 1000, response.playback.sent_s)
        response.playback.report(played_s, event.playing, now)
        self._gateway.playback_ack(self.number, response.turn.turn, played_s, event.playing, now)
        self._gateway.monitor.view(self.number, now)  # or reports pile up until the next look
        if event.done and response.status == "completed":
            self._playback_complete(response)

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
        "rehearsal.silence": ListeningSession._silence,
    }
