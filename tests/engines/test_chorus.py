"""Text of which all listeners are told at once leaves what it leaves when each is told: the same rows in the same
order."""

import asyncio
from asyncio import TimerHandle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.engine import StageEngine
from engines.core.output import StageOutput
from engines.core.request import StageRequest
from engines.core.together import Told
from engines.core.vllm_adapter.history import Histories, block_hasher
from engines.core.vllm_adapter.requests import make_request
from harness.clocks.clock import VirtualClockLoop, run
from harness.records import log as log_module
from harness.records.log import EventLog
from harness.worker.replay import Replay
from tests.engines.replays import replay
from tests.engines.stage import make_replica
from tests.engines.test_lazy_decode import assert_same
from workloads.registry import make_trace
from workloads.trace import Trace

TEXT = {"modality": "text", "reply": "text"}


def text_trace(seed: int = 0, **params: Any) -> Trace:
    return make_trace("poisson", {**TEXT, "requests": 40, "max_reply_tokens": 200, **params}, seed)


def served(trace: Trace, lazy: bool = True, client: dict[str, Any] | None = None, **server: Any) -> Replay:
    params = {"deployment": "llama_8b_1gpu", "lazy_steps": lazy, **server}
    return replay("vllm_omni_wo", {}, params, client or {}, trace, seed=7)


@pytest.fixture
def told(monkeypatch) -> list[int]:
    """How many were told of a token at once, each time."""
    counts: list[int] = []
    later = EventLog.later

    def counted(
        self: EventLog, clock: Any, times: np.ndarray, kind: str, who: np.ndarray, value: float
    ) -> None:
        counts.append(len(who))
        later(self, clock, times, kind, who, value)

    monkeypatch.setattr(EventLog, "later", counted)
    return counts


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 99),
    rate=st.sampled_from([20.0, 200.0]),
    network_ms=st.sampled_from([0.0, 20.0, 400.0]),
    pool=st.sampled_from([400, 2000, None]),
    patience_s=st.sampled_from([1.0, 3.0, 100.0]),
    interval=st.sampled_from([1, 1, 4]),
    caching=st.booleans(),
)
def test_texts_are_the_same(
    seed: int,
    rate: float,
    network_ms: float,
    pool: int | None,
    patience_s: float,
    interval: int,
    caching: bool,
):
    """Users who lose patience, pools that preempt, delays longer than steps and none."""
    trace = text_trace(seed, rate=rate, network_ms=network_ms)
    server = {"kv_pool_blocks": pool, "stream_interval": interval, "prefix_caching": caching}
    client = {"turn_timeout_s": patience_s}
    assert_same(served(trace, True, client, **server), served(trace, False, client, **server))


def test_most_tokens_are_told_together(told):
    trace = text_trace(rate=200.0)
    tokens = sum(turn.output_tokens for session in trace.sessions for turn in session.turns)
    served(trace)
    assert sum(told) > 0.8 * tokens
    assert len(told) < 0.3 * tokens


def test_users_equally_far_away_hear_in_the_order_of_rows(told):
    """All timers of a step are due at one instant, those of first and last tokens among them."""
    trace = text_trace(rate=200.0)
    turns = [turn for session in trace.sessions for turn in session.turns]
    trace = Trace.from_turns([replace(turn, network_s=0.02) for turn in turns])
    assert_same(served(trace), served(trace, lazy=False))
    assert told


class Ear:
    """Takes tokens of all requests together."""

    def takes(self, request: StageRequest) -> bool:
        return True

    def told(self, told: Told) -> None: ...

    def caught_up(self, request: StageRequest, tokens: int) -> None: ...


async def one_behind_the_other(
    lazy: bool, at_s: Sequence[float], shared: Sequence[int], ear: Ear
) -> list[Any]:
    """A reply under way, and prompts that begin with what has been said of it so far or will be: all that is seen."""
    log, loop = EventLog(), asyncio.get_running_loop()
    replica = make_replica(prefix_caching=True, max_num_seqs=4, blocks=200)
    output = StageOutput(replica, log, lambda *_: None, lambda _: None, listeners=ear)
    engine = StageEngine(replica, output, log, lazy_steps=lazy)
    task = loop.create_task(engine.serve())
    said = [*range(32), *range(100, 400)]
    engine.submit(StageRequest("first", 0, 0, said[:32], 200, first_token_id=100))
    for session, (when_s, tokens) in enumerate(zip(at_s, shared, strict=True), 1):
        own = [*said[:tokens], *range(1000 * session, 1000 * session + 20)]
        loop.call_at(when_s, engine.submit, StageRequest("next", session, 0, own, 30, first_token_id=session))
    await asyncio.sleep(max(at_s))
    while engine.busy:
        await asyncio.sleep(0.01)
    task.cancel()
    return [str(log.events().to_pydict()), str(log.steps().to_pydict())]


