"""KV handed from prefill to decode replicas, through vLLM's connector interface: nothing is lost, on either side."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.core import vllm_adapter as vllm
from engines.core.engine import StageEngine
from engines.core.fast_path.decode_fast_path import path_of
from engines.core.output import StageOutput
from engines.core.replica import Replica
from engines.core.request import StageRequest
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
LATENCY_S = 0.001


class Bench:
    """A prefill and a decode replica, and whatever goes from one to the other."""

    def __init__(self, prefill_blocks: int = 200, decode_blocks: int = 200, lazy: bool = True) -> None:
        self.log = EventLog()
        self.loop = asyncio.get_running_loop()
        self.fabric = Fabric(LATENCY_S)
        self.finished: dict[str, float] = {}
        roles = {"prefill": (0,), "decode": (1,)}
        stage = replace(make_stage(), gpus=((0,), (1,)), roles=roles)
        self.prefill, self.decode = (
            self._engine(replace(stage, kv_blocks=blocks).as_role(role), i, lazy)
            for i, (role, blocks) in enumerate((("prefill", prefill_blocks), ("decode", decode_blocks)))
        )
        self.at: dict[str, StageEngine] = {}
        self.tasks = [asyncio.create_task(engine.serve()) for engine in (self.prefill, self.decode)]

    def _engine(self, stage, index: int, lazy: bool) -> StageEngine:
        device = VirtualStage(TALKER, VirtualGpu(load_gpu("h200")))
        scheduler = vllm.make_scheduler(stage, vllm.StageScheduler)
        replica = Replica(stage, index, scheduler, device, port=Port(BANDWIDTH), fabric=self.fabric)
        output = StageOutput(
            replica, self.log, lambda *_: None, self._finish, on_prefilled=self._prefilled if not index else None
        )
        return StageEngine(replica, output, self.log, path=path_of(replica, lazy))

    def submit(self, session: int, prompt: int, output: int) -> StageRequest:
        request = StageRequest("talker", session, 0, [0] * prompt, output)
        self.at[request.id] = self.prefill
        self.prefill.submit(request)
        return request

    def _prefilled(self, request: StageRequest) -> None:
        self.prefill.keep(request)
        self.loop.call_later(0.0005, self._hand_over, request)

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

    def kinds(self, request: StageRequest) -> dict[str, list[float]]:
        """When what happened to it."""
        events = self.log.events().to_pandas()
        of = events[events["session"] == request.session]
        return {str(kind): list(rows["t"]) for kind, rows in of.groupby("kind", observed=True)}

    def check_empty(self) -> None:
        for engine in (self.prefill, self.decode):
            assert engine.scheduler.free_blocks == engine.scheduler.allocatable_blocks
            assert not engine.scheduler.requests and not engine.requests


def bench(scenario, **limits) -> Bench:
    """Run `scenario(bench)` to its end, and check that both pools are as they were."""

    async def main() -> Bench:
        made = Bench(**limits)
        await scenario(made)
        await asyncio.wait_for(made.settle(), 600)
        made.check_empty()
        return made

    return run(main(), virtual=True)


def test_vllm_is_told_which_replica_hands_over_and_which_takes():
    async def scenario(made: Bench) -> None:
        for engine, hands_over in ((made.prefill, True), (made.decode, False)):
            role = engine.scheduler.vllm_config.kv_transfer_config
            assert (role.is_kv_producer, role.is_kv_consumer) == (hands_over, not hands_over)

    bench(scenario)


def test_the_first_token_comes_from_the_prefill_replica_and_the_others_after_the_transfer():
    async def scenario(made: Bench) -> None:
        made.request = made.submit(1, 640, 5)  # type: ignore[attr-defined]

    made = bench(scenario)
    request = made.request  # type: ignore[attr-defined]
    kinds = made.kinds(request)
    steps = made.log.steps().to_pandas()
    assert len(kinds["token"]) == request.produced == 5
    assert len(kinds["arrive"]) == len(kinds["start"]) == len(kinds["finish"]) == 1
    first, second = kinds["token"][:2]
    assert kinds["load_start"][0] == pytest.approx(first + 0.0005)
    # The blocks of the prompt: the first token's KV is computed where the others are.
    assert kinds["load_end"][0] == pytest.approx(kinds["load_start"][0] + LATENCY_S + 40 / 1000)
    assert second > kinds["load_end"][0]
    assert steps[steps["replica"] == 1]["prefill_tokens"].sum() == 0
    assert steps[steps["replica"] == 0]["tokens"].sum() == 640


def test_a_request_of_one_token_goes_nowhere():
    async def scenario(made: Bench) -> None:
        made.submit(1, 100, 1)

    made = bench(scenario)
    assert list(made.finished) == ["1.0.talker"]
    assert set(made.log.steps().to_pandas()["replica"]) == {0}


def test_the_prefill_replica_keeps_blocks_until_they_are_sent_and_then_no_longer():
    free = []

    async def scenario(made: Bench) -> None:
        request = made.submit(1, 640, 50)
        while request.id not in made.decode.requests:
            await asyncio.sleep(0.0001)
        free.append(made.prefill.scheduler.free_blocks)
        await asyncio.sleep(LATENCY_S + 0.042)
        free.append(made.prefill.scheduler.free_blocks)
        assert request.id in made.decode.requests

    bench(scenario)
    assert free == [199 - 40, 199]


def test_a_full_decode_pool_holds_requests_back_in_the_prefill_pool():
    async def scenario(made: Bench) -> None:
        for session in range(6):
            made.submit(session, 480, 40)

    made = bench(scenario, decode_blocks=40)
    assert len(made.finished) == 6 and len(set(made.finished.values())) == 6  # one after the other


def test_policies_see_that_a_request_has_one_token_left_to_compute():
    views = []

    async def scenario(made: Bench) -> None:
        made.submit(2, 560, 100)
        waiting = made.submit(1, 560, 20)
        while waiting.id not in made.decode.requests:
            await asyncio.sleep(0.0001)
        views.extend(made.decode.view_now(frozenset()).requests)

    bench(scenario, decode_blocks=45)
    [waiting] = [view for view in views if view.id.startswith("1.")]
    assert (waiting.running, waiting.tokens, waiting.new, waiting.blocks) == (False, 561, 1, 0)


def test_preempted_by_a_full_pool_a_request_computes_its_context_again():
    async def scenario(made: Bench) -> None:
        for session in (1, 2):
            made.submit(session, 320, 200)

    made = bench(scenario, decode_blocks=50)
    events, steps = made.log.events().to_pandas(), made.log.steps().to_pandas()
    assert (events["kind"] == "preempt").sum() >= 1
    assert (events["kind"] == "load_start").sum() == 2  # what it came from is gone
    assert steps[steps["replica"] == 1]["prefill_tokens"].sum() > 320
    assert len(made.finished) == 2


@pytest.mark.parametrize(
    ("phase", "when"),
    [
        ("waiting to be prefilled", lambda made, request: True),
        ("kept", lambda made, request: request.produced == 1 and request.id not in made.prefill.requests),
        ("waiting for blocks", lambda made, request: request.id in made.decode.requests),
        ("loading", lambda made, request: request.id in made.decode.scheduler.loading),
        ("decoding", lambda made, request: request.produced > 2),
    ],
)
def test_an_abort_leaves_both_pools_empty(phase: str, when):
    async def scenario(made: Bench) -> None:
        if phase == "waiting for blocks":
            made.submit(2, 560, 100)
        request = made.submit(1, 560, 20)
        while not when(made, request):
            await asyncio.sleep(0.0001)
        made.abort(request)
        made.aborted = request  # type: ignore[attr-defined]

    made = bench(scenario, decode_blocks=45)
    request = made.aborted  # type: ignore[attr-defined]
    assert request.id not in made.finished and len(made.kinds(request)["abort"]) == 1


requests = st.lists(
    st.tuples(
        st.integers(1, 700),  # prompt
        st.integers(1, 60),  # output
        st.floats(0, 0.2),  # arrival
        st.none() | st.floats(0, 0.6),  # aborted so much later
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(requests=requests, prefill=st.integers(50, 120), decode=st.integers(50, 120), lazy=st.booleans())
def test_no_block_is_lost_whoever_leaves_when(requests, prefill: int, decode: int, lazy: bool):
    async def scenario(made: Bench) -> None:
        sent = []

        async def one(session: int, prompt: int, output: int, at_s: float, abort_s: float | None) -> None:
            await asyncio.sleep(at_s)
            request = made.submit(session, prompt, output)
            sent.append((request, abort_s))
            if abort_s is not None:
                await asyncio.sleep(abort_s)
                made.abort(request)

        await asyncio.gather(*(one(i, *request) for i, request in enumerate(requests)))
        made.sent = sent  # type: ignore[attr-defined]

    made = bench(scenario, prefill_blocks=prefill, decode_blocks=decode, lazy=lazy)
    for request, abort_s in made.sent:  # type: ignore[attr-defined]
        if request.id in made.finished:
            assert request.produced == request.max_tokens == len(request.output)
        else:
            assert abort_s is not None and request.produced <= request.max_tokens


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.floats(1, 1e6), st.floats(0, 10)), min_size=1, max_size=20
    )
)
@in_virtual_time
async def test_the_fabric_gives_no_port_more_than_it_has_and_leaves_none_idle(flows):
    """Between two moments, what has arrived by a port is at most its bandwidth; each flow takes at least its time
    alone, and all of them no longer than one after the other."""
    ended: dict[int, float] = {}
    loop, fabric = asyncio.get_running_loop(), Fabric(0.0)
    sources, targets = ([Port(1e5) for _ in range(n)] for n in (3, 4))

    def begin(i: int) -> None:
        source, target, size, _ = flows[i]
        fabric.send(sources[source], targets[target], size, lambda: ended.__setitem__(i, loop.time()))

    for i, flow in enumerate(flows):
        loop.call_at(flow[3], begin, i)
    while len(ended) < len(flows):
        await asyncio.sleep(0.5)
    for i, (_, _, size, at_s) in enumerate(flows):
        assert ended[i] >= at_s + size / 1e5 - 1e-4
    for side in (0, 1):
        for port in {flow[side] for flow in flows}:
            own = [i for i, flow in enumerate(flows) if flow[side] == port]
            begun_s, end_s = min(flows[i][3] for i in own), max(ended[i] for i in own)
            assert sum(flows[i][2] for i in own) <= 1e5 * (end_s - begun_s) + 20
    assert max(ended.values()) <= max(flow[3] for flow in flows) + sum(flow[2] for flow in flows) / 1e5 + 1e-3


@pytest.fixture(scope="module")
def trace():
    return make_trace("novel", {"requests": 30, "rate": 6.0, "output_mean": 80.0}, 3)


H100 = {"deployment": "llama_8b_h100"}


def test_a_replay_with_divided_replicas_answers_everybody_and_is_the_same_twice(trace):
    first, again = (
        replays.run(trace, "vllm_omni_wo", server=H100, prefill=2, decode=1).events.to_pandas() for _ in range(2)
    )
    assert first.equals(again)
    assert (first["kind"] == "turn_done").sum() == 30
    tokens = first[(first["kind"] == "token")].groupby("session")["value"].sum()
    assert (tokens == [session.turns[0].output_tokens for session in trace.sessions]).all()


@pytest.mark.parametrize("engine", ["vllm_omni", "liveserve"])
def test_a_thinker_with_gpus_of_its_own_is_divided_and_speaks(engine: str):
    """Every prompt but those cut short changes hands, and what is said is what is said without."""
    spoken = replays.voice_trace(sessions=6)
    server = {"deployment": "qwen3_omni_8gpu"}
    whole, apart = (replays.run(spoken, engine, {}, server, **roles) for roles in ({}, {"prefill": 1, "decode": 3}))
    kinds = [done.events.to_pandas()["kind"].value_counts() for done in (whole, apart)]
    assert kinds[0]["reply_done"] == kinds[1]["reply_done"] > 0
    assert kinds[1]["load_end"] >= kinds[1]["reply_done"]
    assert apart.proof["kv_blocks_used_after"] == apart.proof["requests_after"] == 0
