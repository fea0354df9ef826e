"""Requests held in front of prefill replicas until a batch is near."""

from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.lifecycle import Lifecycle, Phase
from harness.replays.worker.replay import Replay
from tests.engines import replays
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

SERVER = {"deployment": "llama_8b_h100", "max_num_batched_tokens": 4096, "stream_interval": 16}
RULES = ["least_load", "prefix_match", "dynamo", "omniproxy", "omniproxy_oss"]


def trace(requests: int = 40, rate: float = 20.0, seed: int = 0) -> Trace:
    return make_trace("novel", {"requests": requests, "rate": rate, "output_mean": 20.0}, seed)


def replayed(of: Trace, client: dict[str, Any] | None = None, server: Any = SERVER, **params: Any) -> Replay:
    system = {"routing": "omniproxy", "prefill": 2, "decode": 2, "deferred": True} | params
    return replays.run(of, "omniinfer", client=client, server=server, **system)


def left_empty(done: Replay) -> bool:
    return done.proof["requests_after"] == done.proof["kv_blocks_used_after"] == 0


@settings(max_examples=6)
@given(st.sampled_from([2.0, 20.0, 200.0]), st.integers(0, 99), st.sampled_from(RULES), st.sampled_from([0.3, 60.0]))
def test_every_request_passes_its_phases_in_order(rate: float, seed: int, routing: str, timeout_s: float):
    """Of who goes early, too: its phases end where it does."""
    lives: list[Lifecycle] = []

    class Watched(Lifecycle):
        def __init__(self, now: float) -> None:
            super().__init__(now)
            lives.append(self)

    with patch("engines.systems.omniinfer.proxy.deferral.Lifecycle", Watched):
        done = replayed(trace(30, rate, seed), client={"turn_timeout_s": timeout_s}, routing=routing)
    replies = (done.events.to_pandas()["kind"] == "reply_done").sum()
    assert len(lives) == 30 and left_empty(done)
    for life in lives:
        assert list(life.begun_s) == list(Phase)[: life.phase + 1]
        assert list(life.begun_s.values()) == sorted(life.begun_s.values())
    assert sum(life.phase is Phase.DECODING for life in lives) >= replies
    if timeout_s == 60.0:
        assert replies == 30


def test_a_burst_is_sorted_at_the_proxy_and_short_prompts_go_first():
    """Of requests that come at once, those handed over first are shorter than those that wait."""
    done = replayed(trace(rate=2000.0))
    arrive = replays.moments(done, "arrive")
    lengths = {session.id: session.turns[0].input_tokens for session in trace().sessions}
    order = [lengths[session] for session in arrive.sort_values().index]
    assert arrive.max() - arrive.min() > 1.0
    assert sum(order[:10]) < 0.6 * sum(order[-10:])


def test_nobody_is_handed_over_in_the_middle_of_a_batch():
    def waited_s(done: Replay) -> pd.Series:
        return replays.moments(done, "start") - replays.moments(done, "arrive")

    done = replayed(trace())
    longest_s = done.steps.to_pandas().query("replica < 2 and prefill_tokens > 0")["dt_s"].max()
    assert waited_s(done).max() < longest_s + 1.0, "at most the rest of a batch, or who has starved"
    assert waited_s(done).sum() < 0.5 * waited_s(replayed(trace(), deferred=False)).sum()


@pytest.mark.parametrize("rule", ["round_robin", "session_affinity", "least_work"])
def test_a_rule_that_cannot_choose_beforehand_is_refused(rule: str):
    with pytest.raises(UserError, match=f"routing={rule} can only send it there; set routing to one of: least_load"):
        replayed(trace(), routing=rule)
