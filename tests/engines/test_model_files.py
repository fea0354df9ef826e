"""Model files: written and read, shipped ones, refused ones, and a user's model in place of the deployment's."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engines.deployments import Deployment
from engines.models import load_model, model_of
from engines.models.config_file import as_yaml, read_config
from engines.server import ServerParams, check_modelled, resolve
from harness.by_device import expand
from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from tests.engines.config_files import DEEPSEEK, FP8, LLAMA, MIXTRAL, QWEN3_MOE, Config, file_of, written
from workloads.errors import UserError


@pytest.mark.parametrize("config", [LLAMA, LLAMA | FP8, MIXTRAL, QWEN3_MOE | {"mlp_only_layers": [1]}, DEEPSEEK])
def test_a_config_file_survives_being_written_as_a_model_file(tmp_path: Path, config: Config) -> None:
    found = read_config(written(tmp_path, config), "who/Model-1.5")
    path = tmp_path / found.file_name
    path.write_text(as_yaml(found))
    model = load_model(str(path))
    assert model.name == "model_1_5" == path.stem
    assert model.stages == {"thinker": found.decoder} and model.max_model_len == 8192


def test_shipped_models_have_the_parameters_of_their_cards() -> None:
    sizes = {
        "meta-llama/Llama-2-7b-hf": 6.74,
        "meta-llama/Llama-2-13b-hf": 13.02,
        "meta-llama/Llama-2-70b-chat-hf": 68.98,
        "meta-llama/Llama-3.1-405B": 405.85,
        "codellama/CodeLlama-34b-Instruct-hf": 33.74,
        "mistralai/Mistral-7B-v0.1": 7.24,
        "mistralai/Mixtral-8x7B-v0.1": 46.70,
        "Qwen/Qwen2.5-7B-Instruct": 7.62,
        "Qwen/Qwen2.5-14B": 14.77,
        "Qwen/Qwen2.5-32B": 32.76,
        "Qwen/Qwen2.5-72B": 72.71,
        "Qwen/Qwen3-8B": 8.19,
        "qwen/qwen3-14b": 14.77,
        "Qwen/Qwen3-32B": 32.76,
        "Qwen/Qwen3-30B-A3B": 30.53,
    }  # billions of parameters, as the models' cards say
    for name, billions in sizes.items():
        model = model_of(name)
        assert model is not None, name
        (decoder,) = model.stages.values()
        assert decoder.weight_bytes / 2 / 1e9 == pytest.approx(billions, rel=0.001), name
    assert model_of("Qwen/Qwen3-8B-Unknown") is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("value: 32,", "value: -32,", "layers is -32"),
        ("value: 32,", "value: many,", "layers is 'many'"),
        (', source: "[config] llama"', "", "has no source"),
        ("hidden:", "hiden:", "hiden"),
        ("value: 8,", "value: 7,", "kv_heads is 7"),
        ("dtype_bytes: {value: 2", "dtype_bytes: {value: 3", "dtype_bytes is 3"),
        ("stages:", "stage:", "no stages"),
        ("  thinker:", "  - thinker:", "no stages"),
        ("audio: null", "audio: [", "not valid YAML"),
    ],
)
def test_a_wrong_model_file_is_refused_with_its_field_and_value(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = as_yaml(read_config(written(tmp_path, LLAMA)))
    assert old in text
    path = written(tmp_path, text.replace(old, new, 1), "model.yaml")
    with pytest.raises(UserError, match=words) as refused:
        load_model(str(path))
    assert str(path) in str(refused.value)


def server(**params: str) -> Deployment:
    return resolve(ServerParams.of(params))


def test_a_model_is_served_in_the_place_of_the_deployments_own(tmp_path: Path) -> None:
    own = server(deployment="llama_8b_h100")
    own_file = file_of(tmp_path, LLAMA | {"num_hidden_layers": 16})
    other = server(deployment="llama_8b_h100", model=own_file)
    stage, usual = other.stages["thinker"], own.stages["thinker"]
    assert stage.decoder.layers == 16 and other.model.stages == {"thinker": stage.decoder}
    assert other.model.name == "mine" and other.name == own.name
    assert stage.max_num_seqs == usual.max_num_seqs and stage.kv_blocks > 2 * usual.kv_blocks
    assert stage.max_model_len == 8192 < usual.max_model_len
    named = server(deployment="llama_8b_h100", model="qwen2_5_14b")
    assert named.stages["thinker"].decoder == load_model("qwen2_5_14b").stages["thinker"]
    assert server(deployment="llama_70b_4xh100", model="qwen2_5_7b").name == "llama_70b_4xh100"
    scaled = server(deployment="llama_8b_h100", model=own_file, scale="thinker.layers=2.0")
    assert scaled.stages["thinker"].decoder == replace(stage.decoder, layers=32)


def test_naming_the_deployment_s_own_model_changes_nothing() -> None:
    own = server(deployment="llama_8b_h100")
    assert server(deployment="llama_8b_h100", model="llama_3_1_8b") == own
    unset = {"gpu", "model", "model_facts", "runtime", "slower", "active_stream_window"}
    assert not unset & ServerParams.of({}).model_dump().keys(), "points keep their ids"


def test_a_real_device_and_a_measured_profile_have_their_own_model() -> None:
    params = ServerParams.of({"deployment": "llama_tiny", "model": "llama_small"})
    for device, measured in (("cpu", ()), ("virtual", ("thinker",))):
        with pytest.raises(UserError, match="leave model out"):
            check_modelled(params, device, measured)
    check_modelled(params, "virtual", ())
    with pytest.raises(UserError, match="model and checkpoint are both set"):
        resolve(params.model_copy(update={"checkpoint": "/nowhere"}))


def points(model: str | None) -> Sequence[Point]:
    chosen = {"modality": "text", "reply": "text", "requests": 2, "deployment": "llama_8b_h100"}
    more = {} if model is None else {"model": model}
    return expand(Experiment(name="x", engines=["vllm_omni"], workload="poisson", set=chosen | more))


def test_a_point_s_id_stands_for_the_content_of_the_model_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, LLAMA)
    (first,) = points(path)
    assert first.label == points(None)[0].label and first.id != points(None)[0].id
    file_of(tmp_path, LLAMA | {"num_hidden_layers": 16})
    (second,) = points(path)
    assert second.id != first.id
    file_of(tmp_path, LLAMA)
    assert points(path)[0].id == first.id
    os.remove(path)
    kept = Point.model_validate_json(second.model_dump_json())
    assert kept.id == second.id
    assert resolve(ServerParams.of(kept.server_params)).stages["thinker"].decoder.layers == 16
