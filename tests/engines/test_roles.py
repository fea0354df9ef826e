"""Replicas of one stage that do different things, as a deployment says: prefill here, decode there."""

from pathlib import Path

import pytest
import yaml

from engines import deployments
from engines.builder import Parts
from engines.deployments import load_deployment
from engines.server import ResolvedServer, ServerParams
from harness.events.log import EventLog
from tests.waiting import in_virtual_time


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a deployment as the shipped one with other GPUs for its thinker; only it can be loaded then."""
    shipped = Path(deployments.__file__).with_name("llama_8b_1gpu.yaml")
    facts = yaml.safe_load(shipped.read_text())
    monkeypatch.setattr(deployments, "yaml_files", lambda what: {path.stem: path for path in tmp_path.glob("*.yaml")})
    load_deployment.cache_clear()

    def write(gpus: object, name: str = "divided") -> str:
        facts["stages"]["thinker"]["gpus"] = gpus
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(facts, sort_keys=False))
        return name

    yield write
    load_deployment.cache_clear()


def test_a_mapping_from_roles_gives_each_replica_its_role(write):
    stage = load_deployment(write({"prefill": [0, 1], "decode": [2]})).stages["thinker"]
    assert stage.gpus == ((0,), (1,), (2,))
    assert stage.roles == {"prefill": (0, 1), "decode": (2,)}


def test_a_replica_of_a_role_may_be_split_over_gpus(write):
    deployment = load_deployment(write({"prefill": [[0, 1], [2, 3]], "decode": [[4, 5]]}))
    stage = deployment.stages["thinker"]
    assert stage.gpus == ((0, 1), (2, 3), (4, 5)) and stage.split == 2
    assert stage.roles == {"prefill": (0, 1), "decode": (2,)}
    assert deployment.gpu_groups == {(0, 1), (2, 3), (4, 5)}


def test_a_plain_list_has_no_roles(write):
    stage = load_deployment(write([0, 1])).stages["thinker"]
    assert stage.gpus == ((0,), (1,)) and stage.roles == {}


def test_a_gpu_has_one_role(write):
    with pytest.raises(ValueError, match="two replicas share a part of their GPUs"):
        load_deployment(write({"prefill": [[0, 1]], "decode": [1]}))


def test_prefill_comes_before_decode(write):
    for gpus in ({"decode": [0], "prefill": [1]}, {"prefill": [0]}, {"prefill": [0], "reduce": [1]}):
        with pytest.raises(ValueError, match="roles are prefill and decode, in this order"):
            load_deployment(write(gpus, "-".join(gpus)))


@in_virtual_time
async def test_parts_make_the_replicas_of_a_role(write):
    name = write({"prefill": [0, 1], "decode": [2]})
    parts = Parts(ResolvedServer.of(ServerParams(deployment=name)), EventLog(), seed=0)
    stage = parts.stage("thinker")
    by_role = [parts.replicas(stage, role) for role in ("prefill", "decode", None)]
    gpus = [replica.gpu for replicas in by_role[:2] for replica in replicas]
    assert [[replica.index for replica in replicas] for replicas in by_role] == [[0, 1], [2], [0, 1, 2]]
    assert len(set(map(id, gpus))) == 3
