"""The orchestrator of a speaking pipeline: it passes on one message of each source in turn, and polls cost time."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from engines.turns.orchestrator import Orchestrator
from harness.clocks.clock import run

SERVICE_S = 0.0015

Acts = list[tuple[float, str, bool]]
"""Each: seconds to wait before it, source, and whether it carries something."""

ACTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0003, 0.001, 0.004]), st.sampled_from("abc"), st.booleans()), max_size=30
)


async def passed_on(acts: Acts, polled: bool) -> list[tuple[float, int]]:
    """Time and number of each message. Acts that carry nothing are polls if `polled`, else empty messages."""
    loop, orchestrator = asyncio.get_running_loop(), Orchestrator(SERVICE_S)
    seen: list[tuple[float, int]] = []

    def heard(number: int) -> None:
        seen.append((loop.time(), number))

    for number, (wait_s, source, carries) in enumerate(acts):
        if wait_s:
            await asyncio.sleep(wait_s)
        if carries:
            orchestrator.pass_on(source, heard, number)
        elif polled:
            orchestrator.poll(source)
        else:
            orchestrator.pass_on(source, lambda: None)
    await asyncio.sleep(1.0)
    return seen


@given(ACTS)
def test_a_poll_takes_as_long_as_an_empty_message(acts: Acts):
    assert run(passed_on(acts, True), virtual=True) == run(passed_on(acts, False), virtual=True)


def test_sources_take_turns():
    acts = [(0.0, "a", True), (0.001, "a", True), (0.0001, "b", True), (0.0001, "c", False), (0.0001, "b", True)]
    assert [number for _, number in run(passed_on(acts, True), virtual=True)] == [0, 2, 1, 4]
