"""vLLM's registry inspects classes of models in our process, and gives what it finds in a child process."""

import contextlib
import inspect
import subprocess
from pathlib import Path

import pytest
from vllm import envs
from vllm.model_executor.models import registry

from engines.core import vllm_adapter as vllm
from engines.core.vllm_adapter.configuration import inspecting_here
from tests.engines.stage import make_stage


@pytest.fixture(autouse=True)
def the_environment_is_read() -> None:
    """An engine that another test started in this process makes vLLM keep the variables as they were."""
    envs.disable_envs_cache()


def test_no_child_process_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usual = registry._run_in_subprocess
    assert [*inspect.signature(usual).parameters] == ["fn"]
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", None)
    registry._try_inspect_model_cls.cache_clear()
    vllm.make_config(make_stage())
    assert [*tmp_path.rglob("*.json")] and registry._run_in_subprocess is usual
    monkeypatch.delattr(registry, "_run_in_subprocess")  # as a later release may
    vllm.make_config(make_stage())
    assert not hasattr(registry, "_run_in_subprocess")


@pytest.mark.slow("vLLM inspects a model in a child process")
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen3MoeForCausalLM"])
def test_vllms_child_process_writes_the_same_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written = []
    for place, where in (("here", inspecting_here()), ("child", contextlib.nullcontext())):
        monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / place))
        with where:
            assert registry.ModelRegistry.models[name].inspect_model_cls().is_text_generation_model
        [path] = (tmp_path / place).rglob("*.json")
        written.append((path.name, path.read_bytes()))
    assert written[0] == written[1]
