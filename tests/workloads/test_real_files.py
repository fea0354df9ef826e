"""The figures of the real files are those that their description states, dirt included."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from workloads.files.androidlab import read_androidlab
from workloads.files.servegen_file import read_servegen
from workloads.files.sharegpt_file import read_sharegpt
from workloads.files.streamingbench_file import read_streamingbench
from workloads.files.vcsum import read_vcsum
from workloads.registry import make_trace
from workloads.statistics.arrival_statistics import dispersion, gap_cv

Find = Callable[[str], Path]


def replayed(name: str, path: Path, **params) -> tuple[dict, list[str]]:
    trace = make_trace(name, {"path": str(path), "reply": "text", **params}, 0)
    return trace.columns(), trace.header.notes


def request_tokens(columns: dict) -> np.ndarray:
    return columns["input_tokens"] + np.nan_to_num(columns["history_tokens"])


def test_azure(real_file: Find) -> None:
    columns, notes = replayed("azure", real_file("azure2023/AzureLLMInferenceTrace_conv.csv"))
    times, inputs, outputs = (columns[name] for name in ("arrival_s", "input_tokens", "output_tokens"))
    assert (len(times), notes) == (19366, [])
    assert times[-1] == pytest.approx(3502, abs=1)
    assert gap_cv(times) == pytest.approx(1.09, abs=0.01)
    assert dispersion(times, 1.0) == pytest.approx(1.4, abs=0.05)
    assert [inputs.mean(), np.median(inputs), np.percentile(inputs, 99)] == pytest.approx(
        [1155, 1020, 4142], abs=1
    )
    assert [outputs.mean(), np.median(outputs), np.percentile(outputs, 99)] == pytest.approx(
        [211, 129, 601], abs=1
    )


def test_mooncake_conversation_is_dequantised(real_file: Find) -> None:
    path = real_file("mooncake/conversation_trace.jsonl")
    raw, _ = replayed("mooncake", path, jitter_s=0)
    assert len(raw["turn"]) == 12031
    assert len(np.unique(raw["arrival_s"])) == 1180
    assert gap_cv(np.sort(raw["arrival_s"])) == pytest.approx(3.03, abs=0.01)
    columns, notes = replayed("mooncake", path)
    times = np.sort(columns["arrival_s"])
    assert gap_cv(times) == pytest.approx(1.0, abs=0.03)
    assert dispersion(times, 1.0) == pytest.approx(1.0, abs=0.1)
    assert (
        "recorded on 1180 distinct times, 3 s apart: each request moved by a uniform draw within 3 s" in notes
    )
    tokens = request_tokens(columns)
    assert [tokens.mean(), np.median(tokens)] == pytest.approx([12035, 6909], abs=0.5)
    assert np.percentile(tokens, 99) == pytest.approx(85400, abs=1)
    assert columns["output_tokens"].mean() == pytest.approx(343, abs=0.5)
    assert notes[0].startswith("conversations=strict: 3338 of 12031 requests joined to an earlier one ")
    assert "36.6% of the blocks came before, 27.0% in the same conversation" in notes[0]


def test_mooncake_synthetic_is_left_as_it_is(real_file: Find) -> None:
    columns, notes = replayed("mooncake", real_file("mooncake/synthetic_trace.jsonl"))
    assert len(columns["turn"]) == 3993
    assert gap_cv(np.sort(columns["arrival_s"])) == pytest.approx(1.01, abs=0.005)
    assert request_tokens(columns).mean() == pytest.approx(15325, abs=0.5)
    assert "64.0% of the blocks came before" in notes[0]
    assert not any("moved" in note for note in notes)


def test_sharegpt_lengths(real_file: Find) -> None:
    notes: list[str] = []
    found = read_sharegpt(real_file("sharegpt/sharegpt_v3_sample1000_lengths.csv.gz"), notes)
    assert (len(found.turn), len(np.unique(found.conversation))) == (3523, 991)
    assert notes == [
        "340 of 7396 messages left out: answer at the start",
        "8 of 7396 messages left out: empty, or beside an empty one",
        "1 of 7396 messages left out: question without an answer",
        "1 of 7396 messages left out: said by neither human nor model",
        "9 conversations without a question and its answer",
    ]
    assert np.median(found.prompt_tokens) == 20
    assert np.median(found.reply_tokens) == pytest.approx(300, abs=15)


@pytest.mark.parametrize(
    ("name", "questions", "videos", "unreadable"),
    [("real", 2500, 499, 1), ("real_stream", 2495, 498, 1), ("sqa", 250, 50, 0), ("proactive", 250, 50, 0)],
)
def test_streamingbench(real_file: Find, name: str, questions: int, videos: int, unreadable: int) -> None:
    notes: list[str] = []
    found = read_streamingbench(real_file(f"streamingbench/questions_{name}.json"), notes)
    assert len(found.time_s) == questions - unreadable
    assert found.video.max() + 1 == videos
    assert np.all((np.diff(found.time_s) >= 0) | (np.diff(found.video) > 0))
    if unreadable:
        assert f"1 of {questions} questions dropped: their time stamp cannot be read" in notes
    if name == "real_stream":
        assert "49 questions earlier in their video than the one before: sorted by time" in notes
        gaps = np.diff(found.time_s)[np.diff(found.video) == 0]
        assert [np.median(gaps), np.percentile(gaps, 90)] == pytest.approx([122, 197], abs=3)
        first = found.time_s[np.diff(found.video, prepend=-1) > 0]
        assert np.median(first) == pytest.approx(13, abs=1)


def test_androidlab(real_file: Find) -> None:
    notes: list[str] = []
    tasks = read_androidlab(real_file("androidlab"), notes)
    assert (len(tasks.steps), notes) == (138, ["138 tasks of 9 apps"])
    assert tasks.steps.max() == 16
    assert tasks.steps.mean() == pytest.approx(5.7, abs=0.1)


def test_vcsum(real_file: Find) -> None:
    notes: list[str] = []
    documents, summaries = read_vcsum(real_file("vcsum/short_test.txt"), notes)
    assert (len(documents), notes) == (26, ["26 meetings of 136 parts"])
    assert documents.mean() == pytest.approx(13_400, abs=50)
    assert documents.max() == pytest.approx(44_000, abs=50)
    assert (summaries > 0).all()


def test_servegen(real_file: Find) -> None:
    notes: list[str] = []
    clients = {client.name: client for client in read_servegen(real_file("servegen"), notes)}
    assert sorted(clients) == [
        "language/m-small/chunk-1",
        "language/m-small/chunk-21",
        "reason/deepseek-r1/chunk-1",
        "reason/deepseek-r1/chunk-2",
    ]
    steady = clients["reason/deepseek-r1/chunk-1"]
    assert (len(steady.rate), np.sum(steady.rate > 0)) == (144, 110)
    assert steady.rate[1] == pytest.approx(0.1533, abs=1e-4)
    assert steady.cv[1] == pytest.approx(0.8869, abs=1e-4)
    assert len(clients["language/m-small/chunk-21"].rate) == 2016
    assert "4 clients, 1 of them without lengths of their own" in notes
    reasoning = {"path": str(real_file("servegen/reason/deepseek-r1")), "duration_s": 86_400, "rate": None}
    assert 450 < np.median(make_trace("servegen", reasoning, 0).columns()["output_tokens"]) < 800
