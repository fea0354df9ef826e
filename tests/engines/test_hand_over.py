"""Prefill replicas hand the KV of a request to decode replicas through vLLM's connector interface."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.core import vllm_adapter as vllm
from engines.core.engine import StageEngine
from engines.core.fast_path.decode_fast_path import path_of
from engines.core.output import StageOutput
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.stage import Stage
from engines.devices.fabric import Fabric, Port
from engines.devices.hardware import load_gpu
from engines.devices.stage import VirtualStage
from engines.devices.virtual import VirtualGpu
from harness.clocks.clock import run
from harness.events.log import EventLog
from tests.engines import replays
from tests.engines.stage import BLOCK_BYTES, TALKER, make_stage
from tests.waiting import in_virtual_time
from workloads.registry import make_trace

BANDWIDTH = 1000 * BLOCK_BYTES
LATENCY_S, DECISION_S = 0.001, 0.0005


class Bench:
    """A prefill and a decode replica, and whatever goes from one to the other."""

    def __init__(self, prefill_blocks: int = 200, decode_blocks: int = 200, lazy: bool = True) -> None:
        self.log = EventLog()
        self.loop = asyncio.get_running_loop()
        self.fabric = Fabric(LATENCY_S)
        self.sent: list[StageRequest] = []
        self.finished: dict[str, float] = {}
        roles = {"prefill": (0,), "decode": (1,)}
        stage = replace(make_stage(), gpus=((0,), (1,)), roles=roles)
        self.prefill, self.decode = (
            self._engine(replace(stage, kv_blocks=blocks).as_role(role), i, lazy)
            for i, (role, blocks) in enumerate((("prefill", prefill_blocks), ("decode", decode_blocks)))
        )
        self.at: dict[str, StageEngine] = {}
        self.tasks = [asyncio.create_task(engine.serve()) for engine in (self.prefill, self.decode)]

    def _engine(self, stage: Stage, index: int, lazy: bool) -> StageEngine:
        device = VirtualStage(TALKER, VirtualGpu(load_gpu("h200")))
        scheduler = vllm.make_scheduler(stage, vllm.StageScheduler)
        replica = Replica(stage, index, scheduler, device, port=Port(BANDWIDTH), fabric=self.fabric)
        prefilled = None if index else self._prefilled
        output = StageOutput(replica, self.log, lambda *_: None, self._finish, on_prefilled=prefilled)
        return StageEngine(replica, output, self.log, path=path_of(replica, lazy))

    def submit(self, session: int, prompt: int, output: int) -> StageRequest:
        request = StageRequest("talker", session, 0, [0] * prompt, output)
        self.at[request.id] = self.prefill
        self.prefill.submit(request)
        self.sent.append(request)
        return request

    def _prefilled(self, request: StageRequest) -> None:
        self.prefill.keep(request)
        self.loop.call_later(DECISION_S, self._hand_over, request)

    def _hand_over(self, request: StageRequest) -> None:
        if self.at.pop(request.id, None) is not None:
            self.at[request.id] = self.decode
            self.decode.take_over(request, self.prefill)

    def abort(self, request: StageRequest) -> None:
        engine = self.at.pop(request.id, None)
        if engine is not None:
            engine.abort(request)

    def _finish(self, request: StageRequest) -> None:
        self.at.pop(request.id, None)
        self.finished[request.id] = self.loop.time()

    async def settle(self) -> None:
        while self.at or self.prefill.busy or self.decode.busy:
            await asyncio.sleep(0.01)
        for task in self.tasks:
            task.cancel()
        for engine in (self.prefill, self.decode):
            assert engine.scheduler.free_blocks == engine.scheduler.allocatable_blocks
            assert not engine.scheduler.requests and not engine.requests

    def events(self, kind: str) -> list[float]:
        """Times of this kind of event, s."""
        events = self.log.events().to_pandas()
        return events.loc[events["kind"] == kind, "t"].tolist()

    def tokens(self, replica: int, column: str = "tokens") -> int:
        steps = self.log.steps().to_pandas()
        return steps.loc[steps["replica"] == replica, column].sum()


def served(*requests: tuple[Any, ...], **limits: Any) -> Bench:
    """Serve requests of (prompt tokens, output tokens, arrival in s, s from then to an abort), in sessions 0, 1, ..."""

    async def one(made: Bench, session: int, prompt: int, output: int, at_s: float = 0.0, abort_s: float | None = None):
        await asyncio.sleep(at_s)
        request = made.submit(session, prompt, output)
        if abort_s is not None:
            await asyncio.sleep(abort_s)
            made.abort(request)

    async def main() -> Bench:
        made = Bench(**limits)
        await asyncio.gather(*(one(made, session, *request) for session, request in enumerate(requests)))
        await asyncio.wait_for(made.settle(), 600)
        return made

    return run(main(), virtual=True)


def test_the_first_token_comes_from_the_prefill_replica_and_the_others_after_the_transfer():
    made = served((640, 5))
    first_s, second_s, *others = made.events("token")
    assert len(others) == 3
    assert [len(made.events(kind)) for kind in ("arrive", "start", "finish")] == [1, 1, 1]
    [load_s], [loaded_s] = made.events("load_start"), made.events("load_end")
    assert load_s == pytest.approx(first_s + DECISION_S)
    # The blocks of the prompt: the first token's KV is computed where the others are.
    assert loaded_s == pytest.approx(load_s + LATENCY_S + 40 / 1000)
    assert second_s > loaded_s
    assert (made.tokens(0), made.tokens(1, "prefill_tokens")) == (640, 0)


def test_a_request_of_one_token_stays_at_the_prefill_replica():
    made = served((100, 1))
    assert set(made.log.steps().to_pandas()["replica"]) == {0}


def test_a_request_preempted_at_the_decode_replica_computes_its_context_again():
    made = served((320, 200), (320, 200), decode_blocks=50)
    assert len(made.events("preempt")) >= 1
    assert len(made.events("load_start")) == 2  # once for each request: the prefill replica has freed its blocks
    assert made.tokens(1, "prefill_tokens") > 320


@pytest.mark.parametrize(
    ("others", "begin", "end"),
    [
        ([], "arrive", "token"),  # prefill
        ([], "token", "load_start"),  # kept by the prefill replica
        ([], "load_start", "load_end"),  # on its way
        ([], "load_end", "finish"),  # decoding
        ([(560, 100)], "load_end", "finish"),  # waiting for blocks: 35 of 44 are in use
    ],
)
def test_an_abort_in_any_phase_leaves_both_pools_empty(others: list[tuple[int, int]], begin: str, end: str):
    """The abort comes half-way between two events of an undisturbed run."""
    alone = served(*(others or [(560, 20)]))
    abort_s = (alone.events(begin)[0] + alone.events(end)[0]) / 2
    made = served(*others, (560, 20, 0.0, abort_s), decode_blocks=45)
    assert made.sent[-1].id not in made.finished
    assert len(made.events("abort")) == 1


REQUEST = st.tuples(st.integers(1, 700), st.integers(1, 60), st.floats(0, 0.2), st.none() | st.floats(0, 0.6))


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(REQUEST, min_size=1, max_size=12), st.integers(50, 120), st.integers(50, 120), st.booleans())
def test_no_block_is_lost_with_random_requests_and_aborts(requests: list[Any], prefill: int, decode: int, lazy: bool):
    made = served(*requests, prefill_blocks=prefill, decode_blocks=decode, lazy=lazy)
    for request in made.sent:
        *_, abort_s = requests[request.session]
        if request.id in made.finished:
            assert request.produced == request.max_tokens == len(request.output)
        else:
            assert abort_s is not None and request.produced <= request.max_tokens


@pytest.mark.parametrize(
    ("flows", "ended_s"),
    [
        ([("A", "X", 1000, 0)], [10]),
        ([("A", "X", 1000, 0), ("B", "Y", 1000, 0)], [10, 10]),
        ([("A", "X", 1000, 0), ("A", "Y", 1000, 0)], [20, 20]),
        ([("A", "X", 1000, 0), ("B", "X", 1000, 0)], [20, 20]),
        ([("A", "B", 1000, 0), ("B", "A", 1000, 0)], [10, 10]),  # a port has its bandwidth in each direction
        ([("A", "X", 500, 0), ("A", "Y", 1000, 0)], [10, 15]),  # 500 bytes each until 10 s, then 500 alone
        ([("A", "X", 1000, 0), ("A", "Y", 1000, 5)], [15, 20]),  # 500 bytes alone until 5 s
        # Three flows share port A at 33 bytes/s, so the flow from B has the other 67 bytes/s of port Z.
        ([("A", "X", 1000, 0), ("A", "Y", 1000, 0), ("A", "Z", 1000, 0), ("B", "Z", 1000, 0)], [30, 30, 30, 15]),
    ],
)
@in_virtual_time
async def test_flows_share_the_bandwidth_of_their_ports(flows: list[tuple[str, str, int, float]], ended_s: list[float]):
    """Flows of (source, target, bytes, begin in s) between ports of 100 bytes/s."""
    loop, fabric, ends_s = asyncio.get_running_loop(), Fabric(0.0), {}
    ports = {name: Port(100.0) for name in "ABXYZ"}
    for i, (source, target, size, at_s) in enumerate(flows):
        ended = partial(lambda i: ends_s.__setitem__(i, loop.time()), i)
        loop.call_at(at_s, fabric.send, ports[source], ports[target], size, ended)
    await asyncio.sleep(100.0)
    assert [ends_s[i] for i in range(len(flows))] == pytest.approx(ended_s)


def test_divided_replicas_answer_every_request_and_repeat_a_run_exactly():
    trace = make_trace("novel", {"requests": 30, "rate": 6.0, "output_mean": 80.0}, 3)
    server = {"deployment": "llama_8b_h100"}
    first, again = (replays.run(trace, "vllm_omni_wo", server=server, prefill=2, decode=1) for _ in range(2))
    replays.assert_same(first, again)
    events = first.events.to_pandas()
    assert (events["kind"] == "turn_done").sum() == 30
    tokens = events[events["kind"] == "token"].groupby("session")["value"].sum()
    assert (tokens == [session.turns[0].output_tokens for session in trace.sessions]).all()
