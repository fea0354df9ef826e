"""A request of one stage, as the kernel and its devices see it."""

from dataclasses import dataclass, field
from struct import pack
from typing import Any

from workloads.columns.classes import Slo

NO_SLO = Slo()


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """A request's work for its device, besides tokens.

    `audio_s`: input audio to encode with the prompt. `image_tokens`: tokens of the prompt that are an image to encode
    with it; 0: none, or an encoded one. `encoded_at`: position in the context at which these begin: the step that
    computes it needs them encoded, as in vLLM. `chunk_starts`: positions, ascending; `audio_s` seconds of input audio
    begin at each, if it streams in. `rendered_frames`: frames of audio that its step decodes. `hands_over`: the hidden
    states of its prompt go to another stage.
    """

    audio_s: float = 0.0
    image_tokens: int = 0
    encoded_at: int = 0
    chunk_starts: list[int] = field(default_factory=list)
    rendered_frames: int = 0
    hands_over: bool = False


NO_WORK = DeviceWork()


@dataclass(slots=True, eq=False)
class StageRequest:
    """One request of one stage. AssertionError for fields that contradict each other.

    For vLLM and devices. `name`: the stage, with a suffix if a turn has several requests of a stage. `prompt`: token
    ids. `max_tokens`: tokens it produces, exactly. `first_token_id`: the first id of a modelled device's output; the
    ids count up from it. `tokens_per_output`: production tokens (text tokens, codec frames) per token. `features`: the
    sounds in the prompt, if the model hears them. `work`: begins within the prompt.

    For policies. `slo`: deadlines. `due_s`: when its next token is due, s on the run's clock; None: it has no deadline.
    The caller sets it for the first token (`Slo.first_due_s`), as it knows when the user asked. `speculative`: it
    computes ahead of a turn that the user is still saying; neither client nor log learns of it. `background`: nobody
    waits for it (`RequestClass.backlog`), and its abort is logged with the computed tokens of its prompt. Never both.
    `tenant`, `predicted_tokens`: hints of the trace (`workloads.columns.hints`).

    State. `produced`: production tokens so far, including those of a step in which it was aborted; `streamed`:
    production tokens passed on, never more; `output`: token ids, as delivered. `log_key`: session and turn as two
    doubles, as the log's rows hold them.
    """

    name: str
    session: int
    turn: int
    prompt: list[int]
    max_tokens: int
    first_token_id: int = 0
    tokens_per_output: int = 1
    features: list[Any] = field(default_factory=list)
    work: DeviceWork = NO_WORK
    slo: Slo = NO_SLO
    due_s: float | None = None
    speculative: bool = False
    background: bool = False
    tenant: str = ""
    predicted_tokens: int | None = None
    id: str = field(init=False)
    log_key: bytes = field(init=False, repr=False)
    arrive_s: float = field(init=False, default=0.0)
    started: bool = field(init=False, default=False)
    produced: int = field(init=False, default=0)
    streamed: int = field(init=False, default=0)
    output: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        assert self.max_tokens >= 0 and self.tokens_per_output > 0 and not (self.speculative and self.background)
        assert 0 <= self.work.encoded_at <= len(self.prompt)
        self.log_key = pack("dd", self.session, self.turn)
        self.id = f"{self.session}.{self.turn}.{self.name}"

    def fake_token_id(self, vocab: int) -> int:
        """Return the id that a modelled device gives its next token."""
        return (self.first_token_id + self.produced) % vocab

    def arrived(self, now: float) -> None:
        self.arrive_s = now

    def delivered(self, now: float) -> None:
        """Note a token; from now on the deadline is the time between tokens."""
        deadline_s = self.slo.tbt_deadline_s
        self.due_s = None if deadline_s is None else now + deadline_s
