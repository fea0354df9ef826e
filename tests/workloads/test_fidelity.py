"""The fitted generators beside the real files, as close as they were when they were fitted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from workloads.errors import UserError
from workloads.statistics.generator_fit import compare

# (workload, source, column): the largest distance that passes; the two that are poor say so in their notes.
BOUNDS = {
    ("burstgpt_fit", "BurstGPT_1", "gap / mean gap"): 0.13,
    ("burstgpt_fit", "BurstGPT_1", "request"): 0.04,
    ("burstgpt_fit", "BurstGPT_1", "response"): 0.05,
    ("interactive", "RAGPulse", "gap between turns"): 0.06,
    ("interactive", "RAGPulse", "gap after a short answer"): 0.09,
    ("interactive", "RAGPulse", "gap after a long answer"): 0.10,
    ("interactive", "RAGPulse", "reply"): 0.03,
    ("interactive", "RAGPulse", "query"): 0.06,
    ("interactive", "RAGPulse", "turns per session"): 0.09,
    ("interactive", "BurstGPT_3", "turns per session"): 0.12,
    ("sharegpt", "ShareGPT V3", "prompt"): 0.16,
    ("sharegpt", "ShareGPT V3", "reply"): 0.14,
    ("streamingbench", "StreamingBench", "first question"): 0.11,
    ("streamingbench", "StreamingBench", "gap between questions"): 0.04,
    ("streamingbench", "StreamingBench", "question and options"): 0.08,
    ("gui_episodes", "AndroidLab", "instruction"): 0.10,
    ("gui_episodes", "AndroidLab", "steps"): 0.05,
    ("poisson", "Azure 2023", "gap / mean gap"): 0.03,
    ("poisson", "Mooncake", "gap / mean gap"): 0.02,
}


def test_fits_are_as_close_as_they_were(real_file: Callable[[str], Path]) -> None:
    data = real_file("burstgpt/BurstGPT_1_first400.csv").parents[1]
    found = {(one.workload, one.source, one.column): one for one in compare(data)}
    assert set(BOUNDS) <= set(found)
    for key, bound in BOUNDS.items():
        assert found[key].ks < bound, key
    for one in found.values():
        assert np.isfinite(one.real).all() and np.isfinite(one.ours).all()
        assert one.note or one.ks < 0.10
        assert one.ks < 0.2 or one.note.startswith(("poor", "lengths were fitted on"))


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has none of the real files"):
        compare(tmp_path)
