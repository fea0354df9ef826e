"""Requests held in front of prefill replicas: phases in order, nobody lost, none handed over while its batch is far."""

from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import patch

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


def replayed(of: Trace, client: dict[str, Any] | None = None, **params: Any) -> Replay:
    system = {"routing": "omniproxy", "prefill": 2, "decode": 2, "deferred": True} | params
    return replays.run(of, "omniinfer", client=client, server=SERVER, **system)


@settings(max_examples=6)
@given(
    rate=st.sampled_from([2.0, 20.0, 200.0]),
    seed=st.integers(0, 99),
    routing=st.sampled_from(RULES),
    timeout_s=st.sampled_from([0.3, 60.0]),
)
def test_phases_never_skip(rate: float, seed: int, routing: str, timeout_s: float):
    """Of who goes early, too: its phases end where it does."""
    lives: list[Lifecycle] = []

    class Watched(Lifecycle):
        def __init__(self, now: float) -> None:
            super().__init__(now)
            lives.append(self)

    with patch("engines.systems.omniinfer.proxy.deferral.Lifecycle", Watched):
        done = replayed(trace(30, rate, seed), client={"turn_timeout_s": timeout_s}, routing=routing)
    kinds = done.events.to_pandas()["kind"].value_counts()
    assert len(lives) == 30 and done.proof["requests_after"] == done.proof["kv_blocks_used_after"] == 0
    for life in lives:
        assert list(life.begun_s) == list(Phase)[: life.phase + 1]
        assert list(life.begun_s.values()) == sorted(life.begun_s.values())
    answered = sum(life.phase is Phase.DECODING for life in lives)
    assert answered >= kinds.get("reply_done", 0)
    if timeout_s == 60.0:
        assert kinds["reply_done"] == 30


def test_a_burst_is_sorted_at_the_proxy_and_short_prompts_go_first():
    """Of requests that come at once, those handed over first are shorter than those that wait."""
    done = replayed(trace(rate=2000.0))
    arrive = replays.moments(done, "arrive")
    lengths = {session.id: session.turns[0].input_tokens for session in trace().sessions}
    order = [lengths[session] for session in arrive.sort_values().index]
    assert arrive.max() - arrive.min() > 1.0
    assert sum(order[:10]) < 0.6 * sum(order[-10:])


def test_nobody_is_handed_over_in_the_middle_of_a_batch():
    done = replayed(trace(rate=20.0))
    steps = done.steps.to_pandas()
    prefill = steps[(steps["replica"] < 2) & (steps["prefill_tokens"] > 0)]
    waited = replays.moments(done, "start") - replays.moments(done, "arrive")
    waited = waited[waited > 1e-6]
    assert waited.max() < prefill["dt_s"].max() + 1.0, "at most the rest of a batch, or who has starved"
    at_once = replayed(trace(rate=20.0), deferred=False)
    before = replays.moments(at_once, "start") - replays.moments(at_once, "arrive")
    assert waited.sum() < 0.5 * before.sum()


def test_who_finds_all_decode_replicas_full_waits_for_a_place(tmp_path: Path):
    """By least work no replica has more than its slots, and all are answered; by round robin some queue at one."""
    busy = trace(30, 50.0)
    shipped = (files("engines.deployments") / "llama_8b_h100.yaml").read_text()
    few = tmp_path / "four_slots.yaml"
    few.write_text(shipped.replace("max_num_seqs: 256", "max_num_seqs: 4"))
    server = SERVER | {"deployment": str(few)}
    for rule in ("least_work", "round_robin"):
        done = replays.run(
            busy, "omniinfer", server=server, prefill=2, decode=2, routing="least_load", decode_routing=rule
        )
        assert (done.events.to_pandas()["kind"] == "reply_done").sum() == 30
        assert done.proof["requests_after"] == done.proof["kv_blocks_used_after"] == 0


@pytest.mark.parametrize("rule", ["round_robin", "session_affinity", "least_work"])
def test_a_rule_that_cannot_choose_beforehand_is_refused(rule: str):
    with pytest.raises(UserError, match=f"routing={rule} can only send it there; set routing to one of: least_load"):
        replayed(trace(), routing=rule)
