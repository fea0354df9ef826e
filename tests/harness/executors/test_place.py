"""How a place is named, and what is not taken to it."""

import sys

import pytest

from harness.executors.place import Place
from tests.harness import fakes
from workloads.errors import UserError


@pytest.mark.parametrize("name", ["local", "auto", "ray://head:10001", "ray://10.0.0.1:10001", "slurm"])
def test_places(name: str) -> None:
    assert Place(name).local == (name == "local")


@pytest.mark.parametrize("device", ["paced", "sockets", "live", "cpu", "cuda"])
def test_what_depends_on_the_machine_stays_on_it(device: str) -> None:
    points = [fakes.points(1)[0].model_copy(update={"device": device})]
    Place().check(points)
    Place("slurm").check(fakes.points(1))
    with pytest.raises(
        UserError, match=f"takes points of device virtual, .*; device {device} is measured where"
    ):
        Place("slurm").check(points)


@pytest.mark.parametrize(
    ("name", "library", "extra"), [("auto", "ray", "ray"), ("slurm", "submitit", "slurm")]
)
def test_a_missing_library_is_named_with_what_brings_it(
    name: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with (
        pytest.raises(UserError, match=rf"needs the package {library}, .*\[{extra}\]"),
        Place(name).opened(),
    ):
        pass


def test_slurm_is_asked_for_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", sys)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="no sbatch on the PATH"), Place("slurm").opened():
        pass
