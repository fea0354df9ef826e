"""Facts that a policy sees of its requests, and the state that policies of replicas share."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from engines.composition import COMPONENTS, Scheduler, register
from engines.core.policy import Plan, StageView
from engines.core.stage import ENTRY
from engines.registry import ENGINES
from harness.request_tables.request_table import request_table
from tests.builders import refused, turn, typed_turn
from tests.engines.replays import replay
from workloads.trace import Trace


class Noting:
    """Notes the facts of each request once, at `stage`, and what steps produced, in `shared`."""

    def __init__(self, stage: str, shared: dict[str, Any]) -> None:
        self.counters: Counter[str] = Counter()
        self.stage, self.shared = stage, shared
        shared["policies"] = shared.get("policies", 0) + 1

    def plan(self, view: StageView) -> Plan:
        for each in view.requests:
            facts = (each.prompt_tokens, each.max_tokens, each.tenant, each.predicted_tokens)
            self.shared.setdefault("facts", {})[each.id] = facts
        return Plan()

    def produced(self, request: str, tokens: int, finished: bool) -> None:
        self.shared.setdefault("made", Counter())[request] += tokens
        self.shared.setdefault("finished", []).extend([request] * finished)


@pytest.fixture
def stages() -> Iterator[dict[str, dict[str, Any]]]:
    """Component scheduler=noting; gives what it noted at each stage."""
    noted: dict[str, dict[str, Any]] = {}
    register(
        Scheduler(
            "noting",
            "notes",
            policy=lambda stage, params, shared: Noting(stage, shared),
            shared=lambda stage, params: noted.setdefault(stage, {}),
        )
    )
    yield noted
    del COMPONENTS["scheduler"]["noting"]


def test_a_policy_sees_lengths_tenants_predictions_and_produced_tokens(stages: dict[str, dict[str, Any]]) -> None:
    said = [
        typed_turn(0, 0, input_tokens=30, output_tokens=4, tenant="a", predicted_tokens=9),
        typed_turn(0, 1, input_tokens=10, output_tokens=1, tenant="a"),
        typed_turn(1, 0, input_tokens=50, output_tokens=6),
    ]
    trace = Trace.from_turns(said)
    done = replay("vllm_omni_wo", {"scheduler": "noting"}, {"deployment": "llama_8b_1gpu"}, {}, trace, 7)
    noted = stages[ENTRY]
    name = done.events.to_pandas().query("kind == 'arrive'")["stage"].iloc[0]
    assert noted["facts"] == {
        f"0.0.{name}": (30, 4, "a", 9),
        f"0.1.{name}": (30 + 4 + 10, 1, "a", None),
        f"1.0.{name}": (50, 6, "", None),
    }
    assert noted["made"] == {f"0.0.{name}": 4, f"0.1.{name}": 1, f"1.0.{name}": 6}
    assert sorted(noted["finished"]) == sorted(noted["facts"])
    table = request_table(done.events.to_pandas(), pd.DataFrame(trace.columns()))
    assert table["tenant"].tolist() == ["a", "a", ""]


def test_replicas_of_a_stage_share_what_other_stages_do_not(stages: dict[str, dict[str, Any]]) -> None:
    trace = Trace.from_turns([turn(session, 0, arrival_s=session / 10) for session in range(4)])
    replay("vllm_omni_wo", {"scheduler": "noting"}, {"deployment": "qwen3_omni_8gpu"}, {}, trace, 7)
    assert stages[ENTRY]["policies"] > 1 and len(stages[ENTRY]["finished"]) == 4
    assert stages["talker"]["policies"] > 1 and len(stages["talker"]["finished"]) == 4
    assert {facts[1] for facts in stages[ENTRY]["facts"].values()} == {60}


def test_stock_vllm_refuses_a_policy_that_follows_steps(stages: dict[str, dict[str, Any]]) -> None:
    engine: Any = ENGINES["vllm_omni_wo"]
    with refused("scheduler=noting follows each step's tokens", "rehearse run"):
        engine.policy(ENTRY, engine.read({"scheduler": "noting"}))
