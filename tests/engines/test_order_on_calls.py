"""LiveServe's order on calls: what listeners have heard, and the window that bounds their KV."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.frames.listeners import CallListeners
from engines.frames.session_engine import SessionRequest
from engines.turns.monitor import Phase
from tests.engines import frames as calls
from tests.engines.frames import frames
from tests.waiting import in_virtual_time

serve: Callable[..., Any] = calls.serve
"""Pandas' stubs do not know which columns of a run hold numbers."""
FRAME_S, TOKEN_S = 2.0, 0.25


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0.0, FRAME_S)), min_size=1, max_size=30))
@in_virtual_time
async def test_nobody_has_heard_more_than_was_returned_or_than_time_has_passed(answers: list[tuple[int, float]]):
    """Whatever a tick returns and whenever: playback is between nothing and both of these."""
    loop = asyncio.get_running_loop()
    listeners = CallListeners(TOKEN_S, FRAME_S)
    listeners.opened(7)
    request = SessionRequest("thinker", 7, 0, [], 0)
    first_s, sent = None, 0
    for tokens, after_s in answers:
        await asyncio.sleep(after_s)
        request.produced += tokens
        listeners.returned(7, tokens)
        sent += tokens
        first_s = loop.time() if first_s is None and tokens else first_s
        await asyncio.sleep(FRAME_S - after_s)
        listeners.framed(7)
        view = listeners.view(request, loop.time())
        played_s = view.session.played(loop.time())
        assert played_s <= sent * TOKEN_S + 1e-9
        if first_s is None:
            assert view.session.phase is Phase.AWAIT_FIRST_AUDIO
        else:
            assert played_s <= loop.time() - first_s + 1e-9
            assert view.session.telemetry_ok(loop.time(), 2 * FRAME_S)
        assert (view.progress.text_tokens, view.progress.text_consumed) == (sent, sent)


@in_virtual_time
async def test_text_counts_on_when_a_request_is_renewed():
    listeners = CallListeners(TOKEN_S, FRAME_S)
    listeners.opened(1)
    listeners.returned(1, 5)
    listeners.renewed(1, 5)
    request = SessionRequest("thinker", 1, 3, [], 0)
    request.produced = 2
    assert listeners.view(request, 0.0).progress.text_tokens == 7


def run(engine: str, window: int | None) -> Any:
    patience = {"telemetry_timeout_s": 4.0} if engine == "liveserve_on_calls" else {}
    trace, server = frames(24, 40, outputs=5), {"kv_pool_blocks": 2500}
    return serve(trace, engine, formula=False, server=server, window=window, **patience)


@pytest.mark.parametrize("engine", ["metronome", "liveserve_on_calls"])
def test_a_window_bounds_the_pool_and_neither_order_starves_a_session(engine: str):
    bounded, unbounded = run(engine, 512), run(engine, None)
    assert bounded.steps["kv_used"].max() <= 24 * (512 // 16 + 3)
    assert unbounded.steps["kv_used"].max() > bounded.steps["kv_used"].max()
    assert bounded.silent(80.0) == 0
    assert bounded.replay.proof["kv_blocks_used_after"] == 0
    if engine == "liveserve_on_calls":
        assert bounded.counters["thinker.rounds"] > 0
        assert bounded.counters["thinker.u1"] >= 24 and bounded.counters["thinker.u0"] > 0
        assert (bounded.kind("frame_out").groupby("session")["value"].sum() >= 5 * 38).all()
