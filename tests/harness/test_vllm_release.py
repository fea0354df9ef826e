"""Points of several releases of vLLM in one experiment."""

from pathlib import Path

import pytest

from harness.by_device import override
from harness.records.record import load_record
from harness.replays.executors.local import LocalExecutor
from harness.replays.expand import expand
from harness.replays.point import ReplayPoint
from harness.replays.worker import vllm_release
from reports.runs.measured import Measured
from tests.harness import fakes
from workloads.errors import UserError

OLD, NEW = "9.8.0", "9.9.0"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two releases, which hold nothing but a scheduler."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "rehearsal" / "vllm"
    for release in (OLD, NEW):
        checkout(cache / release)
    return cache


def checkout(folder: Path, text: str = "") -> Path:
    scheduler = folder / "vllm" / "v1" / "core" / "sched" / "scheduler.py"
    scheduler.parent.mkdir(parents=True)
    scheduler.write_text(text)
    (folder / "vllm" / "__init__.py").touch()
    return folder


def points() -> list[ReplayPoint]:
    here = fakes.experiment(1)
    return [*expand(here), *expand(override(here, {"vllm": [OLD, NEW]}))]


def test_each_release_has_a_fork_server_and_its_workers_that_vllm(tmp_path: Path, cache: Path):
    executor = LocalExecutor(tmp_path / "points", fakes.where_vllm_is, jobs=1, timeout_s=60, preload=())
    (tmp_path / "points").mkdir()
    outcomes = list(executor.run([*points(), *expand(override(fakes.experiment(2), {"vllm": NEW}))[1:]]))
    assert {outcome.status for outcome in outcomes} == {"ok"}
    manifests = [load_record(outcome.folder).manifest for outcome in outcomes]
    installed, old, new, again = (manifest["proof"] for manifest in manifests)
    folders = [Path(each["vllm"]).parts[-3][:13] for each in (old, new, again)]
    assert folders == [f"python-{release}-" for release in (OLD, NEW, NEW)]
    assert not Path(installed["vllm"]).is_relative_to(cache)
    assert new["fork_server_pid"] == again["fork_server_pid"]
    assert len({each["fork_server_pid"] for each in (installed, old, new)}) == 3
    assert [manifest["packages"].get("vllm") for manifest in manifests[1:]] == ["9.8.0+cpu", "9.9.0+cpu", "9.9.0+cpu"]


def test_releases_are_variants_of_one_experiment_told_apart():
    installed, old, new = points()
    assert len({installed.id, old.id, new.id}) == 3
    assert "vllm" not in installed.params and installed.label == "vllm_omni seed=0"
    assert (old.label, new.label) == ("vllm_omni vllm=9.8.0 seed=0", "vllm_omni vllm=9.9.0 seed=0")
    assert old.trace_hash == new.trace_hash
    seen = [Measured(point, None, None) for point in (old, new)]  # type: ignore[arg-type]
    assert [each.variant.label for each in seen] == ["vllm_omni vllm=9.8.0", "vllm_omni vllm=9.9.0"]
    assert seen[0].cell == seen[1].cell == ()


def test_a_process_with_another_vllm_measures_nothing_and_missing_names_are_listed(cache: Path):
    with pytest.raises(RuntimeError, match=r"is to run on vLLM 9\.9\.0"):
        vllm_release.check_loaded(NEW)
    vllm_release.check_loaded(None)
    with pytest.raises(UserError, match=r"vLLM 9\.9\.0 is not one that replays run on: .*'vllm\.\w+"):
        vllm_release.check([NEW])


def test_a_checkout_is_named_by_its_content_and_kept(tmp_path: Path, cache: Path):
    one = vllm_release.release_of(str(checkout(tmp_path / "one")))
    assert one == vllm_release.release_of(str(checkout(tmp_path / "same")))
    other = vllm_release.release_of(str(checkout(tmp_path / "other", "changed = True\n")))
    assert one.startswith("0.0.0.dev0+") and one != other
    assert {"vllm": one}.items() <= expand(override(fakes.experiment(1), {"vllm": one}))[0].params.items()
    scheduler = vllm_release.python_path(other) / "vllm" / "v1" / "core" / "sched" / "scheduler.py"
    assert scheduler.read_text() == "changed = True\n"
    with pytest.raises(UserError, match="no longer in the cache"):
        vllm_release.python_path("0.0.0.dev0+12345678")


@pytest.mark.parametrize("given", ["0.33", "../x", "latest", ""])
def test_a_release_is_a_version(given: str):
    for read in (vllm_release.release_of, vllm_release.source):
        with pytest.raises(UserError, match=r"is (not a|neither a) release"):
            read(given)
