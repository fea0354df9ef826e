"""Commands that reach a replica during a step: when they are applied, and which requests leave the step."""

import asyncio
from collections.abc import Collection

import pytest

from engines.core.commands import Abort, Add, Arrival, Command, Forget, Truncate, abort_at_layer
from engines.core.device import NO_ROWS
from engines.core.policy import Plan
from engines.core.request import StageRequest
from engines.core.step import SchedulerStep
from tests.engines.replica_bench import LONG_S, Bench, play, played, request


def test_abort_at_layer_names_aborted_requests_alone():
    one, step = request("one"), SchedulerStep(Plan(), None, (), NO_ROWS, 0.0, 0.0, (), False)
    assert list(abort_at_layer(Abort(one), step)) == [one.id]
    for other in (Add(one), Truncate(0, 16), Forget(0)):
        assert not abort_at_layer(other, step)


def first_step_s() -> float:
    """Seconds of an undisturbed first step of two requests."""

    def scenario(bench: Bench) -> None:
        bench.engine.submit(request("stays"))
        bench.engine.submit(request("leaves"))

    (begun_s, ended_s, requests), *_ = played(scenario).steps()
    assert (begun_s, requests) == (0.0, 2)
    return ended_s


def disturbed(
    command: str, other: StageRequest, on_arrival: Arrival | None, *running: StageRequest
) -> tuple[Bench, float]:
    """Send a command about `other` after 0.3 of the first step of `running`; also that step's undisturbed seconds."""
    whole_s = first_step_s()

    def scenario(bench: Bench) -> None:
        for each in running:
            bench.engine.submit(each)
        bench.at(0.3 * whole_s, getattr(bench.engine, command), other)

    return played(scenario, on_arrival), whole_s


def test_without_abort_at_layer_an_aborted_request_leaves_at_the_end_of_the_step():
    leaves = request("leaves")
    bench, whole_s = disturbed("abort", leaves, None, request("stays"), leaves)
    assert bench.said() == {"stays": 20} and "leaves" not in bench.finished
    assert bench.events("abort") == pytest.approx([whole_s])
    assert leaves.produced == 1  # the token of the step counts as generated


def test_an_aborted_request_leaves_at_the_next_layer_and_shortens_the_step():
    leaves = request("leaves")
    bench, whole_s = disturbed("abort", leaves, abort_at_layer, request("stays"), leaves)
    assert bench.said() == {"stays": 20} and "leaves" not in bench.finished
    _, ended_s, _ = bench.steps()[0]
    assert bench.events("abort") == pytest.approx([ended_s])
    assert ended_s < whole_s
    assert leaves.produced == 0


def test_a_step_ends_at_the_layer_when_its_only_request_is_aborted():
    leaves = request("leaves")
    bench, whole_s = disturbed("abort", leaves, abort_at_layer, leaves)
    assert not bench.tokens and bench.events("abort")[0] < 0.9 * whole_s


def makes_way(command: Command, step: SchedulerStep) -> Collection[str]:
    """Drop every request of the step when the urgent one arrives."""
    urgent = isinstance(command, Add) and command.request.name == "urgent"
    return [row.request_id for row in step.rows] if urgent else ()


def test_requests_dropped_from_a_step_run_again_with_the_request_that_came():
    urgent = request("urgent", tokens=1)
    bench, whole_s = disturbed("submit", urgent, makes_way, request("stays"), request("leaves"))
    assert bench.said() == {"stays": 20, "leaves": 20, "urgent": 1}
    assert bench.steps()[0][1] < 0.9 * whole_s
    first_s = {name: at_s for at_s, name, _ in reversed(bench.tokens)}
    assert first_s["stays"] == first_s["leaves"] == first_s["urgent"]


def test_dropping_requests_that_are_not_in_the_step_changes_nothing():
    def names_others(command: Command, step: SchedulerStep) -> Collection[str]:
        return ("0.0.nobody", "9.9.talker")

    bench, whole_s = disturbed("submit", request("late"), names_others, request("stays"), request("leaves"))
    assert bench.steps()[0][1] == pytest.approx(whole_s)
    assert bench.said() == {"stays": 20, "leaves": 20, "late": 20}


class Asked:
    """Drops no request; records each command, and begin (s) and requests of the step in progress."""

    def __init__(self) -> None:
        self.about: list[tuple[str, float, set[str]]] = []

    def __call__(self, command: Command, step: SchedulerStep) -> Collection[str]:
        self.about.append((type(command).__name__, step.start_s, {row.request_id for row in step.rows}))
        return ()


def test_an_arrival_sees_a_command_that_comes_during_a_step():
    asked = Asked()
    bench, _ = disturbed("submit", request("two", 2, tokens=2), asked, request("one", 1, tokens=2))
    assert bench.said() == {"one": 2, "two": 2}
    assert asked.about == [("Add", 0.0, {"1.0.one"})]


def test_an_arrival_sees_no_command_that_comes_with_a_token():
    asked, delivered = Asked(), []

    def scenario(bench: Bench) -> None:
        def truncate(request: StageRequest) -> None:
            delivered.append(request.name)
            bench.engine.truncate(1, 16)

        bench.on_token = truncate
        bench.engine.submit(request("one", 1, tokens=2))

    played(scenario, asked, prefix_caching=True)
    assert delivered == ["one", "one"] and asked.about == []


def test_an_arrival_sees_no_command_of_an_idle_replica():
    asked = Asked()

    async def main() -> Bench:
        bench = Bench(asked, prefix_caching=True)
        bench.engine.submit(request("one", 1, tokens=2))
        await asyncio.sleep(LONG_S / 2)
        assert not bench.engine.busy
        bench.engine.truncate(1, 16)
        await bench.settle()
        return bench

    assert play(main).said() == {"one": 2}
    assert asked.about == []


def test_commands_are_applied_in_their_order():
    def scenario(bench: Bench) -> None:
        gone = request("gone")
        bench.engine.submit(gone)
        bench.engine.abort(gone)
        bench.engine.abort(gone)  # a second abort has no effect
        stays = request("stays", 1)
        bench.engine.abort(stays)  # nor one before the request
        bench.engine.submit(stays)
        assert bench.engine.load == 2  # requests count before the replica has taken them in

    bench = played(scenario)
    assert bench.said() == {"stays": 20}
    assert len(bench.events("abort")) == 1


def test_a_session_forgotten_before_its_request_starts_leaves_no_history():
    def scenario(bench: Bench) -> None:
        bench.engine.submit(request("one", 7))
        bench.engine.forget(7)
        bench.engine.submit(request("two", 8))

    bench = played(scenario, prefix_caching=True)
    histories = bench.engine.scheduler.histories
    assert histories.get(7) is None and histories.get(8) is not None
    assert bench.said() == {"one": 20, "two": 20}


def test_a_prompt_without_room_for_a_token_is_refused():
    """vLLM's scheduler would keep it waiting for ever."""

    def scenario(bench: Bench) -> None:
        room = bench.engine.replica.stage.max_model_len - 1
        bench.engine.submit(request("fits", prompt=room, tokens=1))
        with pytest.raises(ValueError, match=rf"0\.0\.long has a prompt of .* takes {room} at most"):
            bench.engine.submit(request("long", prompt=room + 1, tokens=1))

    assert played(scenario).said() == {"fits": 1}
