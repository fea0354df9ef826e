"""A model of one's own in the place of the deployment's."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.models import load_model
from engines.server import ServerParams, check_modelled, resolve
from harness.experiments.experiment import Experiment, expand
from tests.engines.config_files import LLAMA, file_of
from workloads.errors import UserError


def test_a_model_is_served_in_the_place_of_the_deployments_own(tmp_path: Path) -> None:
    own = resolve(ServerParams(deployment="llama_8b_h100"))
    params = ServerParams(
        deployment="llama_8b_h100", model=file_of(tmp_path, LLAMA | {"num_hidden_layers": 16})
    )
    other = resolve(params)
    stage, usual = other.stages["thinker"], own.stages["thinker"]
    assert stage.decoder.layers == 16 and other.model.stages == {"thinker": stage.decoder}
    assert other.model.name == "mine" and other.name == own.name
    assert stage.max_num_seqs == usual.max_num_seqs and stage.kv_blocks > 2 * usual.kv_blocks
    assert stage.max_model_len == 8192 < usual.max_model_len
    named = resolve(ServerParams(deployment="llama_8b_h100", model="qwen2_5_14b"))
    assert named.stages["thinker"].decoder == load_model("qwen2_5_14b").stages["thinker"]
    assert resolve(ServerParams(deployment="llama_70b_4xh100", model="qwen2_5_7b")).name == "llama_70b_4xh100"
    scaled = resolve(params.model_copy(update={"scale": "thinker.layers=2.0"}))
    assert scaled.stages["thinker"].decoder == replace(stage.decoder, layers=32)


def test_its_own_model_changes_nothing() -> None:
    own = resolve(ServerParams(deployment="llama_8b_h100"))
    assert resolve(ServerParams(deployment="llama_8b_h100", model="llama_3_1_8b")) == own
    assert "model" not in ServerParams().model_dump() and "model_facts" not in ServerParams().model_dump()


def test_a_real_device_and_a_measured_profile_have_their_own_model() -> None:
    params = ServerParams(deployment="llama_tiny", model="llama_small")
    for device, measured in (("cpu", ()), ("virtual", ("thinker",))):
        with pytest.raises(UserError, match="leave model out"):
            check_modelled(params, device, measured)
    check_modelled(params, "virtual", ())
    with pytest.raises(UserError, match="model and checkpoint are both set"):
        resolve(params.model_copy(update={"checkpoint": "/nowhere"}))


def points(model: str | None) -> list[Any]:
    chosen = {"modality": "text", "reply": "text", "requests": 2, "deployment": "llama_8b_h100"}
    more = {} if model is None else {"model": model}
    return expand(Experiment(name="x", engines=["vllm_omni"], workload="poisson", set=chosen | more))


def test_a_point_stands_for_what_the_file_held(tmp_path: Path) -> None:
    path = file_of(tmp_path, LLAMA)
    (first,) = points(path)
    assert first.label == points(None)[0].label and first.id != points(None)[0].id
    file_of(tmp_path, LLAMA | {"num_hidden_layers": 16})
    (second,) = points(path)
    assert second.id != first.id
    file_of(tmp_path, LLAMA)
    assert points(path)[0].id == first.id
    os.remove(path)
    kept = type(second).model_validate_json(second.model_dump_json())
    assert kept.id == second.id
    assert resolve(ServerParams.of(kept.server_params)).stages["thinker"].decoder.layers == 16
