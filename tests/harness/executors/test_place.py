"""How a place is named, and what is not taken to it."""

import sys

import pytest

from harness.replays.executors.place import Place
from tests.harness import fakes
from workloads.errors import UserError


@pytest.mark.parametrize("name", ["local", "auto", "ray://head:10001", "ray://10.0.0.1:10001"])
def test_places(name: str) -> None:
    assert Place(name).local == (name == "local")


@pytest.mark.parametrize("device", ["paced", "sockets", "live", "cpu", "cuda"])
def test_what_depends_on_the_machine_stays_on_it(device: str) -> None:
    points = [fakes.points(1)[0].model_copy(update={"device": device})]
    Place().check(points)
    Place("auto").check(fakes.points(1))
    with pytest.raises(UserError, match=f"is for device virtual, .*; device {device} is measured on"):
        Place("auto").check(points)


def test_a_missing_library_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs the package ray, .*\[ray\]"), Place("auto").opened():
        pass
