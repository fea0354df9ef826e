"""The server's side of a realtime session: turns begin; replies go out and end complete, interrupted or lost."""

from functools import partial
from http import HTTPStatus
from typing import Any

from engines.endpoint.base_session import BaseSession, SessionContext
from engines.endpoint.detokenizer import CONTEXT
from engines.endpoint.lengths import Hint, ReplyLengths
from engines.endpoint.protocol import Outbox, played_tokens
from engines.endpoint.response import Response
from engines.endpoint.settings import Modality, Settings
from engines.endpoint.turn_detection import ServerVad
from engines.endpoint.user_turn import Buffer, Items, UserItem
from engines.turns.gateway import REJECTED, Gateway
from workloads.distributions.speech import AUDIO_TOKENS_PER_S
from workloads.trace import Turn


class RealtimeSession(BaseSession):
    """A realtime session, and the gateway's listener: it calls `text`, `audio`, `reply_done` and `refused`."""

    def __init__(self, context: SessionContext, number: int, outbox: Outbox, gateway: Gateway) -> None:
        speaks, model = context.deployment.speaks, context.deployment.model.name
        settings = Settings(speaks, model, "audio" if speaks else "text", vad=ServerVad())
        super().__init__(context, number, outbox, settings)
        self._gateway = gateway
        self._lengths = ReplyLengths(context.seed, number, context.deployment)
        self._items = Items(context.most_tokens)
        self._last_item: str | None = None
        self._items_made = self._turns = 0
        self._response: Response | None = None
        self._waits = False  # for the reply under way to end, so that its own can begin
        self._reply_hint = Hint()  # of the next reply that the server begins by itself
        self._speaks_since: float | None = None
        self._end_of_playback: Any = None
        self._buffer = Buffer(settings.input_rate, context.audio_store.kept)

    @property
    def busy(self) -> bool:
        return self._replying

    def opened(self) -> None:
        self._gateway.open(self.number, self)
        self.say_session("session.created")

    def closed(self) -> None:
        """End the session. The rest of the reply under way is lost, and counts so."""
        if self._engaged is not None:
            self._interrupt(self._engaged, None, "client_cancelled", "lost")
        self._stop_timer()
        self._gateway.close(self.number)

    # Called by the gateway.

    def text(self, turn: int, tokens: int) -> None:
        response, reply = self._response, self._gateway.reply(self.number)
        assert response is not None and response.turn.turn == turn and reply is not None
        begin = response.text_tokens
        ids = reply.text_ids[max(0, begin - CONTEXT) : begin + tokens]
        text = self.context.detokenizer.text(self.number, begin, ids, tokens)
        if not response.spoken:
            response.text_sent_s = self.context.stats.text_sent(response.committed_s, response.text_sent_s, self.now())
        response.say_text(text, tokens)

    def audio(self, turn: int, audio_s: float) -> None:
        response, now, stats = self._response, self.now(), self.context.stats
        assert response is not None and response.turn.turn == turn
        if response.playback.first_s is None:
            stats.ttfp_s.add(now - response.committed_s)
        stats.audio_sent_s += audio_s
        gap_s = response.playback.send(audio_s, now)
        if gap_s:
            stats.gap_s.add(gap_s)
        response.say_audio()

    def reply_done(self, turn: int) -> None:
        assert self._response is not None
        self.context.stats.when_ended(self.number, turn, partial(self._completed, self._response))

    def refused(self, reason: str, status: HTTPStatus) -> None:
        response = self._response
        assert response is not None
        self.context.stats.settle(self.number, response.turn.turn, "failed")
        response.over = True
        code = "rate_limit_exceeded" if status == REJECTED else "context_length_exceeded"
        response.finish("failed", {"code": code, "message": reason})
        self._respond_next()

    # Turns.

    @property
    def _replying(self) -> bool:
        return self._response is not None and self._response.status == "in_progress"

    @property
    def _engaged(self) -> Response | None:
        """Return the reply that is being made or, for all that is known, listened to."""
        response = self._response
        if response is None or response.interrupted or response.over:
            return None
        left_s = response.playback.sent_s - response.playback.played_s(self.now())
        return response if self._replying or left_s > 0 else None

    def _speech_starts(self) -> None:
        now = self._speaks_since = self.now()
        self._gateway.speech_start(self._turn_of(now))

    def _commit_as(self, id: str) -> None:
        """Make the buffer an item."""
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

    def _respond(self, hint: Hint, modality: Modality, limit: int | None, metadata: dict[str, str] | None) -> None:
        """Begin the reply to the user's items since the last one."""
        now, items, number = self.now(), self._items.take(), self.number
        text, reply_s = self._lengths.of(hint, modality == "audio", limit)
        turn = self._turn_of(now if self._speaks_since is None else self._speaks_since, items, hint, text, reply_s)
        response = self._response = Response(self, turn, self._new_item(), metadata)
        self._turns += 1
        self._waits, self._speaks_since = False, None
        self._stop_timer()
        if turn.modality == "audio":
            pcm = b"".join(item.pcm for item in items)
            samples = round(turn.audio_s * self._buffer.rate) if turn.audio_s else 0
            self.context.audio_store.put(turn, pcm[-2 * samples :], self._buffer.rate)
        response.announce(self._last_item)
        self._last_item = response.item_id
        self.context.stats.follow(number, turn.turn)
        self._gateway.commit(turn, now)

    def _turn_of(
        self,
        begun_s: float,
        items: list[UserItem] | None = None,
        hint: Hint | None = None,
        output_tokens: int = 0,
        reply_audio_s: float | None = None,
    ) -> Turn:
        """Return the next turn, as far as it is known."""
        items, hint = items or [], hint or Hint()
        # If the items together are too long for the audio encoder, their end is encoded.
        audio_s = min(sum(item.samples for item in items) / self._buffer.rate, self.context.longest_s)
        typed, shown = sum(item.tokens for item in items), hint.visual_tokens or 0
        if audio_s and not self.context.deployment.model.input_tokens_per_s:
            # A model without an audio encoder reads the text that a recogniser would have made of the sound.
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
            visual_tokens=(typed if audio_s else 0) + shown,  # tokens read besides the sound
            content=hint.content,
        )

    # Ends.

    def _interrupt(self, response: Response, played_s: float | None, reason: str, status: str = "cancelled") -> None:
        """End a reply whose listener has stopped listening after `played_s`; None: as estimated."""
        if played_s is None:
            played_s = response.playback.played_s(self.now())
        reply = self._gateway.reply(self.number)
        response.interrupted = True
        self._stop_timer()
        cut = self._gateway.barge_in(self.number, played_s)
        played, stats = played_tokens(cut.text, cut.frames), self.context.stats
        if response.status == "completed":
            stats.cut(response.produced, cut.text, cut.frames)
            if response.playback.reported:
                self.send("rehearsal.heard", response_id=response.id, item_id=response.item_id, heard=played)
            return
        response.status = "cancelled"
        if reply is not None and reply.turn is response.turn:
            response.prompt_tokens = len(reply.prompt)

        def ended() -> None:
            response.produced = dict(stats.settle(self.number, response.turn.turn, status))
            stats.cut(response.produced, cut.text, cut.frames)
            response.finish("cancelled", reason, played)

        stats.when_ended(self.number, response.turn.turn, ended)

    def _completed(self, response: Response) -> None:
        reply, now = self._gateway.reply(self.number), self.now()
        assert reply is not None
        response.prompt_tokens = len(reply.prompt)
        if response.playback.sent_s:
            self.context.stats.longest_gap_s.add(response.playback.longest_gap_s)
        response.produced = dict(self.context.stats.settle(self.number, response.turn.turn, "completed"))
        response.finish("completed")
        left_s = response.playback.sent_s - response.playback.played_s(now)
        self._end_of_playback = self.context.loop.call_later(left_s, self._played_out, response)
        self._respond_next()

    def _respond_next(self) -> None:
        """Begin the reply that waits for the end of the one before, if one does."""
        if self._waits:
            self._respond(self._next_hint(), self.settings.modality, self.settings.max_output_tokens, None)

    def _played_out(self, response: Response) -> None:
        """Note that a listener that reports nothing will have heard it all by now."""
        if not response.playback.reported:
            self._playback_complete(response)

    def _playback_complete(self, response: Response) -> None:
        response.over = True
        self._gateway.playback_done(self.number, response.turn.turn)

    def _stop_timer(self) -> None:
        if self._end_of_playback is not None:
            self._end_of_playback.cancel()
            self._end_of_playback = None

    def _next_hint(self) -> Hint:
        hint, self._reply_hint = self._reply_hint, Hint()
        return hint

    def _new_item(self) -> str:
        self._items_made += 1
        return f"item_{self.number}_{self._items_made}"
