"""A forked worker has all of the program in memory: no point is timed with imports that were put off."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.identity import PACKAGES
from harness.experiments.provenance import ROOT

POINTS = """
import json, sys
from pathlib import Path
import harness.replays.worker.preload  # what is printed goes nowhere from here on
from harness.replays.worker import measure
from harness.by_device import expand
from harness.experiments.experiment import Experiment

late = {}
for experiment in json.loads(sys.argv[1]):
    (point,) = expand(Experiment(**experiment))
    before = set(sys.modules)
    measure.measure(point)
    late[point.engine] = sorted(set(sys.modules) - before)
Path(sys.argv[2]).write_text(json.dumps(late))
"""
TURNS: dict[str, Any] = {"deployment": "qwen3_omni_2gpu", "sessions": 2, "p": 0.5}
CALLS: dict[str, Any] = {"deployment": "qwen3_omni_pro6000", "sessions": 1, "duration_s": 8}


@pytest.mark.slow("replays in a new process")
def test_a_replay_imports_nothing_of_ours_nor_what_ours_put_off(tmp_path: Path) -> None:
    experiments = [
        {"name": "warm", "engines": [engine], "workload": workload, "set": settings}
        for engine, workload, settings in (
            ("vllm_omni", "voice", TURNS),
            ("liveserve", "voice", TURNS),
            ("metronome", "metronome", CALLS | {"admission": "aimd"}),
            ("liveserve_on_calls", "metronome", CALLS),
        )
    ]
    path = tmp_path / "late.json"
    subprocess.run([sys.executable, "-c", POINTS, json.dumps(experiments), str(path)], cwd=ROOT, check=True)
    late = {name for names in json.loads(path.read_text()).values() for name in names}
    put_off = (*PACKAGES, "scipy", "pandas", "numpy", "vllm", "ray")
    assert not {name for name in late if name.partition(".")[0] in put_off}
