"""The server's front: sessions, turns and barge-ins from clients in, text and audio out.

It keeps each session's history as token ids (the part of a reply that the listener heard, not all that was generated),
feeds the monitor, and turns a barge-in into an abort at every stage (LiveServe section 3, "Barge-in handling").
"""

import asyncio
import math
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from engines.core.recorder import Recorder
from engines.deployments import Deployment
from engines.models.token_ids import text_ids, token_ids
from engines.turns.monitor import Ack, Monitor, Reports
from engines.turns.pipeline import Pipeline, Transfer
from engines.turns.reply import Progress, Reply, ReplyRequest, SpeechView
from workloads.columns.jobs import OWN, links
from workloads.trace import Turn


class Listener(Protocol):
    """The client's end of a session: it receives the server's messages. `refused`: its latest turn gets no reply, as
    with this HTTP status: it does not fit, or admission rejects it (`REJECTED`).

    A class with `texts`, a `fast_path.batch_listeners.TellGroup`, gets a decode batch's tokens by one call.
    """

    def text(self, turn: int, tokens: int) -> None: ...

    def audio(self, turn: int, audio_s: float) -> None: ...

    def reply_done(self, turn: int) -> None: ...

    def refused(self, reason: str, status: HTTPStatus) -> None: ...


class Piece(Protocol):
    """A turn's sound as a piece of a prompt: token ids, and the model's own features with their places in it."""

    @property
    def token_ids(self) -> list[int]: ...

    def at(self, offset: int) -> list[Any]: ...


class AudioEncoder(Protocol):
    """The encoder that turns a turn's sound into a piece of a prompt, if the thinker hears
    (`engines.devices.audio_encoder`)."""

    async def encode(self, turn: Turn) -> Piece: ...

    def last(self, token_ids: list[int], features: list[Any], room: int) -> tuple[list[int], list[Any]]:
        """Return the end of a prompt, `room` tokens at most and no sound cut in two."""
        ...


TOO_LONG = "http 400: longer than max_model_len"
"""Reason of a refused turn."""
REJECTED = HTTPStatus.TOO_MANY_REQUESTS


class Cut(NamedTuple):
    """The part that a listener knows of a reply that ended early: text tokens and codec frames."""

    text: int
    frames: int


@dataclass(slots=True)
class _Session:
    """One session. `coming`: committed, and its reply has yet to begin; it ended at `said_s` as scheduled, and
    `encoded_s` seconds of its sound need not be encoded. `reply`: the newest that has begun. `user_tokens`: of each
    of the user's turns. `spoken`: the talker's history, if it has one: these turns and the frames of replies that were
    heard."""

    listener: Listener
    coming: Turn | None = None
    said_s: float = 0.0
    encoded_s: float = 0.0
    history: list[int] = field(default_factory=list)
    features: list[Any] = field(default_factory=list)
    user_tokens: list[int] = field(default_factory=list)
    spoken: list[int] = field(default_factory=list)
    reply: Reply | None = None


