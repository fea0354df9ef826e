"""The decode fast path changes no result: events, steps, counters and tokens are the same without it, byte for byte.

`decode_fast_path=False` is the reference. The parts of `engines/core/fast_path`: simple decodes, summed decodes, steady
steps and decode batches.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.commands import abort_at_layer
from engines.core.fast_path.batch_listeners import BatchListeners
from engines.core.fast_path.decode_batch import BatchTokens, DecodeBatch
from engines.core.fast_path.decode_fast_path import DecodeFastPath
from engines.core.fast_path.one_step_path import OneStepPath
from engines.core.fast_path.steady_steps import SteadySteps
from engines.core.policy import Plan, StageView
from engines.core.request import StageRequest
from engines.core.step_cost import StepWork
from engines.core.vllm_adapter.history import Histories
from engines.core.vllm_adapter.simple_decode import SimpleDecodes
from engines.devices.roofline import StepCost
from harness.events import log as log_module
from harness.events.log import EventLog
from harness.replays.worker.replay import Replay
from tests.engines.replays import cut_short, exact, left, replay, voice_trace
from tests.engines.replica_bench import Bench, play
from workloads.registry import make_trace
from workloads.trace import Trace


class Situation(Protocol):
    def served(self, fast: bool) -> Any:
        """Everything observable of a run with or without the fast path."""


class NewestFirst:
    """Running requests first, then the newest. Every third plan holds all but the first request; every fourth caps the
    others at 0 to 12 tokens. It records each view, and the expected time of a step."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(asked=0)
        self.seen: list[tuple[Any, ...]] = []
        self.made: Counter[str] = Counter()

    def plan(self, view: StageView) -> Plan:
        self.counters["asked"] += 1
        self.counters["expected_ns"] += round(1e9 * (view.step_s(StepWork(1, 0, 100)) or 0.0))
        order = [each.id for each in sorted(view.requests, key=lambda each: (not each.running, -each.ready_s))]
        for each in view.requests:
            self.seen.append((each.id, each.tokens, each.computed, each.blocks, len(each.hashes), each.prompt_tokens))
            assert each.tokens == each.prompt_tokens + self.made[each.id]
        held = order[1:] if self.counters["asked"] % 3 == 0 else ()
        few = 6 * (self.counters["asked"] % 3)
        caps = dict.fromkeys(order[1:], few) if self.counters["asked"] % 4 == 0 else {}
        return Plan([each for each in order if each not in held], frozenset(held), caps=caps)

    def produced(self, request: str, tokens: int, finished: bool) -> None:
        self.made[request] += tokens
        self.seen.append((request, tokens, finished))


@dataclass(frozen=True)
class OneReplica:
    """Requests to one replica: when each comes (s), how many tokens of the first one's prompt and reply its own prompt
    begins with, and its tokens. With the fifth token of one comes one more, unless there are decode `batches`.

    `aborts`: when one is cancelled (s), by its place. `beside`: when somebody else's step of 50 ms comes to the GPU.
    `ends`: the serving is cancelled at a time (s), or cancelled or failed by who is told of the first request's n-th
    token.
    """

    asked: list[tuple[float, int, int]]
    aborts: dict[int, float] = field(default_factory=dict)
    ordered: bool = False
    layer: bool = False
    ahead: bool = False
    beside: list[float] = field(default_factory=list)
    batches: bool = False
    limits: dict[str, Any] = field(default_factory=lambda: {"max_num_seqs": 2})
    ends: tuple[str, float] | None = None

    def requests(self) -> list[StageRequest]:
        said = [*range(self.asked[0][1]), *range(100, 400)]
        own = [[*said[:known], *range(1000 * i, 1000 * i + 20 * bool(i))] for i, (_, known, _) in enumerate(self.asked)]
        return [
            StageRequest(f"r{i}", i, 0, own[i], tokens, first_token_id=i or 100)
            for i, (_, _, tokens) in enumerate(self.asked)
        ]

    def begin(self, bench: Bench, requests: list[StageRequest]) -> None:
        """Schedule requests, aborts, other steps on the GPU and the end."""
        how, when = self.ends or ("", 0)

        def answer(each: StageRequest) -> None:
            if each.produced == 5 and each.turn == 0:
                bench.engine.submit(StageRequest(each.name, each.session, 1, each.prompt, 30))
            if each is requests[0] and each.produced == when and how == "cancel":
                bench.task.cancel()
            if each is requests[0] and each.produced == when and how == "fail":
                raise ValueError("nobody listens")

        if not self.batches:
            bench.on_token = answer
        for (at_s, *_), each in zip(self.asked, requests, strict=True):
            bench.at(at_s, bench.engine.submit, each)
        for place, at_s in self.aborts.items():
            if place < len(requests):
                bench.at(max(at_s, self.asked[place][0]), bench.engine.abort, requests[place])
        device: Any = bench.engine.replica.device
        for at_s in self.beside:
            bench.at(at_s, device.gpu.compute.submit, StepCost(0.05, 0.0, 0, 0.0))
        if how == "at":
            bench.at(when, bench.task.cancel)

    def served(self, fast: bool) -> Any:
        policy = NewestFirst() if self.ordered else None
        on_arrival = abort_at_layer if self.layer else None

        async def main() -> Bench:
            bench = Bench(on_arrival, policy, fast, self.batches, async_scheduling=self.ahead, **self.limits)
            self.begin(bench, self.requests())
            await asyncio.sleep(30.0)  # all requests have ended, or the serving has
            if not bench.task.done():
                await bench.settle()
            return bench

        bench = play(main)
        ended = bench.task.done() and (bench.task.cancelled() or str(bench.task.exception()))
        told = [bench.tokens, bench.finished, ended]
        if self.ends and self.ends[0] == "cancel":  # a task that cancels itself goes on to where it next waits
            return told
        counters = [policy and (policy.counters, policy.seen), bench.engine.counters()]
        tables = [exact(bench.log.events()), exact(bench.log.steps())]
        return [*tables, *counters, bench.engine.steps, *told]


