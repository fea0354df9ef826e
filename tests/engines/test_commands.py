"""Commands that reach a replica during a step: when they are applied, and which requests leave the step."""

from collections.abc import Collection

import pytest

from engines.core.commands import Abort, Add, Arrival, Command, Forget, Truncate, abort_at_layer
from engines.core.device import NO_ROWS
from engines.core.policy import Plan
from engines.core.request import StageRequest
from engines.core.step import SchedulerStep
from tests.engines.replica_bench import Bench, played, request


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


def test_requests_dropped_from_a_step_run_again_with_the_request_that_came():
    seen = []

    def makes_way(command: Command, step: SchedulerStep) -> Collection[str]:
        rows = [row.request_id for row in step.rows]
        seen.append((type(command), step.start_s, rows))
        return rows

    urgent = request("urgent", tokens=1)
    bench, whole_s = disturbed("submit", urgent, makes_way, request("stays"), request("leaves"))
    assert seen == [(Add, 0.0, ["0.0.stays", "0.0.leaves"])]
    assert bench.said() == {"stays": 20, "leaves": 20, "urgent": 1}
    assert bench.steps()[0][1] < 0.9 * whole_s
    first_s = {name: at_s for at_s, name, _ in reversed(bench.tokens)}
    assert first_s["stays"] == first_s["leaves"] == first_s["urgent"]


def test_a_prompt_that_leaves_no_room_for_a_token_is_refused():
    """vLLM's scheduler would keep it waiting for ever."""

    def scenario(bench: Bench) -> None:
        room = bench.engine.replica.stage.max_model_len - 1
        bench.engine.submit(request("fits", prompt=room, tokens=1))
        with pytest.raises(ValueError, match=rf"0\.0\.long has a prompt of .* takes {room} at most"):
            bench.engine.submit(request("long", prompt=room + 1, tokens=1))

    assert played(scenario).said() == {"fits": 1}
