"""Prefill of a turn's prompt while its user still speaks (LiveServe section 3: "current-turn prefill").

At each interval of speech the replica that has the session's KV gets the history and the words so far, and the new
sound to encode. Nobody receives the result; the turn itself finds the KV in the prefix cache, in whole blocks. A server
knows how long a user has spoken, not how long they will. Encoded sound stays so, even if its KV is lost before the turn
comes.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from engines.builder import Parts
from engines.core.engine import StageEngine
from engines.core.request import DeviceWork
from engines.systems.liveserve.liveserve_params import KvParams
from engines.turns.hook import Hook
from engines.turns.pipeline import Pipeline
from engines.turns.reply import Progress, Reply, ReplyRequest
from workloads.errors import UserError
from workloads.trace import Turn


@dataclass(slots=True)
class _Speech:
    """One turn's speech. `encoded_s`: seconds encoded by finished requests; `until_s`: including the newest request."""

    turn: Turn
    begin_s: float
    timer: asyncio.TimerHandle | None = None
    encoded_s: float = 0.0
    until_s: float = 0.0
    request: ReplyRequest | None = None
    engine: StageEngine | None = None
    history: list[int] = field(default_factory=list)


class PrefillAhead(Hook):
    """The prefills of all sessions of a pipeline. `counters`: prefills begun, and prefills cut by the end of the
    turn."""

    def __init__(self, pipeline: Pipeline, every_s: float) -> None:
        self._pipeline, self._every_s = pipeline, every_s
        deployment = pipeline.deployment
        self._tokens = deployment.model.whole_tokens
        self._max_tokens = deployment.stages[deployment.entry].max_model_len
        self._speaking: dict[int, _Speech] = {}
        self._begun = 0
        self._loop = asyncio.get_running_loop()
        self.counters: Counter[str] = Counter(prefills_ahead=0, prefills_ahead_cut=0)

    def speaking(self, turn: Turn) -> None:
        self.spoken(turn.session, None)
        speech = self._speaking[turn.session] = _Speech(turn, self._loop.time())
        self._again(speech)

    def spoken(self, session: int, history: list[int] | None) -> float:
        speech = self._speaking.pop(session, None)
        if speech is None:
            return 0.0
        assert speech.timer is not None
        speech.timer.cancel()
        self._take(speech)
        if speech.request is not None:
            assert speech.engine is not None
            speech.engine.abort(speech.request)
            self.counters["prefills_ahead_cut"] += 1
        return speech.encoded_s if speech.history == history else 0.0

    def _again(self, speech: _Speech) -> None:
        speech.timer = self._loop.call_later(self._every_s, self._prefill, speech)

    def _take(self, speech: _Speech) -> None:
        """Count a finished request: it has its token."""
        if speech.request is not None and speech.request.output:
            speech.encoded_s, speech.request = speech.until_s, None

    def _prefill(self, speech: _Speech) -> None:
        turn, said_s = speech.turn, self._loop.time() - speech.begin_s
        self._again(speech)
        self._take(speech)
        engine = self._pipeline.entry(turn.session)
        history, prompt = self._pipeline.egress.said_so_far(turn, self._tokens(said_s))
        if speech.request is not None or engine is None or len(prompt) >= self._max_tokens:
            return
        if speech.history != history:  # of a reply that has been cut meanwhile
            speech.history, speech.encoded_s = history, 0.0
        reply = Reply(turn, prompt, 0, 1, 0, 0, Progress(False, 0))
        begin = len(history) + self._tokens(speech.encoded_s)
        speech.request, speech.engine, speech.until_s = (
            reply.request(
                f"ahead.{self._begun}",
                prompt,
                1,
                work=DeviceWork(said_s - speech.encoded_s, encoded_at=begin),
                speculative=True,
            ),
            engine,
            said_s,
        )
        self._begun += 1
        self.counters["prefills_ahead"] += 1
        engine.submit(speech.request)


def attach(pipeline: Pipeline, parts: Parts, params: KvParams) -> None:
    """Attach prefills if `prefill_ahead_s` asks for them. UserError if nobody speaks, or the turn could not find the KV
    again."""
    if not params.prefill_ahead_s:
        return
    deployment = parts.deployment
    entry = deployment.stages[deployment.entry]
    if parts.audio_encoder is not None:
        raise UserError(
            "prefill_ahead_s is for modelled devices, whose audio encoder takes any piece of a turn; set 0."
        )
    if entry.roles or not entry.prefix_caching or not deployment.model.input_tokens_per_s:
        raise UserError(
            "prefill_ahead_s needs a thinker that hears, keeps a prefix cache and is not divided; set 0, or "
            "prefix_caching=true and another deployment."
        )
    pipeline.attach(PrefillAhead(pipeline, params.prefill_ahead_s))