@dataclass(frozen=True)
class Replayed:
    """A replay. `cut_s`: when each second turn is interrupted; `network_s`: of all users alike, so that timers of a
    step are due at one instant; `rows` of a group in the files of the log, of which the reference has none."""

    engine: str
    server: dict[str, Any]
    workload: tuple[str, dict[str, Any]]
    seed: int = 0
    system: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    cut_s: float | None = None
    network_s: float | None = None
    rows: int | None = None

    def trace(self) -> Trace:
        trace = make_trace(*self.workload, self.seed)
        if self.network_s is not None:
            turns = [turn for session in trace.sessions for turn in session.turns]
            trace = Trace.from_turns([replace(turn, network_s=self.network_s) for turn in turns])
        return trace if self.cut_s is None else cut_short(trace, self.cut_s)

    def replay(self, fast: bool, folder: Path | None = None) -> Replay:
        server = {**self.server, "decode_fast_path": fast}
        return replay(self.engine, self.system, server, self.client, self.trace(), seed=7, folder=folder)

    def served(self, fast: bool) -> Any:
        if self.rows is None or not fast:
            return left(self.replay(fast))
        with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
            patch.setattr(log_module, "ROW_GROUP", self.rows)
            patch.setattr(log_module, "WOVEN", 300)
            done = self.replay(fast, Path(folder))
            assert done.log.files() or self.rows > 50
            return left(done)


TIMES = st.floats(0.0, 0.4)


@st.composite
def one_replica(draw: Any) -> OneReplica:
    """Aborts at a step or a layer, async scheduling, a policy that holds requests, other steps on the GPU, prompts that
    begin with another reply or exceed a step, small pools, and a serving that ends."""
    known = st.sampled_from([8, 40, 64, 200, 232])
    asked = draw(st.lists(st.tuples(TIMES, known, st.integers(1, 60)), min_size=1, max_size=7))
    limits = {
        "max_num_seqs": draw(st.sampled_from([2, 2, 4])),
        "prefix_caching": draw(st.booleans()),
        "blocks": draw(st.sampled_from([40, 200, 1000])),
        "max_num_batched_tokens": draw(st.sampled_from([20, 2048])),
    }
    end = st.tuples(st.just("at"), TIMES) | st.tuples(st.sampled_from(["cancel", "fail"]), st.integers(2, 40))
    return OneReplica(
        asked,
        draw(st.dictionaries(st.integers(0, 6), TIMES, max_size=3)),
        ordered=draw(st.booleans()),
        layer=draw(st.booleans()),
        ahead=draw(st.booleans()),
        beside=draw(st.lists(TIMES, max_size=6)),
        batches=draw(st.booleans()),
        limits=limits,
        ends=draw(st.none() | st.none() | end),
    )


