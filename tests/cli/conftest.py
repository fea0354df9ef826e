"""The command line as a user runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal.harness.experiment import Experiment, Point, expand
from rehearsal.reports import cli
from tests.reports import served, written

Rehearse = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rehearse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Rehearse:
    """Runs a command in an empty directory; returns exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def rehearse(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["rehearse", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return end.value.code, *capsys.readouterr()

    return rehearse


def small(**changes) -> Experiment:
    return served.bench(**{"engines": ["vllm_omni"], "grid": {"c": [8, 16]}, **changes})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Fills a results directory from scripted servers, `slower` times as slow, on `device`."""

    def serve(
        name: str, experiment: Experiment, slower: float = 1.0, device: str = "virtual", **more
    ) -> None:
        def moved(experiment: Experiment) -> list[Point]:
            return [Point(**{**point.model_dump(), "device": device}) for point in expand(experiment)]

        with monkeypatch.context() as patch:
            patch.setattr(written, "expand", moved)
            patch.setattr(served, "TTFP_S", {name: slower * s for name, s in served.TTFP_S.items()})
            served.serve(tmp_path / name, experiment, **more)

    return serve