def test_a_prompt_that_begins_with_a_reply_under_way_hits_the_same_blocks():
    """vLLM is told of a full block later than it is full, but in time for who could hit it: whenever he comes while one
    fills (0.11 s)."""
    for at_ms in range(100, 212, 4):
        arrivals = [at_ms / 1000, at_ms / 1000 + 0.05]
        seen = [
            run(one_behind_the_other(lazy, arrivals, [232, 64], Ear()), virtual=True)
            for lazy in (True, False)
        ]
        assert seen[0] == seen[1]


@pytest.mark.parametrize("rows", [50, 1000])
def test_row_groups_are_whole(monkeypatch, tmp_path: Path, rows: int):
    """Rows that come later are in their places in files, too."""
    trace = text_trace(rate=200.0)
    monkeypatch.setattr(log_module, "ROW_GROUP", rows)
    monkeypatch.setattr(log_module, "WOVEN", 300)
    server = {"deployment": "llama_8b_1gpu"}
    inside = replay("vllm_omni_wo", {}, server, {}, trace, seed=7)
    folder = tmp_path / "log"
    folder.mkdir()
    outside = replay("vllm_omni_wo", {}, server, {}, trace, seed=7, folder=folder)
    assert outside.log.files()
    assert_same(inside, outside)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_rows_to_come_take_the_places_of_timers(data: st.DataObject):
    """Against a log in which a timer writes each row."""
    loop, reference, log = VirtualClockLoop(), EventLog(), EventLog()
    delay = st.sampled_from([0.25, 0.5, 1.0, 1.5])

    def both(kind: str, session: int) -> None:
        reference.event(loop.time(), kind, session, 0)
        log.event(loop.time(), kind, session, 0)

    timers: dict[tuple[int, int], list[TimerHandle]] = defaultdict(list)

    def later(delays: list[float]) -> None:
        who = [divmod(i, 2) for i in range(len(delays))]
        for turn, each in zip(who, delays, strict=True):
            at_s = loop.time() + each
            timers[turn].append(loop.call_at(at_s, reference.event, at_s, "text", *turn, "", 1))
        log.later(loop, loop.time() + np.array(delays), "text", np.array(who, float), 1)

    def never(turn: tuple[int, int]) -> None:
        for each in timers[turn]:
            each.cancel()
        log.never(*turn)

    for i in range(data.draw(st.integers(1, 8))):
        at_s = data.draw(delay)
        if data.draw(st.booleans()):
            loop.call_at(at_s, both, data.draw(st.sampled_from(["finish", "arrive"])), i)
        else:
            loop.call_at(at_s, later, data.draw(st.lists(delay, min_size=1, max_size=4)))
        if data.draw(st.booleans()):
            made_s = data.draw(st.sampled_from([0.0, at_s - 0.25]))  # whose timers are made first fire first
            loop.call_at(made_s, loop.call_at, at_s, never, divmod(data.draw(st.integers(0, 3)), 2))
        if data.draw(st.booleans()):
            loop.call_at(at_s, len, log)
    loop.call_at(data.draw(st.sampled_from([1.0, 3.0, 9.0])), loop.stop)
    for each in (reference, log):
        each.event(0.0, "first_text", 0, 0)
        each.event(0.0, "text", 0, 0)
    loop.run_forever()
    loop.close()
    assert str(log.events().to_pydict()) == str(reference.events().to_pydict())


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=100), st.integers(0, 5))
def test_a_history_is_hashed_as_vllm_hashes_a_request(tokens: list[int], known: int):
    histories = Histories(8)
    hashes: list[Any] = []
    histories.extend(hashes, tokens[: 8 * known])
    histories.extend(hashes, tokens)
    assert hashes == (block_hasher(8)(make_request("one", tokens, 1, 0.0)) if tokens else [])
