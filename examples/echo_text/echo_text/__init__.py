"""A text system with a gateway of its own: the smallest that serves turns (docs/extend.md)."""

from pydantic import Field

from engines.composition import LibraryParams, System
from engines.core.output import StageOutput
from engines.core.request import StageRequest
from engines.models.token_ids import token_ids
from workloads.errors import UserError


class EchoParams(LibraryParams):
    longest: int = Field(200, ge=1, description="the most tokens of an answer")


class EchoGateway:
    def __init__(self, parts, params) -> None:
        self.deployment = parts.deployment
        self.engines = []
        (self._stage,) = parts.deployment.stages.values()
        self._longest = params.longest
        self._listeners, self._said, self._live = {}, {}, {}

    def counters(self):
        return {}  # for the record

    def tasks(self):
        return ()  # coroutines that run while it serves

    def open(self, session, listener) -> None:
        self._listeners[session], self._said[session] = listener, []

    def speech_start(self, turn) -> None: ...

    def commit(self, turn, end_s) -> None:
        count = min(turn.output_tokens, self._longest)
        said = self._said[turn.session]
        if turn.history_tokens is not None:
            said = self._words(turn, "history", turn.history_tokens)
        prompt = said + self._words(turn, "user", turn.input_tokens)
        # Nobody else cuts a prompt to what the stage takes.
        prompt = prompt[-(self._stage.max_model_len - count) :]
        slo = turn.request.slo
        request = StageRequest(
            self._stage.name, turn.session, turn.turn, prompt, count, slo=slo, due_s=slo.first_due_s(end_s)
        )
        engine = self.engines[turn.session % len(self.engines)]
        self._live[turn.session] = engine, request
        engine.submit(request)

    def barge_in(self, session, played_s) -> None:
        if session in self._live:
            engine, request = self._live.pop(session)
            engine.abort(request)
            self._said[session] = request.prompt + request.output

    def reports(self, session, turn, source) -> bool:
        return True

    def playback_done(self, session, turn) -> None: ...

    def close(self, session) -> None:
        self.barge_in(session, 0.0)
        del self._listeners[session], self._said[session]
        for engine in self.engines:
            engine.forget(session)

    # A callback of the step under way may come after an abort: `_live` tells.

    def on_token(self, request, tokens) -> None:
        if request.session in self._live:
            self._listeners[request.session].text(request.turn, tokens)

    def on_finish(self, request) -> None:
        if self._live.pop(request.session, None):
            self._said[request.session] = request.prompt + request.output
            self._listeners[request.session].reply_done(request.turn)

    def _words(self, turn, who, count):
        return token_ids(turn.session, turn.turn, who, count, self.deployment.model.stages[self._stage.name].vocab)


class Echo(System[EchoParams]):
    name, summary, kind, Params = "echo", "each turn answered in text", "turns", EchoParams

    def check_deployment(self, params, deployment) -> None:
        if len(deployment.stages) > 1:
            raise UserError("echo serves deployments of one stage, such as llama_8b_1gpu.")

    def build(self, parts, params):
        gateway, (stage,) = EchoGateway(parts, params), parts.deployment.stages.values()
        for replica in parts.replicas(stage):
            output = StageOutput(replica, parts.recorder, gateway.on_token, gateway.on_finish)
            gateway.engines.append(parts.engine(replica, output))
        return parts.serving(gateway, gateway.engines)


SYSTEMS = (Echo(),)
