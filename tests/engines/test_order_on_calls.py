"""LiveServe's order on calls: what listeners have heard, and the window that bounds their KV."""

from collections.abc import Callable
from typing import Any

import pytest

from engines.frames.listeners import CallListeners
from engines.frames.session_engine import SessionRequest
from tests.engines import frames as calls
from tests.engines.frames import frames
from tests.waiting import in_virtual_time

serve: Callable[..., Any] = calls.serve
"""Pandas' stubs do not know which columns of a run hold numbers."""
FRAME_S, TOKEN_S = 2.0, 0.25


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
