"""A manifest whose fields are of another type, or gone: damaged, or read as far as a report needs."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import MANIFEST
from reports.runs.measured import load_run
from reports.runs.provenance import provenance
from tests.builders import GONE, altered, places
from tests.reports import served
from workloads.errors import UserError

OTHERS: list[Any] = [None, True, -1, 1.5, 2**70, "x", "", [], [1], {}, {"a": 1}, GONE]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The manifest of a point, with all that one may hold."""
    served.serve(tmp_path, served.bench(engines=["vllm_omni"], grid={"c": [8], "p": [0.0]}, seeds=1))
    (place,) = tmp_path.glob(f"points/*/{MANIFEST}")
    facts = json.loads(place.read_text())
    facts |= {"order": 1, "order_seed": 3, "load_average": [0.5, 1.0, 2.0]}
    facts["step_times"] = {"thinker": "measured"}
    facts["cost"] |= {
        "floor": {"kind": "voice", "send_delay_p99_s": 0.001, "bias_p50_s": None},
        "eviction": {"calls": 3, "mean_ms": 0.1, "p90_ms": None, "charged": False},
    }
    place.write_text(json.dumps(facts))
    return place


def test_a_manifest_of_other_types_is_read_or_refused(manifest: Path) -> None:
    """A report says of the run what it can."""
    folder, facts = manifest.parents[2], json.loads(manifest.read_text())
    assert provenance(load_run(folder))
    for at in places(facts):
        for value in OTHERS:
            manifest.write_text(json.dumps(altered(facts, at, value)))
            try:
                provenance(load_run(folder))
            except UserError as error:
                assert str(error).endswith("."), (at, value)
            except Exception as error:
                raise AssertionError(f"{at} {value}: {error!r}") from error
