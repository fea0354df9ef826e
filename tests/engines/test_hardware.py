"""Accelerators: every one loads, is named where a user may choose it, and outruns its forerunner."""

import pytest

from engines.devices.hardware import gpu_called, gpu_names, load_gpu
from engines.server import NO_GPUS, ServerParams


def test_every_one_loads_and_can_be_chosen() -> None:
    told = str(ServerParams.model_fields["gpu"].description)
    for name in gpu_names():
        gpu = load_gpu(name)
        assert 0 < gpu.pcie_bandwidth < gpu.bandwidth and gpu.flops / gpu.bandwidth > 1, name
        assert (f" {name}," in told or f" {name};" in told) == (name not in NO_GPUS)


def test_a_new_generation_is_faster() -> None:
    for older, newer in (("a100", "h100"), ("h100", "b200"), ("b200", "gb200"), ("a6000", "l40s")):
        assert load_gpu(older).flops < load_gpu(newer).flops
        assert load_gpu(older).bandwidth < load_gpu(newer).bandwidth


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L40S", "l40s"),
    ],
)
def test_names_of_others(theirs: str, ours: str) -> None:
    assert gpu_called(theirs) == ours
