"""GPUs of other packages: a file with the numbers of a data sheet."""

import json
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from engines import models
from engines.devices.hardware import gpu_names, load_gpu
from engines.models import yaml_files
from engines.server import ResolvedServer, ServerParams
from harness.experiments import identity
from harness.experiments.identity import code_hash
from tests.builders import refused
from tests.conftest import Rehearse

A10G = """
memory_bytes: {value: 24.0e+9, source: "[datasheet] 24 GB"}
bandwidth: {value: 600.0e+9, source: "[datasheet] 600 GB/s"}
bf16_flops: {value: 70.0e+12, source: "[datasheet] dense bf16"}
pcie_bandwidth: {value: 25.0e+9, source: "[chosen] as of an A100"}
sms: {value: 80, source: "[datasheet]"}
"""
Install = Callable[[str], Path]


def forget() -> None:
    for cached in (yaml_files, gpu_names, load_gpu, code_hash):
        cached.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with the GPU `a10g`; gives its file."""
    package = f"rehearsal_test_gpus_{tmp_path.name}"
    monkeypatch.syspath_prepend(tmp_path)

    def install(text: str) -> Path:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / "a10g.yaml").write_text(text)
        entry = EntryPoint("mine", package, "rehearsal.gpus")
        for module in (models, identity):
            monkeypatch.setattr(module, "entry_points", lambda group: [entry] * (group == entry.group))
        invalidate_caches()
        forget()
        return tmp_path / package / "a10g.yaml"

    yield install
    monkeypatch.undo()
    forget()


def test_a_gpu_file_gives_the_data_sheet_and_the_usual_efficiency(install: Install) -> None:
    install(A10G)
    gpu, a100 = load_gpu("a10g"), load_gpu("a100")
    assert (gpu.memory_bytes, gpu.sms, gpu.fp8_gain) == (24e9, 80, 1.0)
    assert gpu.bandwidth / a100.bandwidth == pytest.approx(600 / 2039)
    served = ResolvedServer.of(ServerParams.of({"deployment": "llama_8b_1gpu", "gpu": "a10g"})).deployment
    assert served.gpu == gpu


def test_a_gpu_file_can_state_its_own_efficiency(install: Install) -> None:
    reached = 'efficiency: {bandwidth: {value: 0.5, source: "[measured]"}, flops: {value: 0.4, source: "[measured]"}}'
    install(A10G + reached)
    gpu = load_gpu("a10g")
    assert (gpu.bandwidth, gpu.flops, gpu.kernels) == (300e9, 28e12, None)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("bandwidth: {value: 600", "bandwith: {value: 600", "unknown parameter 'bandwith'. Did you mean 'bandwidth'?"),
        ('sms: {value: 80, source: "[datasheet]"}', "sms: 80", "parameter 'sms'"),
        ('source: "[datasheet] 24 GB"', 'source: ""', "parameter 'memory_bytes.source'"),
        ("24.0e+9", "-1", "parameter 'memory_bytes.value' should be greater than 0"),
        ("memory_bytes: {", "memory_bytes: [", "not valid YAML"),
    ],
)
def test_a_faulty_gpu_file_is_refused_and_other_gpus_load(
    install: Install, rehearse: Rehearse, before: str, after: str, sentence: str
) -> None:
    file = install(A10G.replace(before, after, 1))
    with refused(sentence, str(file)):
        load_gpu("a10g")
    assert load_gpu("h100").name == "h100"
    listed = {each["name"]: each for each in json.loads(rehearse("list", "gpus", "--json")[1])}
    assert sentence in listed["a10g"]["fault"] and listed["h200"]["composition"]


def test_the_code_hash_covers_gpu_files(install: Install) -> None:
    file = install(A10G)
    before = code_hash("virtual", ())
    file.write_text(A10G.replace("600.0e+9", "700.0e+9"))
    forget()
    assert code_hash("virtual", ()) != before
