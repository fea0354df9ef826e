"""The command line as a user runs it."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import by_device
from harness.by_device import expand
from harness.experiments.experiment import Experiment
from harness.replays.point import ReplayPoint
from harness.replays.worker import fork_server, isolation
from reports.pages import group_page, html
from tests.reports import served, written

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 32, "vocab_size": 32000}
LLAMA |= {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008}
"""The config.json of a model."""


def small(**changes) -> Experiment:
    return served.bench(**{"engines": ["vllm_omni"], "grid": {"c": [8, 16]}, **changes})


@pytest.fixture
def fake_experiment(tmp_path: Path) -> Path:
    """Four points in the directory that commands run in."""
    path = tmp_path / "fake.yaml"
    path.write_text(
        "{name: fake, title: A small experiment, engines: [vllm_omni], workload: voice, "
        "set: {sessions: 2}, grid: {c: [1, 2]}, seeds: 2, timeout_s: 60}"
    )
    return path


@pytest.fixture(scope="session")
def without_vllm() -> None:
    """Workers are forked from a server that is there already, without vLLM, which no stand-in needs."""
    multiprocessing.set_forkserver_preload([fork_server.__name__, isolation.__name__])
    with fork_server.server_of(None, {}):
        pass


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, without_vllm: None) -> Callable[[Callable], None]:
    """Has workers measure with a stand-in; the reports of such numbers are stand-ins too."""
    monkeypatch.setattr(html, "write_report", lambda folder, asked=(): folder / "report.html")
    monkeypatch.setattr(group_page, "write_group_report", lambda group: group.folder / "report.html")
    return lambda stand_in: monkeypatch.setattr(by_device, "measure", stand_in)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Fills a results directory from scripted servers, `slower` times as slow, on `device`."""

    def serve(name: str, experiment: Experiment, slower: float = 1.0, device: str = "virtual", **more) -> None:
        def moved(experiment: Experiment) -> list[ReplayPoint]:
            points: Any = expand(experiment.model_copy(update={"device": "virtual"}))
            return [ReplayPoint(**{**each.model_dump(), "device": device, "setup": each.setup}) for each in points]

        with monkeypatch.context() as patch:
            patch.setattr(written, "expand", moved)
            patch.setattr(served, "TTFP_S", {name: slower * s for name, s in served.TTFP_S.items()})
            served.serve(tmp_path / name, experiment.model_copy(update={"device": device}), **more)

    return serve
