"""vLLM's engine process under our schedulers: it answers signals, and rests when all requests are held."""

import queue
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
from vllm.v1.engine.core import EngineCoreProc

from engines.core.policy import Plan
from engines.stock import engine_core
from engines.stock.scheduler import Scheduler
from tests.engines.stage import make_scheduler, step
from tests.engines.stock_scheduler import SCHEDULERS, Pipelined, add, make

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow("starts vLLM's engine process"), pytest.mark.usefixtures("vllm_s_own_engine_process")]


def test_importing_our_parts_changes_nothing_of_vllm():
    """In a process of its own: here schedulers have been made."""
    code = """
from vllm.v1.engine.core import EngineCoreProc
before = dict(vars(EngineCoreProc))
from engines.stock import engine_core, executor, live_signals, scheduler
assert dict(vars(EngineCoreProc)) == before
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_the_engine_process_answers_a_signal_with_the_requests_it_ended():
    scheduler = make(Scheduler, blocks=100)
    add(scheduler, "a-0123abcd", session="talks")
    step(scheduler)
    sent: list[Any] = []
    engine = SimpleNamespace(scheduler=scheduler, _send_abort_outputs=sent.extend)
    taught: Any = EngineCoreProc
    answer = taught.rehearsal_signal(engine, {"verb": "barge_in", "session": "talks"})
    assert answer == {"aborted": [{"request": "a", "tokens": 1}]}
    assert [request.request_id for request in sent] == ["a-0123abcd"]
    assert taught.rehearsal_state(engine)["requests"] == 0


def resting(scheduler: Any, engines_running: bool = False) -> Any:
    """The part of an engine process that resting needs: a step that ran nothing, and an abort among its messages."""
    messages: queue.Queue[tuple[str, list[str]]] = queue.Queue()
    messages.put(("abort", ["a"]))
    taken: list[Any] = []
    return SimpleNamespace(
        scheduler=scheduler,
        engines_running=engines_running,
        input_queue=messages,
        _handle_client_request=lambda *message: taken.append(message),
        taken=taken,
    )


class Holding:
    """A policy that lets nobody run."""

    counters: ClassVar[Counter[str]] = Counter()

    def plan(self, view: Any) -> Plan:
        return Plan(held=frozenset(request.id for request in view.requests), wake_s=view.now + 0.25)


@pytest.mark.parametrize("cls", SCHEDULERS)
def test_when_all_are_held_the_engine_waits_for_a_message_or_wake_s(cls: type):
    scheduler = make(cls)
    run = Pipelined(scheduler)
    add(scheduler, "a")
    run.step()
    scheduler.planner = Holding()
    assert [run.step(), run.step()] == [set(), set()]
    assert scheduler.rest_s() == pytest.approx(0.25)

    step_then_rest = engine_core.resting(lambda engine: False)
    engine = resting(scheduler)
    step_then_rest(engine)
    assert engine.taken == [("abort", ["a"])]
    assert step_then_rest(engine) is False  # nothing comes: it returns when the policy wants to look again


@pytest.mark.parametrize(("cls", "other_ranks_wait"), [(VllmScheduler, False), (Scheduler, True)])
def test_an_engine_with_vllm_s_scheduler_or_for_which_others_wait_never_rests(cls: type, other_ranks_wait: bool):
    scheduler = make_scheduler(cls) if cls is VllmScheduler else make(cls)
    scheduler.rest_s = lambda: 0.25
    engine = resting(scheduler, other_ranks_wait)
    assert engine_core.resting(lambda engine: False)(engine) is False
    assert not engine.taken
