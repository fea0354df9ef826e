"""`scale`: factors on named constants of a deployment."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.deployments import Deployment
from engines.deployments.changes import constants, parse_scale, write_scale
from engines.server import ServerParams, resolve
from harness.by_device import expand, override
from harness.experiments.experiment import Experiment
from workloads.errors import validate


def server(**params: Any) -> Deployment:
    return resolve(ServerParams.of(params))


STOCK = server()
NAMES = sorted(constants(STOCK))


def test_a_factor_multiplies_its_constant_and_nothing_else():
    what_if = server(scale="talker.host_s=1.25,hop_s=0.75,pcie_bandwidth=0.5")
    before, after = constants(STOCK), constants(what_if)
    changed = {name: after[name] / before[name] for name in before if after[name] != before[name]}
    assert changed == {"talker.host_s": 1.25, "hop_s": 0.75, "pcie_bandwidth": 0.5}
    assert what_if.model.stages["talker"] is what_if.stages["talker"].decoder
    assert server() == STOCK


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_can_be_scaled(name: str):
    after = constants(server(scale=f"{name}=2"))
    assert after[name] == 2 * constants(STOCK)[name]


def test_a_scaled_count_stays_whole():
    assert server(scale="thinker.layers=0.77").stages["thinker"].decoder.layers == 37  # 48 x 0.77 = 36.96


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0.01, 100), min_size=1, max_size=5))
def test_a_scale_is_read_back_as_written_in_any_order(factors: dict[str, float]):
    assert parse_scale(write_scale(factors)) == factors
    text = validate(ServerParams, {"scale": write_scale(factors)}, "server parameters").scale
    reordered = ", ".join(f"{name} = {factor!r}" for name, factor in reversed(sorted(factors.items())))
    assert ServerParams.of({"scale": reordered}).scale == text  # the same factors are the same point


@pytest.mark.parametrize(
    ("setting", "scales"),
    [
        ("'talker.host_s=1.25,hop_s=0.75'", ["hop_s=0.75,talker.host_s=1.25"]),
        ("null,hop_s=0.75,hop_s=1.25", [None, "hop_s=0.75", "hop_s=1.25"]),
    ],
)
def test_set_scale_in_quotes_is_one_point_and_without_quotes_several(setting: str, scales: list[str | None]):
    experiment = Experiment(name="x", engines=["vllm_omni"], workload="voice", set={"sessions": 2})
    points = expand(override(experiment, {"scale": setting}))
    assert [point.server_params["scale"] for point in points] == scales
