import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from workloads.errors import UserError
from workloads.plugins import load

GROUP = "rehearsal.systems"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rehearsal_test_plugin", raising=False)  # of an earlier test
    return tmp_path / "rehearsal_test_plugin.py"


@pytest.mark.parametrize(
    ("source", "value", "fault"),
    [
        ("one = 1\ntwo = dict(1)\n", "", "TypeError: 'int' object is not iterable .*test_plugin.py, line 2"),
        ("import no_such_package\n", "", "No module named 'no_such_package' .*test_plugin.py, line 1"),
        ("one = 1\n", ":SYSTEMS", "has no attribute 'SYSTEMS'"),
        ("one = (\n", "", "SyntaxError"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named(package: Path, source: str, value: str, fault: str):
    package.write_text(source)
    value = f"rehearsal_test_plugin{value}"
    with pytest.raises(UserError, match=f"cannot load {value}, .* names as mine of {GROUP}: .*{fault}"):
        load(EntryPoint("mine", value, GROUP))


def test_a_user_error_of_a_package_stays_as_it_is(package: Path):
    package.write_text("from workloads.errors import UserError\nraise UserError('set MY_DATA first.')\n")
    with pytest.raises(UserError, match=r"^set MY_DATA first\.$"):
        load(EntryPoint("mine", "rehearsal_test_plugin", GROUP))