@st.composite
def chunks(draw: Any) -> OneReplica:
    """Requests of one step, as at a vocoder, alone and with longer ones; steps with less room than requests."""
    at_s, known = st.sampled_from([0.0, 0.01, 0.05, 0.3]) | TIMES, st.sampled_from([8, 40, 64, 200])
    asked = draw(st.lists(st.tuples(at_s, known, st.sampled_from([1, 1, 1, 1, 3])), min_size=1, max_size=12))
    limits = {
        "modelled": True,
        "max_num_seqs": draw(st.sampled_from([2, 8])),
        "max_num_batched_tokens": draw(st.sampled_from([64, 256, 2048])),
        "blocks": draw(st.sampled_from([20, 40, 1000])),
    }
    aborts = draw(st.dictionaries(st.integers(0, 11), TIMES, max_size=3))
    ordered, layer, ahead = draw(st.sampled_from([(False, False, False)] * 3 + [(True, True, True)]))
    return OneReplica(asked, aborts, ordered, layer, ahead, draw(st.lists(TIMES, max_size=4)), limits=limits)


TEXT = {"modality": "text", "reply": "text", "max_reply_tokens": 200}
LLAMA = {"deployment": "llama_8b_1gpu"}


@st.composite
def texts(draw: Any) -> Replayed:
    """Single requests in bursts or before long documents, timeouts, preemption, network delays longer than steps, equal
    or zero, several tokens a message, logs in files."""
    rate = draw(st.sampled_from([5.0, 20.0, 50.0, 200.0]))
    typed = {**TEXT, "network_ms": draw(st.sampled_from([0.0, 20.0, 400.0]))}
    documents = {"requests": 30, "max_output_tokens": 200, "max_input_tokens": 6000, "documents": 12}
    workloads = {"poisson": {**typed, "requests": 40}, "gamma": {**typed, "requests": 30}, "co_serving": documents}
    pools = {"poisson": [400, 2000, None], "gamma": [400, 600, 2000, None], "co_serving": [600, 2000, None]}
    name = draw(st.sampled_from([*workloads]))
    server = {
        **LLAMA,
        "kv_pool_blocks": draw(st.sampled_from(pools[name])),
        "max_num_batched_tokens": draw(st.sampled_from([512, 8192])),
        "stream_interval": draw(st.sampled_from([1, 1, 4])),
        "prefix_caching": draw(st.booleans()),
    }
    return Replayed(
        "vllm_omni_wo",
        server,
        (name, {**workloads[name], "rate": rate}),
        draw(st.integers(0, 99)),
        draw(st.sampled_from([{}, {}, {"scheduler": "fcfs"}, {"scheduler": "priority"}, {"scheduler": "liveserve"}])),
        {"turn_timeout_s": draw(st.sampled_from([1.0, 3.0, 100.0]))},
        network_s=draw(st.sampled_from([None, None, 0.02])),
        rows=draw(st.sampled_from([None, None, 50, 1000])),
    )


def spoken(**params: Any) -> tuple[str, dict[str, Any]]:
    return "voice", {"sessions": 8, "turns": 2.0, "p": 0.5, **params}


SPEAKING: list[tuple[str, dict[str, Any]]] = [
    ("vllm_omni", {}),
    ("vllm_omni", {"scheduler": "priority"}),
    ("vllm_omni_wo", {}),
    ("liveserve", {}),
    ("liveserve", {"u2_mode": "work_conserving"}),
    ("liveserve", {"pacing": "always", "keep_up": True}),
    ("liveserve", {"u2_mode": "yielding", "kv_relief": False}),
    ("liveserve", {"scheduler": "fcfs"}),
]


@st.composite
def speech(draw: Any) -> Replayed:
    """Barge-ins, preemption, offloading and preloads: a thinker's pool from 64 to 5000 blocks, with and without prefix
    caching and host memory."""
    engine, system = draw(st.sampled_from(SPEAKING))
    caching = draw(st.booleans())
    server = {
        "prefix_caching": caching,
        "kv_pool_blocks": draw(st.sampled_from([64, 80, 120, 400, 5000])),
        "host_kv_gb": draw(st.sampled_from([0, 0.05, 4])) if caching else 0,
        "block_size": draw(st.sampled_from([8, 16, 16])),
        "abort_at": draw(st.sampled_from(["step", "layer"])),
    }
    rate, tokens = draw(st.sampled_from([2.0, 20.0])), draw(st.sampled_from([20, 100, 300]))
    cut_s = draw(st.sampled_from([None, 0.1, 0.5]))
    workload = spoken(rate=rate, reply_tokens=tokens)
    return Replayed(engine, server, workload, draw(st.integers(0, 99)), system, cut_s=cut_s)


