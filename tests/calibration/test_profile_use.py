"""Virtual time with a profile: steps take what the fit says, at the stages that the profile has and no others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.deployments import load_deployment
from engines.devices import profile as profile_module
from engines.devices.profile import Profile, shipped_profile
from harness.by_device import expand
from harness.experiments.experiment import Experiment
from tests.calibration.test_profile_file import FACTS, FORMS, STAGE
from tests.engines.replays import replay
from workloads.registry import make_trace

FORM = FORMS["conserve"]
SPEECH = {
    **FACTS,
    "model": "speech_tiny",
    "stages": {
        stage: {**STAGE, "form": "conserve", "forms": {"conserve": {**FORM, "coefficients": {"k5": seconds}}}}
        for stage, seconds in (("thinker", 0.011), ("talker", 0.007))
    },
}


def steps(profile: dict | None, **server) -> Any:
    trace = make_trace("voice", {"sessions": 2, "turns": 1.0}, 3)
    params = {"deployment": "speech_tiny", **server}
    run = replay("vllm_omni", {}, params, {}, trace, seed=7, profile=profile)
    return run.steps.to_pandas().astype({"stage": str})


def test_a_step_takes_what_the_profile_says_and_the_vocoder_what_its_model_says():
    table = steps(SPEECH)
    shortest_s = table[table["tokens"] > 0].groupby("stage")["dt_s"].min()
    assert shortest_s[["thinker", "talker"]].tolist() == pytest.approx([0.011, 0.007], abs=1e-6)
    assert shortest_s["vocoder"] == pytest.approx(steps(None).query("stage == 'vocoder'")["dt_s"].min(), rel=0.2)


def experiment(**changes) -> Experiment:
    settings = {"deployment": "speech_tiny", "sessions": 2, **changes.pop("set", {})}
    return Experiment(name="e", engines=["vllm_omni"], workload="voice", set=settings, **changes)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[dict], str]:
    def file(facts: dict) -> str:
        path = tmp_path / "p.yaml"
        path.write_text(yaml.safe_dump(facts))
        return str(path)

    return file


def test_a_point_holds_the_content_of_its_profile_and_its_id_depends_on_it(file: Callable[[dict], str]):
    (point,) = expand(experiment(profile=file(SPEECH)))
    assert point.profile is not None
    assert Profile.model_validate(point.profile).model == "speech_tiny"
    (same,) = expand(experiment(profile=file(SPEECH)))
    (other,) = expand(experiment(profile=file({**SPEECH, "duration_s": 5.0})))
    assert point.id == same.id != other.id


def test_shipped_profiles_belong_to_deployments_and_are_their_default():
    names = {path.stem for path in (Path(profile_module.__file__).parent / "profiles").glob("*.yaml")}
    assert names >= {"llama_tiny", "speech_tiny"}
    for name in names:
        shipped, deployment = shipped_profile(name), load_deployment(name)
        assert shipped is not None and shipped.model == deployment.model.name
        assert shipped.stages.keys() <= deployment.stages.keys()
        assert shipped.machine["cpu"] and shipped.packages and shipped.date
    ((own,), (large,), (real,)) = map(
        expand, (experiment(), experiment(set={"deployment": "qwen3_omni_2gpu"}), experiment(device="cpu"))
    )
    assert own.profile is not None and own.profile["model"] == "speech_tiny"
    assert large.profile is None and real.profile is None
