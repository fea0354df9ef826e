"""Prefill and decode replicas of one stage, as a deployment file states them."""

from pathlib import Path

import pytest
import yaml

from engines import deployments
from engines.builder import Parts
from engines.deployments import load_deployment
from engines.server import ResolvedServer, ServerParams
from harness.events.log import EventLog
from tests.waiting import in_virtual_time

SPLIT = {"prefill": [[0, 1], [2, 3]], "decode": [[4, 5]]}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a deployment as the shipped one with other GPUs for its thinker; only it can be loaded then."""
    shipped = Path(deployments.__file__).with_name("llama_8b_1gpu.yaml")
    facts = yaml.safe_load(shipped.read_text())
    monkeypatch.setattr(deployments, "yaml_files", lambda what: {path.stem: path for path in tmp_path.glob("*.yaml")})
    load_deployment.cache_clear()

    def write(gpus: object) -> str:
        facts["stages"]["thinker"]["gpus"] = gpus
        (tmp_path / "divided.yaml").write_text(yaml.safe_dump(facts, sort_keys=False))
        return "divided"

    yield write
    load_deployment.cache_clear()


@pytest.mark.parametrize(
    ("gpus", "replicas", "roles"),
    [
        ({"prefill": [0, 1], "decode": [2]}, ((0,), (1,), (2,)), {"prefill": (0, 1), "decode": (2,)}),
        (SPLIT, ((0, 1), (2, 3), (4, 5)), {"prefill": (0, 1), "decode": (2,)}),
        ([0, 1], ((0,), (1,)), {}),
    ],
)
def test_a_mapping_from_roles_gives_each_replica_its_role(write, gpus, replicas, roles):
    deployment = load_deployment(write(gpus))
    stage = deployment.stages["thinker"]
    assert (stage.gpus, stage.roles, stage.split) == (replicas, roles, len(replicas[0]))
    assert deployment.gpu_groups == set(replicas)


ORDER = "roles are prefill and decode, in this order"


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        ({"prefill": [[0, 1]], "decode": [1]}, "two replicas share a part of their GPUs"),
        ({"decode": [0], "prefill": [1]}, ORDER),
        ({"prefill": [0]}, ORDER),
        ({"prefill": [0], "reduce": [1]}, ORDER),
    ],
)
def test_wrong_roles_are_refused(write, gpus: dict, says: str):
    with pytest.raises(ValueError, match=says):
        load_deployment(write(gpus))


@in_virtual_time
async def test_parts_build_the_replicas_of_a_role(write):
    name = write({"prefill": [0, 1], "decode": [2]})
    parts = Parts(ResolvedServer.of(ServerParams.of({"deployment": name})), EventLog(), seed=0)
    stage = parts.stage("thinker")
    by_role = [parts.replicas(stage, role) for role in ("prefill", "decode", None)]
    gpus = [replica.gpu for replicas in by_role[:2] for replica in replicas]
    assert [[replica.index for replica in replicas] for replicas in by_role] == [[0, 1], [2], [0, 1, 2]]
    assert len(set(map(id, gpus))) == 3