DIES = {"deployment": "deepseek_r1_6p8_1d32"}


@st.composite
def dies(draw: Any) -> Replayed:
    """Replicas that step together, with rare messages, timeouts, and preemption among decodes."""
    server = {
        **DIES,
        "stream_interval": draw(st.sampled_from([1, 2, 7, 64])),
        "kv_pool_blocks": draw(st.sampled_from([64, 80, 200])),
    }
    load = {"requests": 400, "rate": 1000.0, "output_mean": 150.0, "input_mean": 1500.0}
    system = {"attention": draw(st.sampled_from(["full", "omniattn"]))}
    client = {"turn_timeout_s": draw(st.sampled_from([4.0, 8.0, 900.0]))}
    return Replayed("omniinfer", server, ("novel", load), draw(st.integers(0, 99)), system, client)


@pytest.mark.parametrize(
    ("situations", "examples"),
    [
        (one_replica(), 25),
        (chunks(), 50),
        pytest.param(texts(), 25, marks=pytest.mark.slow("replays large loads twice")),
        pytest.param(speech(), 25, marks=pytest.mark.slow("replays large loads twice")),
        pytest.param(dies(), 8, marks=pytest.mark.slow("replays large loads twice")),
    ],
    ids=["one replica", "chunks", "texts", "speech", "dies"],
)
def test_a_run_is_the_same_with_and_without_the_fast_path(situations: st.SearchStrategy[Situation], examples: int):
    @settings(max_examples=examples)
    @given(situations)
    def same(situation: Situation):
        assert situation.served(fast=True) == situation.served(fast=False)

    same()


def prompt_that_begins_with_a_reply(at_ms: int) -> OneReplica:
    """Prompts come while a reply of 200 tokens is made and begin with its tokens. A block of the reply fills every
    0.11 s; vLLM hears of it late, but before a prompt can hit it."""
    asked = [(0.0, 32, 200), (at_ms / 1000, 232, 30), (at_ms / 1000 + 0.05, 64, 30)]
    limits = {"prefix_caching": True, "max_num_seqs": 4, "blocks": 200}
    return OneReplica(asked, batches=True, limits=limits)


SMALL_POOL = {"prefix_caching": True, "kv_pool_blocks": 64, "host_kv_gb": 0, "block_size": 8, "abort_at": "layer"}
LENGTHS = {"input_tokens": 2000, "output_tokens": 100}
DOCUMENTS = "co_serving", {**LENGTHS, "requests": 25, "rate": 2.0, "cv": 0.5, "backlog": 4}
CO_SERVED = {**LLAMA, "kv_pool_blocks": 700, "host_kv_gb": 8.0, "max_num_batched_tokens": 512}
ALIKE = Replayed("vllm_omni_wo", LLAMA, ("poisson", {**TEXT, "requests": 40, "rate": 200.0}), network_s=0.02)
IN_PIECES = OneReplica(
    [(0.0, 8, 60)] * 6 + [(0.1, 232, 9), (0.12, 200, 9)], limits={"max_num_seqs": 8, "max_num_batched_tokens": 20}
)
KNOWN: dict[str, list[Situation]] = {
    "prompts longer than a step": [IN_PIECES, replace(IN_PIECES, ordered=True)],
    "documents aborted at the end": [
        *(Replayed(name, CO_SERVED, DOCUMENTS) for name in ("conserve", "sarathi_p")),
        Replayed("vllm_omni_wo", {"deployment": "llama_8b_h100"}, DOCUMENTS, 3),
    ],
    "abort at a layer": [
        OneReplica([(0.0, 8, 60)], {0: 0.05}, layer=True, ahead=True),
        OneReplica([(0.0, 8, 60), (0.09, 8, 5)], {0: 0.03}, layer=True, beside=[0.012]),
    ],
    "the serving ends": [
        OneReplica([(0.0, 32, 2000)], ends=("at", 0.5)),
        OneReplica([(0.0, 32, 200)], ends=("fail", 100)),
        *(OneReplica([(0.0, 32, 200)], ends=("cancel", token)) for token in range(2, 40)),
    ],
    "prompts that begin with a reply": [prompt_that_begins_with_a_reply(at_ms) for at_ms in range(100, 212, 4)],
    "blocks of interrupted rows": [
        Replayed("vllm_omni", SMALL_POOL, spoken(rate=2.0, reply_tokens=100), seed, cut_s=0.1) for seed in (6, 14)
    ],
    "preemption": [Replayed("vllm_omni", {"kv_pool_blocks": 64}, spoken(rate=20.0, reply_tokens=150), 3)],
    "timers at one instant": [ALIKE, replace(ALIKE, network_s=None, rows=50)],
    "replicas that step together": [
        Replayed("omniinfer", DIES, ("novel", {"requests": 90, "rate": 40.0, "output_mean": 40.0}), 3)
    ],
}


