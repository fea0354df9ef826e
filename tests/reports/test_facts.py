from pathlib import Path

import yaml

from engines.deployments import deployment_facts, deployment_names, load_deployment
from engines.deployments.changes import on_gpus, scaled
from reports.replays.constants import CHOSEN, FITTED, Fact, facts
from reports.replays.served import voice_error


def test_fitted_constants_come_first_and_each_has_a_source() -> None:
    for name in deployment_names():
        found = facts(name)
        kinds = [fact.kind for fact in found]
        assert CHOSEN in kinds and kinds == sorted(kinds, key=lambda kind: kind != FITTED)
        assert all(fact.source and not fact.source.startswith("[") for fact in found)


def test_the_constants_are_those_of_the_deployment_and_of_its_gpu() -> None:
    found = {(fact.where, fact.name): fact for fact in facts("qwen3_omni_2gpu")}
    talker = found["qwen3_omni_2gpu", "stages talker host host_s"]
    assert ("qwen3_omni_30b_a3b", "stages talker host_s") not in found  # this server has its own
    assert talker.kind == FITTED and float(talker.value) > 0
    assert gpus_of(facts("qwen3_omni_2gpu")) == {"h200"}
    assert gpus_of(facts("qwen3_omni_2gpu", "h100")) == {"h100"}
    assert facts("of_an_older_version") == []


def gpus_of(found: list[Fact]) -> set[str]:
    """GPUs of whose PCIe bus the facts tell."""
    return {fact.name.split()[0] for fact in found if fact.where == "hardware" and "pcie_bandwidth" in fact.name}


def test_a_measured_efficiency_of_a_gpu_replaces_the_usual_one() -> None:
    name, reached = "llama_8b_h100", ("llama_8b_h100", "reached flops")
    usual = ("hardware", "efficiency flops")
    own = {(fact.where, fact.name): fact for fact in facts(name)}
    assert own[reached].kind == FITTED and usual not in own and ("hardware", "efficiency bandwidth") in own
    assert ("hardware", "h100 pcie_bandwidth") not in own
    other = {(fact.where, fact.name) for fact in facts(name, "h200")}
    assert reached not in other and usual in other


def test_a_known_error_is_that_of_one_server() -> None:
    deployment = load_deployment("qwen3_omni_2gpu")
    assert voice_error(deployment) == deployment.known_error
    for changed in (on_gpus(deployment, "h100"), scaled(deployment, {"talker.host_s": 2.0})):
        assert voice_error(changed).startswith(f"none is known for qwen3_omni_2gpu on {changed.gpu.name}:")


def test_stages_without_host_times_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    stated = deployment_facts("qwen3_omni_2gpu_april")
    for stage in stated["stages"].values():
        del stage["host"]
    path.write_text(yaml.safe_dump(stated, sort_keys=False))
    without = voice_error(load_deployment(str(path)))
    assert "it states no host times of its thinker, talker, vocoder" in without
