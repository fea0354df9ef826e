"""The front: questions in; passages to the reranker; the best of them to the generator; text out."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engines.builder import Parts
from engines.core.engine import StageEngine
from engines.core.policy import RequestView
from engines.core.request import StageRequest
from engines.core.router import Router
from engines.deployments import Deployment
from engines.models.token_ids import token_ids
from my_system.params import RagParams
from workloads.trace import Turn

RERANKER, GENERATOR = "reranker", "generator"


class Asker(Protocol):
    """The client's end of a question: what the server sends it."""

    def scored(self) -> None: ...

    def text(self, tokens: int) -> None: ...

    def done(self) -> None: ...


@dataclass(slots=True, eq=False)
class Question:
    """One question. `asked_s`: when that was scheduled; `left`: passages without a score; `live`: its requests that a
    stage still works on."""

    turn: Turn
    asked_s: float
    asker: Asker
    passages: list[int]
    left: int
    live: dict[str, tuple[StageEngine, "RagRequest"]] = field(default_factory=dict)
    gone: bool = False


@dataclass(slots=True, eq=False)
class RagRequest(StageRequest):
    """A question's request at one stage; `replica`: where the router sent it."""

    question: Question = field(kw_only=True)
    replica: int = 0


@dataclass(slots=True)
class RagView(RequestView):
    """What our policies see besides: `left`, passages of the request's question without a score."""

    left: int = field(kw_only=True)


def view(request: RagRequest, now: float) -> RagView:
    """A request as policies see it; vLLM's scheduler fills in the rest."""
    return RagView(request.id, request.arrive_s, request.due_s, request.slo, left=request.question.left)


def passages_of(turn: Turn, passage_tokens: int) -> list[int]:
    """Lengths in tokens of the passages that the retrieved text is cut into; only the last may be shorter."""
    whole, rest = divmod(turn.history_tokens or 0, passage_tokens)
    return [passage_tokens] * whole + ([rest] if rest else [])


class Gateway:
    """What clients call, already behind the network. See `engines.builder.Gateway`."""

    def __init__(self, parts: Parts, params: RagParams) -> None:
        self.deployment: Deployment = parts.deployment
        self.engines: dict[str, Sequence[StageEngine]] = {}
        self.router: Router
        self._params = params
        self._stream: Callable[[str], np.random.Generator] = parts.stream
        self._later = asyncio.get_running_loop().call_later
        self._questions: dict[int, Question] = {}

    def ask(self, turn: Turn, asked_s: float, asker: Asker) -> None:
        """A question has come; the search for what could answer it takes a moment."""
        passages = passages_of(turn, self._params.passage_tokens)
        question = self._questions[turn.session] = Question(turn, asked_s, asker, passages, len(passages))
        self._later(self.deployment.overheads.preprocess_s, self._score, question)

    def hang_up(self, turn: Turn) -> None:
        """Nobody waits for the answer any more."""
        question = self._questions.get(turn.session)
        if question is not None:
            for engine, request in question.live.values():
                engine.abort(request)
                self._leave(request)
            self._over(question)

    def counters(self) -> Mapping[str, int]:
        return {}

    def tasks(self) -> Sequence:
        return ()

    def on_token(self, request: RagRequest, tokens: int) -> None:
        """A step produced a token: of the generator it is text."""
        if request.name == GENERATOR:
            request.question.asker.text(tokens)

    def on_finish(self, request: RagRequest) -> None:
        """A request has ended by itself."""
        question = request.question
        del question.live[request.name]
        self._leave(request)
        if request.name == GENERATOR:
            question.asker.done()
            self._over(question)
            return
        question.left -= 1
        if not question.left:
            question.asker.scored()
            self._later(self.deployment.overheads.hop_s, self._generate, question)

    def _score(self, question: Question) -> None:
        if question.gone:
            return
        asked = self._words(question, RERANKER, "question", question.turn.input_tokens)
        for i, length in enumerate(question.passages):
            prompt = asked + self._words(question, RERANKER, f"passage {i}", length)
            replica = self.router.route(question.turn.session, prompt)
            self._submit(question, f"{RERANKER}.{i}", RERANKER, replica, prompt, 1)

    def _generate(self, question: Question) -> None:
        if question.gone:
            return
        # A modelled reranker has no opinion. Drawn from a stream of its own, the best are the same under any order.
        scores = self._stream(f"scores/{question.turn.session}").random(len(question.passages))
        prompt: list[int] = []
        for i in np.argsort(-scores)[: self._params.kept].tolist():
            prompt += self._words(question, GENERATOR, f"passage {i}", question.passages[i])
        prompt += self._words(question, GENERATOR, "question", question.turn.input_tokens)
        self._submit(question, GENERATOR, GENERATOR, 0, prompt, question.turn.output_tokens)

    def _submit(self, question: Question, name: str, stage: str, replica: int, prompt: list[int], tokens: int) -> None:
        turn = question.turn
        request = RagRequest(
            name,
            turn.session,
            turn.turn,
            prompt,
            tokens,
            slo=turn.request.slo,
            due_s=turn.request.slo.first_due_s(question.asked_s),
            question=question,
            replica=replica,
        )
        engine = self.engines[stage][replica]
        question.live[name] = engine, request
        engine.submit(request)

    def _leave(self, request: RagRequest) -> None:
        if request.name != GENERATOR:
            self.router.done(request.replica)

    def _over(self, question: Question) -> None:
        """Nothing of it is to come; `gone` stops what a timer may still begin."""
        session, question.gone = question.turn.session, True
        del self._questions[session]
        for engine in (engine for engines in self.engines.values() for engine in engines):
            engine.forget(session)
        self.router.forget(session)

    def _words(self, question: Question, stage: str, what: str, tokens: int) -> list[int]:
        vocab = self.deployment.model.stages[stage].vocab
        return token_ids(question.turn.session, question.turn.turn, what, tokens, vocab)
