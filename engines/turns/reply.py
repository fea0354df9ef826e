"""A reply on its way through the stages of a speaking system, and its requests."""

from dataclasses import dataclass, field
from typing import Any

from engines.core.engine import StageEngine
from engines.core.policy import RequestView
from engines.core.request import StageRequest
from engines.turns.monitor import SessionView
from workloads.trace import Turn


@dataclass(slots=True)
class Progress:
    """Counts that the stages keep of one reply; policies may read them.

    frame_s: seconds of audio per codec frame. text_tokens: produced by the thinker. text_arrived: text tokens that
    reached the talker. frames: codec frames produced by the talker. frames_sent: handed to the vocoder. chunk_end: the
    frame count at which the chunk now being filled goes to it. segments: text tokens of each segment, if the talker
    speaks whole segments; text_voiced: text tokens of finished segments. voiced: the talker has made all its audio, and
    takes no more text. fetched_s: when the talker has the text of its next frame.
    """

    spoken: bool
    chunk_end: int
    frame_s: float = 0.0
    text_tokens: int = 0
    text_arrived: int = 0
    frames: int = 0
    frames_sent: int = 0
    segments: int = 0
    text_voiced: int = 0
    voiced: bool = False
    fetched_s: float = 0.0

    @property
    def text_consumed(self) -> int:
        """Text tokens the talker has taken: one with each frame until the text ends, or the tokens of whole
        segments."""
        return self.text_voiced if self.segments else min(self.frames, self.text_arrived)

    @property
    def steps_to_packet(self) -> int:
        """Steps of the talker until its next audio can leave: one per frame of the chunk, or one for a segment."""
        return 1 if self.segments else max(1, self.chunk_end - self.frames)


@dataclass(slots=True)
class SpeechView(RequestView):
    """A request whose output somebody listens to, with the server's knowledge of the reply and, through client events,
    of its listener. `speculative`: it computes ahead of a turn that the user is still saying; nobody listens."""

    progress: Progress = field(kw_only=True)
    session: SessionView = field(kw_only=True)
    speculative: bool = False

    def audio_s_of_step(self, stage: str) -> float:
        """Return the seconds of audio that a step adds to the reply; at the thinker, the seconds that speak its
        token."""
        if stage == "talker" and not self.progress.segments:
            return self.progress.frame_s
        tokens = self.progress.segments if stage == "talker" else 1
        return tokens * self.session.speech_s_per_token


@dataclass(slots=True, eq=False)
class ReplyRequest(StageRequest):
    """A reply's request at one stage. `name`: with the last frame of a vocoder chunk, or the number of a segment.

    `seen`: the last view that policies had. `new_frames`: frames that its step renders, without the left context of a
    vocoder chunk. `text_end`: the reply's text tokens up to a segment's end.
    """

    reply: "Reply" = field(kw_only=True)
    seen: SpeechView | None = None
    new_frames: int = 0
    text_end: int = 0


@dataclass(slots=True, eq=False)
class Reply:
    """One turn's reply.

    `due_s`: when its first token is due; None: at no time. `user_tokens`: tokens of the user's turns, which the talker
    reads as well. `text_total`, `frames_total`: text tokens and codec frames of the whole reply; no frames for text
    only. `first_token_id`: on a modelled device, text token i of the reply has the id first_token_id + i; `text_ids`:
    the tokens so far. `features`: the sounds in the prompt if the thinker hears them. `text_passed`: all its text has
    left for the client; `frames_passed`: frames of its audio that have. `cancelled`: later results are dropped.
    `talker`: the replica that speaks it. `talker_prompt`, `frame_ids`: ids of the talker's prompt and of the frames so
    far, if talkers keep KV between turns. `routed`: by stage, the replica at which it counts, and its tokens there.
    `live`: by name, its requests that a stage still works on, with the engine. `recorded_frames`: codec frames of the
    recording whose voice it clones.
    """

    turn: Turn
    prompt: list[int]
    user_tokens: int
    text_total: int
    frames_total: int
    first_token_id: int
    progress: Progress
    due_s: float | None = None
    listener: Any = None
    recorded_frames: int = 0
    features: list[Any] = field(default_factory=list)
    text_ids: list[int] = field(default_factory=list)
    text_passed: bool = False
    frames_passed: int = 0
    cancelled: bool = False
    talker: StageEngine | None = None
    talker_prompt: list[int] = field(default_factory=list)
    frame_ids: list[int] = field(default_factory=list)
    routed: dict[str, tuple[int, int]] = field(default_factory=dict)
    live: dict[str, tuple[StageEngine, ReplyRequest]] = field(default_factory=dict)

    def request(self, name: str, prompt: list[int], max_tokens: int, **fields: Any) -> ReplyRequest:
        """Return its request at a stage; `fields`: further ones of it."""
        return ReplyRequest(
            name,
            self.turn.session,
            self.turn.turn,
            prompt,
            max_tokens,
            self.first_token_id,
            reply=self,
            tenant=self.turn.hints.tenant or "",
            **fields,
        )

    def frames_up_to(self, text: int) -> int:
        """Return the codec frames that voice the first `text` text tokens: a listener who has heard them has heard that
        text."""
        return -(-text * self.frames_total // self.text_total)

    def text_heard(self, frames_heard: int) -> int:
        """Return the text tokens voiced within the first `frames_heard` frames: frame f voices token f * tokens /
        frames."""
        if not self.frames_total:
            return 0
        return min(self.progress.text_tokens, frames_heard * self.text_total // self.frames_total)
