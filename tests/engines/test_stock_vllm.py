"""Policies inside stock vLLM: our scheduler classes, live signals, the modelled executor and its platform."""

import asyncio
import inspect
import json
import os
import queue
import shlex
import subprocess
import sys
from collections import Counter, deque
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as VllmAsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from engines.core import vllm_adapter as vllm
from engines.core.policy import Plan
from engines.core.step_cost import StepWork
from engines.speaking.signals import Signal
from engines.stock import engine_core
from engines.stock.arguments import (
    KEY,
    StockParams,
    arguments,
    policy_of,
    scheduler_class,
    serve_command,
)
from engines.stock.executor import ModelledExecutor
from engines.stock.live_signals import PATH, LiveSignals, http
from engines.stock.plugin import SWITCH
from engines.stock.scheduler import AsyncScheduler, PolicyScheduler, Scheduler
from tests.engines.stage import make_scheduler, step
from tests.engines.stock_engine import HELD_AT
from tests.engines.test_identity import digest
from workloads.errors import UserError

ROOT = Path(__file__).parents[2]
ENGINES = ["liveserve", "vllm_omni"]
SCHEDULERS = [Scheduler, AsyncScheduler]
STOCK = [{"engine": "vllm_omni"}, {"engine_params": {"scheduling": False}}]
"""Configurations without a policy: a baseline, and LiveServe with its scheduler off."""


@pytest.fixture(autouse=True)
def vllm_s_own_engine_process():
    """Whatever a test's schedulers taught it is undone."""
    yield
    engine_core.uninstall()


def make(cls: type, config: dict[str, Any] | None = None, **limits: Any) -> Any:
    """A scheduler of ours as the engine core makes it, on a clock that stands still at 100 s."""

    class Configured(cls):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if config is not None:
                kwargs["vllm_config"].additional_config = {KEY: config}
            super().__init__(*args, **kwargs)
            self.clock = lambda: 100.0

    return make_scheduler(Configured, **limits)


def add(scheduler: Any, name: str, prompt: int = 32, output: int = 50, session: str | None = None) -> Any:
    request = vllm.make_request(name, list(range(prompt)), output, 0.0)
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