@pytest.mark.parametrize(
    "situation", [pytest.param(each, id=f"{name}-{i}") for name, known in KNOWN.items() for i, each in enumerate(known)]
)
def test_a_run_that_once_differed_is_the_same(situation: Situation):
    assert situation.served(fast=True) == situation.served(fast=False)


@pytest.mark.parametrize(
    ("situation", "owner", "name", "least"),
    [
        (OneReplica([(0.0, 40, 200)]), SteadySteps, "_finish_repeated", 150),  # of 200 steps
        (OneReplica([(0.0, 40, 1)] * 8, limits={"modelled": True, "max_num_seqs": 4}), OneStepPath, "schedule", 2),
        (IN_PIECES, SimpleDecodes, "through_full_block", 6),
        (replace(ALIKE, network_s=None), EventLog, "later", 100),
    ],
    ids=["steady steps", "one-step requests", "decodes", "decode batches"],
)
def test_each_part_of_the_fast_path_is_taken(
    situation: Situation, owner: type, name: str, least: int, monkeypatch: pytest.MonkeyPatch
):
    calls, function = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: (calls.append(name), function(*given))[1])
    situation.served(fast=True)
    assert len(calls) >= least


def test_an_equal_plan_repeats_a_step_under_a_policy(monkeypatch: pytest.MonkeyPatch):
    """LiveServe's policy plans each step, as its order follows playback; more than 40 % of the plans change nothing."""
    calls, function = [], DecodeFastPath._schedule
    monkeypatch.setattr(DecodeFastPath, "_schedule", lambda *given: (calls.append(given), function(*given))[1])
    done = replay("liveserve", {}, {}, {}, voice_trace(), seed=7)
    assert len(calls) < 0.6 * done.cost["steps"]


def test_a_cancelled_reply_gets_no_token_of_a_delayed_batch():
    """Once a reply is cancelled, tokens go to one reply after the other by the gateway, which drops cancelled ones."""
    heard, delayed = [], []
    listener = type("Listener", (), {"texts": staticmethod(lambda group, tokens: heard.append("group"))})()
    replies = [SimpleNamespace(name=name, listener=listener, cancelled=False) for name in "abc"]
    requests: Any = [SimpleNamespace(reply=reply, log_key=bytes(16)) for reply in replies]
    gateway: Any = SimpleNamespace(text=lambda reply, tokens: heard.append(reply.name))
    listeners = BatchListeners([], lambda _, deliver, tokens: delayed.append((deliver, tokens)), gateway)
    tokens = BatchTokens(DecodeBatch(requests), 0, 3)
    listeners.on_batch_tokens(tokens)
    listeners.on_batch_tokens(tokens)
    (deliver, first), (_, second) = delayed
    deliver(first)
    assert heard == ["group"]
    replies[1].cancelled = True
    listeners.reply_cancelled()
    deliver(second)
    assert heard == ["group", "a", "b", "c"]


BLOCK = st.lists(st.integers(0, 3), min_size=8, max_size=8)


@settings(deadline=None)
@given(st.lists(BLOCK, max_size=4), st.lists(BLOCK, max_size=4))
def test_short_keys_are_equal_where_vllms_own_are(ours: list[list[int]], theirs: list[list[int]]):
    def keys(blocks: list[list[int]], short_keys: bool) -> list[Any]:
        hashes: list[Any] = []
        Histories(8, short_keys).extend(hashes, [*chain.from_iterable(blocks)])
        return hashes

    equal = [a == b for a, b in zip(keys(ours, False), keys(theirs, False), strict=False)]
    assert [a == b for a, b in zip(keys(ours, True), keys(theirs, True), strict=False)] == equal
    assert len(set(keys(ours, True))) == len(ours)
