"""Our schedulers on vLLM-Omni's, with its own connector and without a server: chunks, order and aborts."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import torch
from vllm.v1.request import RequestStatus

from engines.core import vllm_adapter as vllm
from engines.core.policy import Plan
from engines.stock.arguments import KEY
from engines.stock.omni.scheduler import FETCH_S, Scheduler
from tests.engines.stage import make_scheduler

TALKER, THINKER = 1, 0


class OnConnector(Scheduler):
    """The talker's, as vLLM-Omni configures it, on a clock that stands still."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        model = vllm_config.model_config
        more = {"async_chunk": True, "stage_id": TALKER, "stage_connector_config": None, "worker_type": "ar"}
        for name, value in more.items():
            object.__setattr__(model, name, value)
        vllm_config.additional_config = {KEY: {"stage": "talker"}}
        super().__init__(vllm_config, *args, **kwargs)
        self.clock = lambda: 100.0


class Talker:
    """A talker whose chunks come when a test says so."""

    def __init__(self, **limits: Any) -> None:
        self.scheduler: Any = make_scheduler(OnConnector, **limits)
        self.adapter = self.scheduler.chunk_transfer_adapter
        self.run = uuid4().hex[:8]
        self.sent: dict[str, int] = {}

    def add(self, name: str, output: int = 50) -> None:
        request: Any = vllm.make_request(name, list(range(32)), output, 0.0)
        request.external_req_id = f"{name}-{self.run}"
        request.additional_information = None
        request.resumable = False
        self.scheduler.add_request(request)

    def chunk(self, name: str, finished: bool = False) -> None:
        """The thinker sends one token; returns when the talker's stage has it."""
        number = self.sent.get(name, 0)
        key = f"{name}-{self.run}_{THINKER}_{number}"
        payload = {"meta": {"finished": torch.tensor(finished)}, "embed": {"decode": torch.zeros(1, 1)}}
        self.adapter.connector.put(str(THINKER), str(TALKER), key, payload)
        self.sent[name] = number + 1
        until_s = time.monotonic() + 5
        while name not in self.adapter._finished_load_reqs:
            assert time.monotonic() < until_s, "the chunk does not arrive"
            time.sleep(0.002)

    def step(self) -> list[str]:
        """One step with made-up frames; the ids that it scheduled, in order."""
        output = self.scheduler.schedule()
        rows = vllm.rows_of(self.scheduler, output)
        vllm.finish_step(self.scheduler, output, rows, [[7] if row.samples else [] for row in rows])
        return [row.request_id for row in rows]


@pytest.fixture
def talker() -> Iterator[Talker]:
    made = Talker()
    yield made
    if hasattr(made.adapter, "stop_event"):
        made.adapter.stop_event.set()


class Watched:
    """A policy that notes the requests that it was shown; `order`: its plan instead of the policy's."""

    def __init__(self, policy: Any, order: list[str] | None = None) -> None:
        self.policy, self.order = policy, order
        self.seen: list[list[str]] = []
        self.parked: list[Any] = []
        self.counters = policy.counters

    def plan(self, view: Any) -> Plan:
        self.seen.append([request.id for request in view.requests])
        self.parked.append([(request.id, request.progress) for request in view.parked])
        return self.policy.plan(view) if self.order is None else Plan(order=self.order)


def test_a_request_without_a_chunk_is_not_shown_to_the_policy(talker: Talker):
    talker.scheduler.planner = Watched(talker.scheduler.planner)
    talker.add("a")
    talker.add("b")
    assert talker.step() == []
    talker.chunk("a")
    assert talker.step() == ["a"]
    assert talker.step() == [], "one chunk, one frame"
    talker.chunk("b")
    talker.chunk("a")
    assert set(talker.step()) == {"a", "b"}
    seen = talker.scheduler.planner.seen
    assert {name for names in seen for name in names} == {"a", "b"} and seen[0] == ["a"]


def test_requests_with_a_chunk_are_served_in_the_order_of_the_policy(talker: Talker):
    talker.scheduler.planner = Watched(talker.scheduler.planner, ["c", "b", "a"])
    for name in "abc":
        talker.add(name)
    talker.step()
    for name in "ac":
        talker.chunk(name)
    assert talker.step() == ["c", "a"]


@pytest.mark.parametrize("later_s, parked", [(FETCH_S - 1e-6, ["a"]), (FETCH_S, [])])
def test_a_request_is_parked_while_its_chunk_is_fetched(talker: Talker, later_s: float, parked: list[str]):
    talker.scheduler.planner = watched = Watched(talker.scheduler.planner)
    for name in "ab":
        talker.add(name)
    talker.step()
    talker.chunk("a")
    talker.step()
    talker.step()  # `a` asks for its second chunk
    talker.chunk("b")
    asked_s = talker.scheduler.clock()
    talker.scheduler.clock = lambda: asked_s + later_s
    assert talker.step() == ["b"]
    assert [name for name, _ in watched.parked[-1]] == parked
    assert all(progress.frames < progress.text_arrived for _, progress in watched.parked[-1])


def test_a_request_needs_no_more_chunks_after_the_last_one(talker: Talker):
    talker.add("a", output=6)
    talker.step()
    talker.chunk("a", finished=True)
    assert [talker.step() for _ in range(6)] == [["a"]] * 6
    assert not talker.scheduler.requests


def test_an_aborted_request_returns_its_blocks_while_it_waits_for_a_chunk(talker: Talker):
    for name in "ab":
        talker.add(name)
    talker.step()
    talker.chunk("a")
    talker.step()
    talker.scheduler.finish_requests(["a", "b"], RequestStatus.FINISHED_ABORTED)
    assert talker.step() == []
    assert not talker.scheduler.requests
    assert talker.scheduler.free_blocks == talker.scheduler.allocatable_blocks