HELD_BY_LEAD = {"speech_s_per_text_token": 1.0, "engine_params": {"thinker_alpha": 1.0}}
"""The weights that are shipped hold nobody back at the thinker for the lead alone."""


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
        result = ModelRunnerOutput(
            names, {name: i for i, name in enumerate(names)}, sampled_token_ids=sampled
        )
        self.under_way.append((output, result))
        if len(self.under_way) == 2:
            self.land()
        return set(names)

    def land(self) -> None:
        """The older step's tokens arrive."""
        for outputs in self.scheduler.update_from_output(*self.under_way.popleft()).values():
            for out in outputs.outputs:
                self.tokens[out.request_id] = self.tokens.get(out.request_id, 0) + len(out.new_token_ids)


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (EngineCoreProc, "_process_engine_step", ["self"]),
        (EngineCoreProc, "_handle_client_request", ["self", "request_type", "request"]),
        (EngineCoreProc, "_send_abort_outputs", ["self", "aborted_reqs"]),
        (VllmScheduler, "_is_blocked_waiting_status", ["status"]),
        (VllmScheduler, "_free_request", ["self", "request", "delay_free_blocks"]),
        (Executor, "execute_model", ["self", "scheduler_output", "non_block"]),
        (Executor, "sample_tokens", ["self", "grammar_output", "non_block"]),
    ],
)
def test_names_of_vllm_that_stock_serving_relies_on(owner: type, name: str, parameters: list[str]):
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_importing_our_parts_changes_nothing_of_vllm():
    """In a process of its own: here schedulers have been made."""
    code = """
from vllm.v1.engine.core import EngineCoreProc
before = dict(vars(EngineCoreProc))
import engines.stock.scheduler, engines.stock.executor, engines.stock.live_signals, engines.stock.engine_core
assert dict(vars(EngineCoreProc)) == before
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_a_scheduler_teaches_the_engine_process_and_all_of_it_can_be_undone():
    stock = dict(vars(EngineCoreProc))
    make(Scheduler)
    make(AsyncScheduler)
    engine_core.install()
    taught = dict(vars(EngineCoreProc))
    assert taught.keys() - stock.keys() == {"rehearsal_signal", "rehearsal_state"}
    assert {name for name in stock if taught[name] is not stock[name]} == {"_process_engine_step"}
    assert inspect.unwrap(EngineCoreProc._process_engine_step) is stock["_process_engine_step"]
    assert EngineCoreProc._process_engine_step.__wrapped__ is stock["_process_engine_step"]  # once
    engine_core.uninstall()
    engine_core.uninstall()
    assert dict(vars(EngineCoreProc)) == stock
    engine_core.install()
    assert EngineCoreProc._process_engine_step.__wrapped__ is stock["_process_engine_step"]


def test_the_engine_process_tells_clients_of_the_requests_that_a_signal_ended():
    scheduler = make(Scheduler, blocks=100)
    add(scheduler, "a-0123abcd", session="talks")
    step(scheduler)
    sent: list[Any] = []
    engine = SimpleNamespace(scheduler=scheduler, _send_abort_outputs=sent.extend)
    answer = EngineCoreProc.rehearsal_signal(engine, {"verb": "barge_in", "session": "talks"})
    assert answer == {"aborted": [{"request": "a", "tokens": 1}]}
    assert [request.request_id for request in sent] == ["a-0123abcd"]
    assert EngineCoreProc.rehearsal_state(engine)["requests"] == 0


def test_an_engine_with_vllm_s_scheduler_steps_as_ever_though_the_patch_is_there():
    engine = resting(make_scheduler(VllmScheduler))
    engine.input_queue.put(("abort", ["a"]))
    assert engine_core.resting(lambda engine: False)(engine) is False
    assert not engine.taken


def test_every_engine_of_turns_names_its_policy():
    assert policy_of("liveserve", "thinker", {}) is not None
    assert policy_of("liveserve", "thinker", {"scheduling": False}) is None
    assert policy_of("vllm_omni", "thinker", {}) is None


def test_the_executor_leaves_nothing_abstract():
    assert not inspect.isabstract(ModelledExecutor)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_vllm_finds_the_schedulers_under_their_names(asynchronous: bool):
    module, _, name = scheduler_class(asynchronous).rpartition(".")
    cls = getattr(sys.modules[module], name)
    assert issubclass(cls, PolicyScheduler)
    assert issubclass(cls, VllmAsyncScheduler) == asynchronous


def drive(scheduler: Any, act: Any) -> list[dict[str, Any]]:
    """Sixty steps with requests that come, go and are aborted, on a pool too small for them; what was scheduled."""
    digests = []
    for i in range(60):
        if i % 3 == 0:
            add(scheduler, f"r{i}", prompt=20 + 7 * (i % 5), output=12 + i % 9)
        if i % 11 == 10:
            scheduler.finish_requests(f"r{i - 10 - (i - 10) % 3}", RequestStatus.FINISHED_ABORTED)
        digests.append(act())
    return digests


@pytest.mark.parametrize("config", STOCK)
def test_policy_off_is_stock_order(config: dict[str, Any]):
    def stepper(scheduler: Any) -> Any:
        def act() -> dict[str, Any]:
            output = scheduler.schedule()
            told = digest(output)
            rows = vllm.rows_of(scheduler, output)
            vllm.finish_step(scheduler, output, rows, [[7] if row.samples else [] for row in rows])
            return told

        return act

    ours = make(Scheduler, config, blocks=14, max_num_batched_tokens=64)
    stock = make_scheduler(VllmScheduler, blocks=14, max_num_batched_tokens=64)
    steps = drive(ours, stepper(ours))
    assert steps == drive(stock, stepper(stock))
    assert any(told["preempted"] for told in steps)


@pytest.mark.parametrize("config", STOCK)
def test_policy_off_is_stock_order_with_asynchronous_scheduling(config: dict[str, Any]):
    ours = Pipelined(make(AsyncScheduler, config, blocks=14, max_num_batched_tokens=64))
    stock = Pipelined(make_scheduler(VllmAsyncScheduler, blocks=14, max_num_batched_tokens=64))
    drive(ours.scheduler, ours.step)
    drive(stock.scheduler, stock.step)
    assert ours.digests == stock.digests
    assert ours.tokens == stock.tokens
    assert any(told["preempted"] for told in ours.digests)


def test_a_well_buffered_reply_waits_and_keeps_its_blocks_until_its_lead_is_heard():
    scheduler = make(Scheduler, HELD_BY_LEAD)
    add(scheduler, "a-0123abcd", session="far")
    add(scheduler, "b-0123abcd")
    step(scheduler)
    buffered(scheduler, "far")
    for _ in range(20):
        step(scheduler)
    held = scheduler.requests["a-0123abcd"]
    assert held.num_output_tokens == 11  # 11 s of text ahead of the listener exceed lead_cap_s, 10.6 s
    assert scheduler.requests["b-0123abcd"].num_output_tokens == 21
    assert held.status == RequestStatus.RUNNING
    assert scheduler.blocks_held("a-0123abcd") == 3
    signal(scheduler, "audio_sent", "far", turn=0, seconds=8.0)
    signal(scheduler, "playback_ack", "far", turn=0, seconds=8.0)
    assert step(scheduler) == {"a-0123abcd", "b-0123abcd"}


def test_a_reply_of_which_nobody_reports_is_never_held():
    scheduler = make(Scheduler, {"speech_s_per_text_token": 1.0})
    add(scheduler, "a", session="quiet")
    assert all(step(scheduler) == {"a"} for _ in range(40))


@pytest.mark.parametrize("cls", SCHEDULERS)
@pytest.mark.parametrize("name", ENGINES)
def test_a_barge_in_ends_the_session_s_requests_and_no_other(name: str, cls: type):
    scheduler = make(cls, {"engine": name}, blocks=100)
    add(scheduler, "a-0123abcd", session="talks")
    add(scheduler, "b-0123abcd", session="talks")
    add(scheduler, "c-0123abcd")
    run = Pipelined(scheduler)
    run.step()
    run.step()
    assert sorted(signal(scheduler, "barge_in", "talks")) == ["a-0123abcd", "b-0123abcd"]
    assert signal(scheduler, "barge_in", "c") == ["c-0123abcd"]  # by its external id
    while run.under_way:
        run.land()
    assert scheduler.free_blocks == scheduler.allocatable_blocks
    assert not scheduler.requests


def test_the_http_front_end_names_the_session_in_extra_arguments():
    scheduler = make(Scheduler)
    request = vllm.make_request("cmpl-1-0-0123abcd", [1, 2], 3, 0.0)
    request.session_id = None
    request.sampling_params = SamplingParams(max_tokens=3, extra_args={"session": "caller"})
    scheduler.add_request(request)
    assert signal(scheduler, "barge_in", "caller") == ["cmpl-1-0-0123abcd"]


def test_the_talker_counts_frames_in_chunks():
    scheduler = make(Scheduler, {"stage": "talker"})
    add(scheduler, "a")
    for _ in range(30):
        step(scheduler)
    [seen] = scheduler.view(100.0).requests
    assert (seen.progress.frames, seen.progress.frames_sent, seen.progress.chunk_end) == (30, 29, 54)
    assert seen.progress.frame_s == pytest.approx(0.08)


def test_a_finished_and_heard_reply_teaches_the_session_s_speed():
    scheduler = make(Scheduler, {"engine": "vllm_omni", "speech_s_per_text_token": 1.0})
    signal(scheduler, "turn_committed", "s", turn=0)
    add(scheduler, "a", output=4, session="s")
    for _ in range(5):
        step(scheduler)
    signal(scheduler, "audio_sent", "s", turn=0, seconds=2.0)
    signal(scheduler, "playback_done", "s", turn=0)
    assert scheduler.signals.view("s", 100.0).speech_s_per_token == pytest.approx(0.7 * 1.0 + 0.3 * 0.5)


def test_a_closed_session_is_forgotten():
    scheduler = make(Scheduler)
    buffered(scheduler, "s")
    add(scheduler, "a", session="s")
    assert signal(scheduler, "close", "s") == ["a"]
    assert not scheduler.signals.monitor.sessions
    step(scheduler)
    assert not scheduler._ready


def test_step_times_are_learnt_from_what_was_computed():
    scheduler = make(Scheduler, {"engine": "vllm_omni"})
    times = iter(range(1000))
    scheduler.clock = lambda: float(next(times))
    add(scheduler, "a")
    for _ in range(20):
        step(scheduler)
    assert scheduler.step_cost.predict(StepWork.of([(1, 40)])) == pytest.approx(1.0, rel=0.01)


def test_asynchronous_view_counts_tokens_in_flight_and_leaves_out_what_is_complete():
    scheduler = make(AsyncScheduler)
    add(scheduler, "long", output=50)
    add(scheduler, "short", output=2)
    scheduler.schedule()
    view = scheduler.view(100.0)
    assert [(r.id, r.tokens - r.computed) for r in view.requests] == [("long", 1), ("short", 1)]
    scheduler.schedule()  # the second and last token of "short" is in flight as well
    view = scheduler.view(100.0)
    assert [r.id for r in view.requests] == ["long"]
    assert view.seat_budget == scheduler.max_num_active_reqs - 1


def test_with_asynchronous_scheduling_a_held_reply_still_delivers_what_was_in_flight():
    scheduler = make(AsyncScheduler, HELD_BY_LEAD)
    run = Pipelined(scheduler)
    add(scheduler, "far", session="far")
    add(scheduler, "near")
    run.step()
    buffered(scheduler, "far")
    for _ in range(20):
        run.step()
    assert run.tokens["far"] == 12  # one more than with synchronous scheduling
    assert run.tokens["near"] == 20


@pytest.mark.parametrize("mode", ["utility_gate", "budgeted", "work_conserving"])
def test_asynchronous_scheduling_yields_exact_counts_and_returns_every_block(mode: str):
    """Holding, preemption and aborts with a step in flight."""
    config = {"speech_s_per_text_token": 1.0, "engine_params": {"u2_mode": mode}}
    scheduler = make(AsyncScheduler, config, blocks=20, max_num_batched_tokens=64)
    run, wanted, aborted = Pipelined(scheduler), {}, set()
    for i in range(10):
        name = f"r{i}"
        wanted[name] = 10 + 5 * i
        add(scheduler, name, prompt=20 + i, output=wanted[name], session=name)
        if i % 2:
            buffered(scheduler, name)
        run.step()
        run.step()
        if i % 4 == 3:
            aborted.update(signal(scheduler, "barge_in", name))
    for played in range(2000):
        if not scheduler.requests:
            break
        for i in range(1, 10, 2):
            signal(scheduler, "audio_sent", f"r{i}", turn=0, seconds=0.5)
            signal(scheduler, "playback_ack", f"r{i}", turn=0, seconds=0.5 * played)
        run.step()
    while run.under_way:
        run.land()
    assert aborted == {"r3", "r7"}
    assert {name: run.tokens[name] for name in wanted if name not in aborted} == {
        name: tokens for name, tokens in wanted.items() if name not in aborted
    }
    assert scheduler.free_blocks == scheduler.allocatable_blocks


def resting(scheduler: Any, **extra: Any) -> Any:
    """As much of an engine process as resting needs: one step that runs nothing, and a queue of messages."""
    taken: list[Any] = []
    core = SimpleNamespace(
        scheduler=scheduler,
        engines_running=False,
        input_queue=queue.Queue(),
        _handle_client_request=lambda *message: taken.append(message),
        taken=taken,
    )
    return SimpleNamespace(**{**vars(core), **extra})


class Holding:
    """A policy that lets nobody run."""

    counters: ClassVar[Counter[str]] = Counter()

    def plan(self, view: Any) -> Plan:
        return Plan(held=frozenset(request.id for request in view.requests), wake_s=view.now + 0.25)


@pytest.mark.parametrize("cls", SCHEDULERS)
def test_when_all_are_held_the_engine_waits_for_a_message_or_the_policy_s_time(cls: type):
    scheduler = make(cls)
    run = Pipelined(scheduler)
    add(scheduler, "a")
    run.step()
    scheduler.policy = Holding()
    assert run.step() == set()
    assert run.step() == set()
    assert scheduler.rest_s() == pytest.approx(0.25)

    step_then_rest = engine_core.resting(lambda engine: False)
    engine = resting(scheduler)
    engine.input_queue.put(("abort", ["a"]))
    step_then_rest(engine)
    assert engine.taken == [("abort", ["a"])]
    assert step_then_rest(engine) is False  # nothing comes: it returns when the policy wants to look again

    in_step = resting(scheduler, engines_running=True)  # another rank waits for this one
    in_step.input_queue.put(("abort", ["a"]))
    step_then_rest(in_step)
    assert not in_step.taken


def test_an_engine_with_something_to_run_never_rests():
    scheduler = make(Scheduler)
    add(scheduler, "a")
    step(scheduler)
    assert scheduler.rest_s() == 0.0


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"stage": "vocoder"}, "parameter 'stage' should be 'thinker' or 'talker', got 'vocoder'"),
        ({"stage": "talker", "deployment": "llama_8b_1gpu"}, "has no stage 'talker'; choose from: thinker"),
        ({"deployment": "llama_9b"}, "unknown deployment 'llama_9b'. Did you mean"),
        ({"stages": 1}, "unknown parameter 'stages'. Did you mean 'stage'?"),
        ({"engine": "liveserv"}, "unknown engine 'liveserv'. Did you mean 'liveserve'?"),
        (
            {"engine": "metronome"},
            "engine 'metronome' serves frames, which takes more of vLLM than its order",
        ),
        ({"engine_params": {"lead_cap": 3}}, "engine liveserve: unknown parameter 'lead_cap'"),
        (3, "'rehearsal' must be an object, got 3"),
    ],
)
def test_bad_additional_config_is_one_sentence(config: Any, sentence: str):
    with pytest.raises(UserError) as error:
        make(Scheduler, config)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"verb": "sing", "session": "a"}, "parameter 'verb' should be 'speech_start'"),
        ({"verb": "speech_start"}, "parameter 'session' is required"),
        ({"verb": "audio_sent", "session": "a", "turn": 0}, "audio_sent needs 'seconds'; add it"),
        ({"verb": "playback_ack", "session": "a", "turn": 0, "seconds": -1}, "'seconds' should be greater"),
        (["barge_in"], "a signal is a JSON object"),
    ],
)
def test_bad_signals_are_one_sentence(values: Any, sentence: str):
    with pytest.raises(UserError, match=sentence):
        asyncio.run(LiveSignals(SimpleNamespace(engine_core=None)).send(values))


def test_over_http_a_signal_is_answered_and_a_bad_one_is_refused():
    async def call(name: str, signal: dict[str, Any]) -> dict[str, Any]:
        return {"aborted": [{"request": signal["session"], "tokens": 3}]}

    async def post(body: bytes, path: str = PATH) -> Any:
        async def json_body() -> Any:
            return json.loads(body)

        async def rest_of_the_server(request: Any) -> str:
            return "passed on"

        client = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=call))
        request = SimpleNamespace(
            url=SimpleNamespace(path=path),
            method="POST",
            json=json_body,
            app=SimpleNamespace(state=SimpleNamespace(engine_client=client)),
        )
        return await http(request, rest_of_the_server)

    taken = asyncio.run(post(b'{"verb": "barge_in", "session": "caller"}'))
    assert (taken.status_code, json.loads(taken.body)["aborted"][0]["request"]) == (200, "caller")
    for bad in (b"nonsense", b'{"verb": "sing", "session": "caller"}'):
        refused = asyncio.run(post(bad))
        assert refused.status_code == 400
        assert "signal" in json.loads(refused.body)["error"]
    assert asyncio.run(post(b"{}", "/v1/completions")) == "passed on"


def test_the_printed_command_is_what_vllm_s_server_understands():
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    params = StockParams.of({KEY: {"deployment": "llama_8b_1gpu", "engine_params": {"lead_cap_s": 8}}})
    switch, _, _, _, *words = shlex.split(serve_command(arguments(params, asynchronous=True)))
    parsed: Any = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
    assert switch == f"{SWITCH}=1"
    assert parsed.scheduler_cls == "engines.stock.scheduler.AsyncScheduler"
    assert parsed.middleware == ["engines.stock.live_signals.http"]
    assert StockParams.of(parsed.additional_config) == params


def test_an_engine_without_our_scheduler_says_how_to_start_it():
    async def call(name: str, *args: Any) -> None:
        raise Exception(f"Call to {name} method failed: 'EngineCoreProc' object has no attribute '{name}'")

    llm = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=call))
    with pytest.raises(UserError, match="start it with --scheduler-cls engines"):
        asyncio.run(LiveSignals(llm).barge_in("a"))


def test_the_modelled_executor_refuses_another_model():
    params = StockParams.of({KEY: {"deployment": "llama_8b_1gpu"}})
    other = arguments(StockParams.of({KEY: {"deployment": "llama_tiny"}}))
    from vllm.engine.arg_utils import EngineArgs

    config = EngineArgs(**{**other, "additional_config": {KEY: params.model_dump(exclude_defaults=True)}})
    with pytest.raises(UserError, match="but the thinker of 'llama_8b_1gpu' has"):
        ModelledExecutor(config.create_engine_config())


def test_the_platform_plug_in_is_installed_and_inactive_unless_asked_for(monkeypatch):
    [plugin] = [p for p in entry_points(group="vllm.platform_plugins") if p.name == "rehearsal_modelled"]
    monkeypatch.delenv(SWITCH, raising=False)
    assert plugin.load()() is None
    monkeypatch.setenv(SWITCH, "1")
    assert plugin.load()() == "engines.stock.platform.ModelledPlatform"


def engine(scenario: str, **environment: str) -> dict[str, Any]:
    """What `tests/engines/stock_engine.py` saw."""
    quiet = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.stock_engine", scenario],
        cwd=ROOT,
        env={**os.environ, **quiet, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_async_llm_on_the_modelled_executor_takes_live_signals():
    seen = engine("modelled")
    assert seen["near"] == {"tokens": 200, "finish": "length"}
    assert seen["held_at"] == seen["still_held"] == HELD_AT
    assert seen["rested"]["rounds"] <= 10 * seen["rested"]["s"] + 5  # it looks every 0.1 s, not every 1 ms
    assert seen["far"] == {"tokens": 120, "finish": "length"}  # it went on when its lead was heard
    assert seen["loud"]["finish"] == "abort"
    assert seen["ended"] == [{"request": "r-loud", "tokens": seen["loud"]["tokens"]}]
    assert seen["again"] == {"tokens": 20, "finish": "length"}
    assert "audio_sent needs 'seconds'" in seen["refused"]
    assert (seen["state"]["requests"], seen["state"]["sessions"]) == (0, 0)
    assert seen["state"]["counters"]["u2_deferred"] > 0


def test_async_llm_with_asynchronous_scheduling_on_the_modelled_platform():
    seen = engine("asynchronous", **{SWITCH: "1"})
    assert seen["asynchronous"]
    assert seen["callers"][:7] == [{"tokens": 60 + 20 * i, "finish": "length"} for i in range(7)]
    assert seen["callers"][7]["finish"] == "abort"
    assert seen["callers"][7]["tokens"] in (HELD_AT, HELD_AT + 1)  # one more if one was in flight
    assert [ended["request"] for ended in seen["ended"]] == ["r-s7"]
    assert seen["state"]["free_blocks"] == seen["state"]["blocks"] == 59


def test_async_llm_on_the_real_worker_gives_stock_vllm_s_tokens():
    seen = engine("worker")
    assert seen["ids"] == seen["stock_ids"]
    assert len({token for ids in seen["ids"] for token in ids}) > 50
    assert seen["held_at"] == HELD_AT
    assert seen["gone"]["finish"] == "abort"
    assert seen["ended"] == [{"request": "r-gone", "tokens": seen["gone"]["tokens"]}]
    assert seen["state"]["free_blocks"] == seen["state"]["blocks"]
