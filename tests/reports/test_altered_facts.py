"""A manifest or facts of a run whose fields are of another type, or gone: damaged, or read as far as a report needs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import MANIFEST, RUN, load_record
from reports.runs.measured import load_run
from reports.runs.provenance import provenance
from tests.builders import GONE, altered, places
from tests.harness.fakes import sealed
from tests.reports import served
from workloads.errors import UserError

OTHERS: list[Any] = [None, True, -1, 1.5, 2**70, "x", "", [], [1], {}, {"a": 1}, GONE]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One point, with all that a manifest may hold."""
    folder = tmp_path_factory.mktemp("altered")
    served.serve(folder, served.bench(engines=["vllm_omni"], grid={"c": [8], "p": [0.0]}, seeds=1))
    place = manifest_of(folder)
    facts = json.loads(place.read_text())
    facts |= {"order": 1, "order_seed": 3, "load_average": [0.5, 1.0, 2.0]}
    facts["step_times"] = {"thinker": "measured"}
    facts["cost"] |= {
        "floor": {"kind": "voice", "send_delay_p99_s": 0.001, "bias_p50_s": None},
        "eviction": {"calls": 3, "mean_ms": 0.1, "p90_ms": None, "charged": False},
    }
    place.write_text(json.dumps(facts))
    assert provenance(load_run(folder))
    return folder


def manifest_of(folder: Path) -> Path:
    (place,) = folder.glob(f"points/*/{MANIFEST}")
    return place


def each_altered(text: str) -> Iterator[tuple[str, str]]:
    """The content with another value at each place, and what was altered."""
    facts = json.loads(text)
    for at in places(facts):
        for value in OTHERS:
            yield json.dumps(altered(facts, at, value)), f"{at} {value}"


def test_a_manifest_of_other_types_is_read_or_refused(run: Path) -> None:
    """A report says of the run what it can."""
    place = manifest_of(run)
    written = place.read_text()
    for content, what in each_altered(written):
        place.write_text(content)
        try:
            provenance(load_run(run))
        except UserError as error:
            assert str(error).endswith("."), what
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
    place.write_text(written)


def test_facts_of_a_run_of_other_types_are_read_or_refused(run: Path) -> None:
    """Their sum is renewed, as whoever alters them could."""
    place = manifest_of(run).with_name(RUN)
    manifest, written = manifest_of(run).read_text(), place.read_text()
    for content, what in each_altered(written):
        place.write_text(content)
        sealed(place.parent)
        try:
            record = load_record(place.parent)
            metrics = record.metrics
        except UserError:
            continue
        for name, metric in metrics.items():
            assert metric["value"] is None or isinstance(metric["value"], int | float), (what, name, metric)
            assert metric["n"] + metric["missing"] >= 0 and isinstance(metric["unit"], str), (what, name, metric)
        assert all(isinstance(count, int | float) for count in record.counters.values()), what
    place.write_text(written)
    manifest_of(run).write_text(manifest)
