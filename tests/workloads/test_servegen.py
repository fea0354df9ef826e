"""Clients as ServeGen describes them: skewed, bursty, some with images or sound."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.builders import refused, starts
from tests.workloads.small_files import CHUNK, LENGTHS, MULTIMODAL
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.statistics.describe import dispersion, rate


def test_servegen_pool_is_skewed_and_burstier_than_poisson() -> None:
    params = {"pool": "m-large", "duration_s": 3600, "rate": 20}
    trace = make_trace("servegen", params, 0)
    times = starts(trace)
    assert rate(times) == pytest.approx(20, rel=0.1)
    assert (dispersion(times, 1.0) or 0) > 1.5
    columns = trace.columns()
    assert np.percentile(columns["output_tokens"], [50, 99]) == pytest.approx([53, 872], rel=0.1)


def test_servegen_reads_windows_of_clients(tmp_path: Path) -> None:
    (tmp_path / "chunk-1-trace.csv").write_text(CHUNK)
    (tmp_path / "chunk-1-dataset.json").write_text(LENGTHS)
    trace = make_trace("servegen", {"path": str(tmp_path), "duration_s": 1800, "rate": None}, 0)
    times = starts(trace)
    counts = np.histogram(times, [0, 600, 1200, 1800])[0]
    assert counts[1] == 0
    assert counts[[0, 2]] == pytest.approx([300, 240], rel=0.3)
    assert set(trace.columns()["input_tokens"]) == {39, 40}
    with pytest.raises(UserError, match="no client sends a request in this time"):
        make_trace("servegen", {"path": str(tmp_path), "start_s": 600, "duration_s": 600}, 0)
    with pytest.raises(UserError, match="turns, and 10,000,000 are the most"):
        make_trace("servegen", {"duration_s": 1e6, "rate": 1000}, 0)


def test_servegen_multimodal_clients_attach_what_they_attached(tmp_path: Path) -> None:
    def columns(client: int, dataset: str) -> dict[str, np.ndarray]:
        (tmp_path / f"chunk-{client}-trace.csv").write_text(CHUNK)
        (tmp_path / f"chunk-{client}-dataset.json").write_text(dataset)
        trace = make_trace("servegen", {"path": str(tmp_path), "duration_s": 600, "rate": 10}, 0)
        assert "1 clients attach images, sounds or videos, whose tokens are part of the input" in trace.header.notes
        return trace.columns()

    entries = {"0": MULTIMODAL, "21600": dict.fromkeys(MULTIMODAL, "{}")}  # no requests in the second quarter
    alone = columns(0, json.dumps(entries))
    assert set(alone["visual_tokens"]) == {1196, 3 * 1196}
    assert set(alone["input_tokens"] - alone["visual_tokens"]) == {136 + 50, 372 + 50}
    assert set(alone["output_tokens"]) == {19, 20}
    assert np.mean(alone["visual_tokens"] == 1196) == pytest.approx(0.5, abs=0.03)
    mixed = columns(1, LENGTHS)  # next to one who only types
    assert set(mixed["visual_tokens"]) == {0, 1196, 3 * 1196}
    assert set(mixed["input_tokens"][mixed["visual_tokens"] == 0]) == {39, 40}
    heard = columns(0, json.dumps({"0": MULTIMODAL | {"image_tokens": "{}", "image_count": "{}"}}))  # no picture then
    assert set(heard["visual_tokens"]) == {0}
    assert set(heard["input_tokens"]) == {39, 40, 136 + 50, 372 + 50}


@pytest.mark.parametrize(
    ("field", "table", "sentence"),
    [
        ("image_count", "{1001: 1.0}", "image_count: a number is not between 0 and 1000"),
        ("image_tokens", "{-5: 1.0}", "image_tokens: a number is not between 0 and 10000000"),
        ("video_tokens", "{5: -1.0}", "video_tokens: a share is negative or no number"),
        ("audio_count", None, "audio_count: no quoted dictionary of numbers and their shares"),
        ("text_tokens", "[1]", "text_tokens: '[1]' is not a dictionary of numbers and their shares"),
    ],
)
def test_a_wrong_field_of_servegen_is_named(tmp_path: Path, field: str, table: str | None, sentence: str) -> None:
    (tmp_path / "chunk-0-trace.csv").write_text(CHUNK)
    path = tmp_path / "chunk-0-dataset.json"
    path.write_text(json.dumps({"0": MULTIMODAL | {field: table}}))
    with refused(f"{path}, '0': {sentence}; correct or remove this entry."):
        make_trace("servegen", {"path": str(tmp_path)}, 0)
