"""Schedulers of ours as stock vLLM's engine core makes and steps them, and what they are given: requests, signals."""

from collections import deque
from typing import Any

from vllm.v1.outputs import ModelRunnerOutput

from engines.core import vllm_adapter as vllm
from engines.stock.arguments import KEY
from engines.stock.scheduler import AsyncScheduler, Scheduler
from engines.turns.signals import Signal
from tests.engines.stage import make_scheduler
from tests.engines.test_identity import digest

SCHEDULERS = [Scheduler, AsyncScheduler]


def make(cls: type, config: dict[str, Any] | None = None, **limits: Any) -> Any:
    """A scheduler of ours as the engine core makes it, on a clock that stands still at 100 s."""

    class Configured(cls):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if config is not None:
                kwargs["vllm_config"].additional_config = {KEY: config}
            super().__init__(*args, **kwargs)
            self.clock = lambda: 100.0

    return make_scheduler(Configured, **limits)


def add(
    scheduler: Any, name: str, prompt: int = 32, output: int = 50, session: str | None = None, priority: int = 0
) -> Any:
    request = vllm.make_request(name, list(range(prompt)), output, 0.0, priority=priority)
    request.session_id = session
    scheduler.add_request(request)
    return request


def signal(scheduler: Any, verb: str, session: str, **fields: Any) -> list[str]:
    ended = scheduler.take_signal(Signal.of({"verb": verb, "session": session, **fields}))
    return [request.request_id for request in ended]


def buffered(scheduler: Any, session: str) -> None:
    """The session's reply has a listener, and its first audio is out and unheard."""
    signal(scheduler, "turn_committed", session, turn=0)
    signal(scheduler, "audio_sent", session, turn=0, seconds=0.3)
    signal(scheduler, "playback_ack", session, turn=0, seconds=0.0, playing=False)


HELD_BY_LEAD = {"speech_s_per_text_token": 1.0, "engine_params": {"thinker_alpha": 1.0, "pacing": "always"}}
"""With the default weights a lead alone holds no request at the thinker."""


class Pipelined:
    """Schedules a step before the one under way is known, as the engine core does with asynchronous scheduling."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.under_way: deque[tuple[Any, ModelRunnerOutput]] = deque()
        self.digests: list[dict[str, Any]] = []
        self.tokens: dict[str, int] = {}

    def step(self) -> set[str]:
        output = self.scheduler.schedule()
        self.digests.append(digest(output))
        names = list(output.num_scheduled_tokens)
        sampled = [[] if self.scheduler.requests[name].is_prefill_chunk else [7] for name in names]
        result = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled_token_ids=sampled)
        self.under_way.append((output, result))
        if len(self.under_way) == 2:
            self.land()
        return set(names)

    def land(self) -> None:
        """The older step's tokens arrive."""
        for outputs in self.scheduler.update_from_output(*self.under_way.popleft()).values():
            for out in outputs.outputs:
                self.tokens[out.request_id] = self.tokens.get(out.request_id, 0) + len(out.new_token_ids)
