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
from workloads.trace import Trace


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


def made(folder: Path, clients: dict[int, str]) -> Trace:
    for client, dataset in clients.items():
        (folder / f"chunk-{client}-trace.csv").write_text(CHUNK)
        (folder / f"chunk-{client}-dataset.json").write_text(dataset)
    return make_trace("servegen", {"path": str(folder), "duration_s": 600, "rate": 10}, 0)


def test_servegen_clients_attach_one_picture_or_three_and_a_sound(tmp_path: Path) -> None:
    no_requests = dict.fromkeys(MULTIMODAL, "{}")
    trace = made(tmp_path, {0: json.dumps({"0": MULTIMODAL, "21600": no_requests})})
    columns = trace.columns()
    assert set(columns["visual_tokens"]) == {1196, 3 * 1196}
    assert np.mean(columns["visual_tokens"] == 1196) == pytest.approx(0.5, abs=0.03)
    assert set(columns["input_tokens"] - columns["visual_tokens"]) == {136 + 50, 372 + 50}  # words and the sound
    assert set(columns["output_tokens"]) == {19, 20}
    assert "1 clients attach images, sounds or videos, whose tokens are part of the input" in trace.header.notes


def test_servegen_clients_who_only_type_attach_nothing(tmp_path: Path) -> None:
    columns = made(tmp_path, {0: json.dumps({"0": MULTIMODAL}), 1: LENGTHS}).columns()
    assert set(columns["visual_tokens"]) == {0, 1196, 3 * 1196}
    assert set(columns["input_tokens"][columns["visual_tokens"] == 0]) == {39, 40}


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