class Gateway:
    """The server as clients call it, already behind the network. Implements `engines.turns.pipeline.Egress`.

    `system_tokens`: tokens of one prompt in front of every session's context, beyond a source's own. `begins`: session
    -> tokens that its context begins with instead. `truncate_prompts`: cut prompts that are too long, to their last
    tokens, in place of refusing them.
    """

    def __init__(
        self,
        deployment: Deployment,
        recorder: Recorder,
        transfer: Transfer,
        system_tokens: int = 0,
        truncate_prompts: bool = False,
    ) -> None:
        self.deployment = deployment
        self.monitor = Monitor(deployment.model.speech_s_per_text_token)
        self.recorder = recorder
        self.pipeline = Pipeline(deployment, self, transfer)
        self.audio_encoder: AudioEncoder | None = None
        self.refused_prompts = 0
        self.rejected_turns = 0
        self.truncated_prompts = 0
        self.truncated_replies = 0
        self.sounds_heard = 0
        self.prompt_tokens = 0
        self._vocab = deployment.model.stages[deployment.entry].vocab
        self.system_tokens = system_tokens
        self._system = token_ids(-1, 0, "system", system_tokens, self._vocab)  # of no session
        self.begins: Mapping[int, list[int]] = {}
        self.truncate_prompts = truncate_prompts
        self._sessions: dict[int, _Session] = {}
        self._to_encode: asyncio.Queue[Turn] = asyncio.Queue()
        self._voices: dict[int, None] = {}  # encoded recordings, the longest unused first
        self._loop = asyncio.get_running_loop()

    def open(self, session: int, listener: Listener) -> None:
        self._sessions[session] = _Session(listener, history=self.begins.get(session, self._system))

    def close(self, session: int) -> None:
        """Close a session whose client has gone; its replies end."""
        state = self._sessions.pop(session)
        self._stops_speaking(session)
        if state.reply is not None:
            self.pipeline.abort(state.reply)
        self.monitor.close(session)
        self.pipeline.forget(session)

    def speech_start(self, turn: Turn) -> None:
        """Note that the user of `turn` begins to speak now."""
        self.monitor.speech_start(turn.session, self._loop.time())
        self._expect_turn(turn.session)
        for hook in self.pipeline.hooks:
            hook.speaking(turn)

    def speech_ignored(self, session: int) -> None:
        """Take back a `speech_start` that was no turn: there is no answer, and a reply under way goes on."""
        self.monitor.speech_ignored(session, self._loop.time())
        self._stops_speaking(session)
        entry = self.pipeline.entry(session)
        if entry is not None:
            entry.cancel_expected_turn(session)
        self._publish_view(session)

    def said_so_far(self, turn: Turn, tokens: int) -> tuple[list[int], list[int]]:
        history = self._sessions[turn.session].history
        return history, history + self._token_ids(turn, "user", tokens)

    def _stops_speaking(self, session: int, history: list[int] | None = None) -> float:
        """End the user's speech; returns the seconds of sound that need not be encoded any more."""
        return sum([hook.spoken(session, history) for hook in self.pipeline.hooks])

    def heard_s(self, session: int) -> float:
        """Return the seconds of the newest reply that its listener has heard, as far as the server knows."""
        now = self._loop.time()
        return self.monitor.view(session, now).played(now)

    def commit(self, turn: Turn, end_s: float) -> None:
        """Commit the user's complete turn. Its reply starts after preprocessing, which is real with an `audio_encoder`.

        `end_s`: the planned end of the user's turn, s on the loop's clock; deadlines count from it.
        """
        self.monitor.turn_committed(turn.session, turn.turn, self._loop.time())
        self._publish_view(turn.session)
        state = self._sessions[turn.session]
        state.coming, state.said_s = turn, end_s
        state.encoded_s = self._stops_speaking(turn.session, state.history)
        if self.audio_encoder is not None and _spoken_s(turn):
            self._to_encode.put_nowait(turn)
            return
        overheads, spoken = self.deployment.overheads, turn.modality == "audio"
        after_s = overheads.preprocess_s if spoken else overheads.preprocess_text_s
        after_s = overheads.preprocess_s if after_s is None else after_s
        if overheads.preprocess_s_per_reply:
            replies = sum(engine.load for engine in self.pipeline.engines[self.pipeline.entry_role])
            after_s += overheads.preprocess_s_per_reply * replies
        self._loop.call_later(after_s, self._start, turn)

    async def encode(self) -> None:
        """Encode the sound of committed turns one after the other, for ever; the owner of the task cancels it."""
        assert self.audio_encoder is not None
        while True:
            turn = await self._to_encode.get()
            if turn.session in self._sessions:
                self._start(turn, await self.audio_encoder.encode(turn))

    def reports(self, session: int, turn: int, source: Reports) -> bool:
        """Let `source` report the playback of a reply; its reports are read when they are needed."""
        self.monitor.reports(session, turn, source, self._loop.time())
        return True

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        """Take in a playback report that arrives at `at_s`. Returns how long the player may stand still before the next
        report is news, s."""
        ack = Ack(at_s, turn, played_s, playing)
        if self.monitor.playback_ack(session, ack):
            self._loop.call_at(at_s, self._publish_view, session)
        return self.monitor.patience_s(session, ack)

    def playback_done(self, session: int, turn: int) -> None:
        self.monitor.playback_done(session, turn, self._loop.time())
        self._publish_view(session)

    def barge_in(self, session: int, played_s: float) -> Cut:
        """Note that the user speaks over the reply, after hearing `played_s` seconds of it, or while waiting for it."""
        now, state = self._loop.time(), self._sessions[session]
        self.monitor.barge_in(session, now)
        if state.coming is not None:
            turn, state.coming, cut = state.coming, None, Cut(0, 0)
        elif (reply := state.reply) is None:  # refused, which the listener has yet to hear
            return Cut(0, 0)
        else:
            self.pipeline.abort(reply)
            turn, cut = reply.turn, self._cut(reply, played_s)
            self._remember(state, reply, cut)
            self._truncate(session, state)
        for stage, tokens in {self.deployment.entry: cut.text, "talker": cut.frames}.items():
            self.recorder.event(now, "heard", turn.session, turn.turn, stage, tokens)
        self._expect_turn(session)
        return cut

    def truncate(self, session: int, turn: int, played_s: float) -> bool:
        """Note that only `played_s` seconds of the finished reply to `turn` were heard.

        Returns False when it is too late: a later turn has been committed, and the model reads it with the old history.
        """
        state = self._sessions[session]
        reply = state.reply
        if reply is None or reply.turn.turn != turn or state.coming is not None:
            return False
        self._remember(state, reply, self._cut(reply, played_s))
        self._truncate(session, state)
        return True

    def counters(self) -> dict[str, int]:
        """Return the gateway's counters, and the rounds in which vLLM did not run a request that a policy had let
        run."""
        engines = (engine for replicas in self.pipeline.engines.values() for engine in replicas)
        counters = dict(
            stale_acks=self.monitor.stale_acks,
            truncated_prompts=self.truncated_prompts,
            truncated_replies=self.truncated_replies,
            dryrun_mismatch=sum(engine.unscheduled_in_plan for engine in engines),
        )
        rare = {
            "refused_prompts": self.refused_prompts,
            "rejected_turns": self.rejected_turns,
            "truncated_talker_prompts": self.pipeline.truncated_prompts,
        }
        counters |= {name: count for name, count in rare.items() if count}
        if self._system:
            counters["prompt_tokens"] = self.prompt_tokens
        for hook in self.pipeline.hooks:
            counters |= hook.counters
        return counters | ({"sounds_heard": self.sounds_heard} if self.audio_encoder is not None else {})

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [self.encode()] if self.audio_encoder is not None else []

    def view(self, request: ReplyRequest, now: float) -> SpeechView:
        seen, session = request.seen, self.monitor.view(request.session, now)
        if seen is None or seen.session is not session:
            seen = request.seen = SpeechView(
                request.id,
                request.arrive_s,
                slo=request.slo,
                progress=request.reply.progress,
                session=session,
                speculative=request.speculative,
                prompt_tokens=len(request.prompt),
                max_tokens=request.max_tokens,
                tenant=request.tenant,
                predicted_tokens=request.predicted_tokens,
            )
        seen.due_s = request.due_s
        return seen

    def reply(self, session: int) -> Reply | None:
        """Return the session's newest reply that has begun."""
        return self._sessions[session].reply

    def text(self, reply: Reply, tokens: int) -> None:
        if not reply.cancelled:
            self._sessions[reply.turn.session].listener.text(reply.turn.turn, tokens)

    def audio(self, reply: Reply, frames: int) -> None:
        if reply.cancelled:
            return
        turn, audio_s = reply.turn, frames * self._frame_s
        self.monitor.audio_sent(turn.session, turn.turn, audio_s, self._loop.time())
        self._publish_view(turn.session)
        self._sessions[turn.session].listener.audio(turn.turn, audio_s)

    def reply_done(self, reply: Reply) -> None:
        if reply.cancelled:
            return
        turn, session = reply.turn, self._sessions[reply.turn.session]
        if reply.frames_total:
            spoken_s = reply.frames_total * self._frame_s
            self.monitor.reply_spoken(turn.session, spoken_s, reply.text_total, self._loop.time())
        self._remember(session, reply, Cut(reply.text_total, reply.frames_total))
        self._publish_view(turn.session)
        session.listener.reply_done(turn.turn)

    @property
    def _frame_s(self) -> float:
        assert self.deployment.model.frame_s is not None
        return self.deployment.model.frame_s

    def _cut(self, reply: Reply, played_s: float) -> Cut:
        """Return the part of a reply known to a listener who has heard `played_s` seconds; of a reply in text, the
        whole text so far."""
        if not reply.frames_total:
            return Cut(reply.progress.text_tokens, 0)
        frames = min(reply.progress.frames, int(played_s / self._frame_s + 1e-9))
        return Cut(reply.text_heard(frames), frames)

    def _start(self, turn: Turn, audio: Piece | None = None) -> None:
        session = self._sessions.get(turn.session)
        if session is None:
            return
        model = self.deployment.model
        audio_s = _spoken_s(turn)
        user_tokens = turn.input_tokens
        recorded = 0 if turn.reference_s is None else math.ceil(turn.reference_s / self._frame_s)
        if self.deployment.speech_only:
            # It reads the text that it is to say, or a recording: the text then comes token by token.
            user_tokens = (recorded or turn.output_tokens) + model.talker_prompt_extra_tokens
            audio_s = self._to_hear(turn)
        elif audio_s:
            user_tokens = math.ceil(audio_s * model.input_tokens_per_s) + (turn.visual_tokens or 0)
        user_ids = self._token_ids(turn, "user", user_tokens)
        if audio is not None:
            user_ids = audio.token_ids + user_ids[: turn.visual_tokens or 0]
        text, frames, cut = self._reply_length(turn)
        history, features = session.history, session.features
        if self.deployment.speech_only:
            history, features = [], []
        elif turn.history_tokens not in (None, len(history) - len(self._system)):
            # The source states another context than this session has had: it was cut, or came from elsewhere.
            history, features = self._system + self._stated(turn, turn.history_tokens), []
        if audio is not None:
            features = features + audio.at(len(history))
            self.sounds_heard += 1
        prompt = history + user_ids
        asked = self.pipeline.hooks if session.coming is turn else ()
        if reason := next(filter(None, (hook.rejects(turn, len(prompt)) for hook in asked)), ""):
            self._refuse(turn, len(prompt), reason)
            return
        length = self.deployment.stages[self.deployment.entry].max_model_len
        lag, reply = (model.frame_lag_steps, frames) if self.deployment.speech_only else (0, text)
        if len(prompt) > (room := length - reply - lag) and self.truncate_prompts:
            self.truncated_prompts += 1
            if features:
                assert self.audio_encoder is not None
                prompt, features = self.audio_encoder.last(prompt, features, room)
            else:
                prompt = prompt[-room:]
        elif session.coming is turn:
            # As vLLM's API server: a token must fit behind the prompt, the reply gets what is left, and no request for
            # more tokens than the model's length is taken.
            asked, left = 0 if frames else turn.output_tokens, length - len(prompt) - lag
            if left < 1 or asked > length:
                self._refuse(turn, len(prompt))
                return
            if left < reply:
                cut = True
                text, frames = (text, left) if self.deployment.speech_only else (left, -(-frames * left // text))
        self.truncated_replies += cut
        session.user_tokens.append(len(user_ids))
        spoken: list[int] = []
        if self.pipeline.talkers_remember:
            count = len(user_ids) + model.talker_turn_extra_tokens + model.talker_prompt_extra_tokens
            vocab = model.stages["talker"].vocab
            spoken = session.spoken + token_ids(turn.session, turn.turn, "user to talker", count, vocab)
        if session.coming is not turn:  # interrupted before it could begin: the user's words stay
            if session.reply is None or session.reply.turn.turn < turn.turn:
                session.history, session.features, session.spoken = prompt, features, spoken
            return
        session.coming = None
        read = session.user_tokens[-self.deployment.talker_user_turns :]
        session.reply = Reply(
            turn=turn,
            prompt=prompt,
            user_tokens=min(len(prompt), sum(read)) + model.talker_turn_extra_tokens * len(read),
            text_total=text,
            frames_total=frames,
            first_token_id=self._token_ids(turn, "reply", 1)[0],
            listener=session.listener,
            recorded_frames=recorded,
            progress=Progress(
                frames > 0,
                self.deployment.codec.initial_codec_chunk_frames,
                model.frame_s or 0.0,
                segments=model.segment_tokens,
            ),
            due_s=turn.request.slo.first_due_s(session.said_s),
            features=features,
            talker_prompt=spoken,
        )
        self.prompt_tokens += len(prompt)
        begin = max(0, len(prompt) - len(user_ids))
        if session.encoded_s and history is session.history:
            audio_s = max(0.0, audio_s - session.encoded_s)
            begin = min(len(prompt) - 1, begin + model.whole_tokens(session.encoded_s))
        self.pipeline.start(session.reply, audio_s, begin)

    def _refuse(self, turn: Turn, tokens: int, rejected: str = "") -> None:
        """Refuse the turn, whose prompt has `tokens`; its session stays as it was. `rejected`: why admission rejects
        it; empty: it does not fit."""
        session = self._sessions[turn.session]
        session.coming = session.reply = None
        self.rejected_turns += bool(rejected)
        self.refused_prompts += not rejected
        kind, stage = ("rejected", rejected) if rejected else ("refused", self.deployment.entry)
        self.recorder.event(self._loop.time(), kind, turn.session, turn.turn, stage, tokens)
        session.listener.refused(rejected or TOO_LONG, REJECTED if rejected else HTTPStatus.BAD_REQUEST)

    def _to_hear(self, turn: Turn) -> float:
        """Return the seconds of the recording of a cloned voice, if the talker has to encode it."""
        voice, voices = turn.voice, self._voices
        heard = voice in voices
        if voice is not None and self.deployment.cached_voices:
            voices.pop(voice, None)
            voices[voice] = None
            if len(voices) > self.deployment.cached_voices:
                del voices[next(iter(voices))]
        return 0.0 if turn.reference_s is None or heard else turn.reference_s

    def _stated(self, turn: Turn, tokens: int) -> list[int]:
        """Return `tokens` tokens of context: first the tokens that the turn shares (its session's history or its
        prefix), then tokens that nobody else says."""
        kept: list[int] = []
        if turn.job.prefix == OWN:
            offset = links(turn.job.waits)[0][0] if turn.turn == 0 else 0
            source = self._sessions.get(turn.session + offset)
            begin = len(self._system)
            kept = [] if source is None else source.history[begin : begin + tokens]
        elif turn.job.prefix is not None:
            kept = text_ids(turn.job.prefix, tokens, self._vocab)
        return kept + self._token_ids(turn, "history", tokens)[len(kept) :]

    def _reply_length(self, turn: Turn) -> tuple[int, int, bool]:
        """Return text tokens and codec frames of the reply, within the stages' limits, behind a prompt of one token at
        least; and whether these cut it."""
        stages = self.deployment.stages
        entry = stages[self.deployment.entry]
        text, frames = turn.output_tokens, 0
        if turn.reply_audio_s is not None and self.deployment.speaks:
            frames = max(1, round(turn.reply_audio_s / self._frame_s))
        limits = min(entry.max_tokens, entry.max_model_len - 1), stages["talker"].max_tokens if frames else 0
        return min(text, limits[0]), min(frames, limits[1]), text > limits[0] or frames > limits[1]

    def _expect_turn(self, session: int) -> None:
        """Tell the replicas with the session's KV to get ready for its next turn, as its user speaks."""
        state, pipeline = self._sessions[session], self.pipeline
        if (entry := pipeline.entry(session)) is not None:
            entry.expect_turn(session, state.history, state.features)
        if (talker := pipeline.talker(session)) is not None:
            talker.expect_turn(session, state.spoken, ())

    def _truncate(self, session: int, state: _Session) -> None:
        if (entry := self.pipeline.entry(session)) is not None:
            entry.truncate(session, len(state.history))
        if (talker := self.pipeline.talker(session)) is not None:
            talker.truncate(session, len(state.spoken))

    def _publish_view(self, session: int) -> None:
        now = self._loop.time()
        for engine in (self.pipeline.entry(session), self.pipeline.talker(session)):
            if engine is not None and engine.manager is not None and session in self._sessions:
                engine.manager.changed(self.monitor.view(session, now), now)

    def _remember(self, session: _Session, reply: Reply, cut: Cut) -> None:
        """Set the next turn's context: this turn's prompt and the heard part of the reply."""
        session.history = reply.prompt + reply.text_ids[: cut.text]
        session.features = reply.features
        session.spoken = reply.talker_prompt + reply.frame_ids[: cut.frames]

    def _token_ids(self, turn: Turn, speaker: str, tokens: int) -> list[int]:
        return token_ids(turn.session, turn.turn, speaker, tokens, self._vocab)


def _spoken_s(turn: Turn) -> float:
    """Return the seconds of the user's speech; 0 for a typed turn."""
    return turn.audio_s if turn.modality == "audio" and turn.audio_s else 0.0
