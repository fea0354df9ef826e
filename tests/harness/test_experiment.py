"""Experiments expand to points with ids that stand for their content."""

from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from engines.registry import ENGINES
from engines.server import ServerParams
from harness.by_device import expand, override
from harness.client.client_params import ClientParams
from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.live.endpoints.target import TargetParams
from harness.replays import expand as module
from workloads.errors import UserError
from workloads.registry import WORKLOADS


def make(**changes: object) -> Experiment:
    fields: dict = {
        "name": "test",
        "engines": ["vllm_omni", "liveserve"],
        "workload": "voice",
        "set": {"sessions": 2},
        "grid": {"c": [4, 8], "p": [0.0, 0.7]},
        "seeds": 3,
    }
    return Experiment.model_validate({**fields, **changes})


def test_the_grid_is_complete_and_ordered() -> None:
    cells = [(point.engine, point.params["c"], point.params["p"], point.seed) for point in expand(make())]
    assert cells == [*product(("vllm_omni", "liveserve"), (4, 8), (0.0, 0.7), (0, 1, 2))]


def test_ids_are_unique_and_independent_of_the_grid_they_come_from() -> None:
    points = expand(make())
    ids = [point.id for point in points]
    assert len(set(ids)) == len(ids)
    assert all(len(id) == 16 and int(id, 16) >= 0 for id in ids)
    narrowed = expand(override(make(), {"c": "8", "p": "0.7"}))
    assert [point.id for point in narrowed] == [
        point.id for point in points if (point.params["c"], point.params["p"]) == (8, 0.7)
    ]


def test_equal_values_are_the_same_point() -> None:
    assert expand(make(grid={"p": [0]}, set={"c": "4"})) == expand(make(grid={"p": [0.0]}, set={"c": 4}))


def test_a_changed_program_gives_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {point.id for point in expand(make())}
    monkeypatch.setattr(module, "code_hash", lambda *_: "another program")
    assert before.isdisjoint(point.id for point in expand(make()))


def test_a_changed_input_file_gives_other_ids(tmp_path: Path) -> None:
    file = tmp_path / "sessions.csv"
    base = make(workload="sessions", grid={}, set={"path": str(file)}, seeds=1)
    file.write_text("session_id,t,query,output\n1,0.0,10,20\n")
    (before, *_) = expand(base)
    file.write_text("session_id,t,query,output\n1,0.0,10,21\n")
    (after, *_) = expand(base)
    assert before.workload_params == after.workload_params
    assert before.id != after.id


def test_engines_share_the_trace() -> None:
    by_engine: dict[str, list[str]] = {}
    for point in expand(make(set={"sessions": 16})):
        by_engine.setdefault(point.engine, []).append(point.trace_hash)
    assert by_engine["vllm_omni"] == by_engine["liveserve"]
    assert len(set(by_engine["liveserve"])) == 2 * 3  # by p and seed; c is the client's


@pytest.mark.parametrize(
    ("settings", "c", "p"),
    [({"c": "16"}, [16], [0.0, 0.7]), ({"c": "1,2,3"}, [1, 2, 3], [0.0, 0.7]), ({"p": "0.5", "c": "8"}, [8], [0.5])],
)
def test_an_override_narrows_or_replaces_an_axis(settings: dict, c: list, p: list) -> None:
    params: list[dict[str, Any]] = [point.params for point in expand(override(make(), settings))]
    assert [sorted({each[axis] for each in params}) for axis in ("c", "p")] == [c, p]


def test_several_values_of_a_plain_parameter_make_an_axis() -> None:
    experiment = override(make(), {"network_ms": "1,20", "c": "4", "p": "0"}, seeds=1)
    assert experiment.grid == {"network_ms": [1, 20]}
    assert [point.label for point in expand(experiment)][:2] == [
        "vllm_omni network_ms=1.0 seed=0",
        "vllm_omni network_ms=20.0 seed=0",
    ]


def test_parameter_names_are_unique_over_the_groups_and_each_is_described() -> None:
    server, client, target = (model.model_fields for model in (ServerParams, ClientParams, TargetParams))
    for workload in WORKLOADS.values():
        fields = workload.Params.model_fields
        groups = [(fields, client, target), *((fields, client, server, each.fields({})) for each in ENGINES.values())]
        for group in groups:
            names = sorted(chain(*group))
            assert names == sorted({*names})
            assert not [name for fields in group for name, field in fields.items() if not field.description]


def calls(engine: str, **settings: Any) -> Sequence[Point]:
    fixed = {"deployment": "qwen3_omni_pro6000", **settings}
    return expand(Experiment(name="e", engines=[engine], workload="metronome", set=fixed))


@pytest.mark.parametrize("engine", ["vllm_realtime", "metronome"])
def test_a_session_that_could_outgrow_the_model_is_refused_before_the_run(engine: str) -> None:
    """A frame of 2 s adds 44 tokens of input and 12 of output, of which one is dropped. The length grows under a window
    too, and a run that hits the limit looks like a wall. 595 frames have 595 * 55 = 32,725 tokens, 596 do not fit."""
    no_spread = {"run_cv": 0, "session_cv": 0, "frame_cv": 0}
    fixed = {"sessions": 2, "template_tokens": 16, "tokens_per_frame": 12.0, **no_spread}
    assert calls(engine, **fixed, duration_s=1191.5)
    with pytest.raises(UserError, match=r"session 0 could grow to 32781 tokens, and max_model_len .* is 32768; set"):
        calls(engine, **fixed, duration_s=1193.5)
    assert calls(engine, **fixed, duration_s=1193.5, on_max_len="finish_one")
    assert calls("recycling", **fixed, duration_s=1193.5), "a request that is replaced at its horizon stays shorter"
