"""Loaders on files in the layout of their source: small ones, and real ones with the figures of their description."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.builders import refused
from workloads.distributions.lengths import BURSTGPT_REQUEST, BURSTGPT_RESPONSE, RAGPULSE_QUERY, RAGPULSE_REPLY
from workloads.files.androidlab import read_androidlab
from workloads.files.csv_file import CsvFile
from workloads.files.documents_file import read_vcsum
from workloads.files.streamingbench_file import read_streamingbench
from workloads.registry import make_trace
from workloads.statistics.describe import gap_cv
from workloads.statistics.generator_fit import compare


def replayed(name: str, path: Path, **params) -> tuple[dict[str, np.ndarray], list[str]]:
    trace = make_trace(name, {"path": str(path), "reply": "text", **params}, 0)
    return trace.columns(), trace.header.notes


def write_azure(path: Path, time_s: Any) -> Path:
    """Requests of 300 tokens before and after a midnight, with stamps of seven decimals."""
    path.parent.mkdir(exist_ok=True)
    stamps = pd.DatetimeIndex(pd.Timestamp("2031-03-07 23:59:59") + pd.to_timedelta(time_s, "s"))
    table = {"TIMESTAMP": stamps.strftime("%Y-%m-%d %H:%M:%S.%f0"), "ContextTokens": 300, "GeneratedTokens": 20}
    pd.DataFrame(table).to_csv(path, index=False)
    return path


def test_azure_requests_keep_their_times_over_midnight(tmp_path: Path) -> None:
    columns, _ = replayed("azure", write_azure(tmp_path / "azure.csv", [0.5, 0.75, 3.25]))
    assert columns["arrival_s"].tolist() == [0, 0.25, 2.75]
    assert columns["input_tokens"].tolist() == [300] * 3
    assert columns["session"].tolist() == [0, 1, 2]


def test_mooncake_requests_are_spread_over_the_step_of_their_clock(tmp_path: Path) -> None:
    """Ten requests share each of 40 stamps, 3 s apart."""
    path, stamps_ms = tmp_path / "m.jsonl", [3000 * (i // 10) for i in range(400)]
    rows = [{"timestamp": t, "input_length": 9, "output_length": 9, "hash_ids": [i]} for i, t in enumerate(stamps_ms)]
    path.write_text("\n".join(map(json.dumps, rows)))
    as_recorded, _ = replayed("mooncake", path, jitter_s=0)
    assert (1000 * as_recorded["arrival_s"]).tolist() == stamps_ms
    columns, notes = replayed("mooncake", path)
    assert gap_cv(np.sort(columns["arrival_s"])) == pytest.approx(1.0, abs=0.15)
    assert "recorded on 40 distinct times, 3 s apart: each request moved by a uniform draw within 3 s" in notes


def entry(*stamps: str, **more: Any) -> dict[str, Any]:
    questions = [{"question": "Which lamp is on?", "time_stamp": stamp, **more} for stamp in stamps]
    return {"questions": questions, "video_path": "./videos/1.mp4"}


OPTIONS = ["A. None.", "B. The left one."]


@pytest.mark.parametrize(
    ("layout", "document"),
    [
        ("real", [entry("00:00:31", options=OPTIONS), entry("0:02:05", options=OPTIONS)]),
        ("real_stream", [entry("00:00:31", "0:02:05", options=OPTIONS)]),
        ("sqa", [[entry("0:02:05", options=OPTIONS), entry("00:00:31", options=OPTIONS)]]),
        ("proactive", [entry("00:00:31", "0:02:05", ground_truth_output="the left one")]),
    ],
)
def test_questions_of_a_video_are_read_in_every_layout(tmp_path: Path, layout: str, document: list) -> None:
    notes: list[str] = []
    (tmp_path / "q.json").write_text(json.dumps(document))
    found = read_streamingbench(tmp_path / "q.json", notes)
    assert found.time_s.tolist() == [31, 125]
    assert found.video.tolist() == [0, 0]
    has_options = layout != "proactive"
    assert set(found.typed_tokens > found.spoken_tokens) == {has_options}
    sorted_by_time = ["1 questions earlier in their video than the one before: sorted by time"]
    assert notes == sorted_by_time * (layout == "sqa")


def write_androidlab(folder: Path, tasks: dict[str, list[dict[str, Any]]], steps: dict[str, Any]) -> Path:
    for app, of_app in tasks.items():
        (folder / f"{app}.yaml").write_text(yaml.safe_dump({"APP": app, "tasks": of_app}))
    (folder / "ground_truth_length.json").write_text(json.dumps(steps))
    return folder


def test_tasks_of_androidlab_have_their_length_and_their_steps(tmp_path: Path) -> None:
    kettle, pot, lamp = ({"task_id": name, "task": "Open it."} for name in ("kettle", "pot", "lamp"))
    folder = write_androidlab(tmp_path, {"a": [kettle, pot], "b": [lamp]}, {"kettle": 2, "pot": 16, "lamp": 4})
    notes: list[str] = []
    found = read_androidlab(folder, notes)
    assert found.steps.tolist() == [2, 16, 4]
    assert found.instruction_tokens.tolist() == [2, 2, 2]  # 8 characters, 4 a token
    assert notes == ["3 tasks of 2 apps"]


@pytest.mark.parametrize(
    ("task", "steps", "sentence"),
    [
        ({"task_id": "a"}, 3, "task 2: 'task' is None, not an instruction; correct or remove this task."),
        ({"task_id": "a", "task": "Go."}, 0, "task 2: 'task_id' 'a' has 0 steps in ground_truth_length.json"),
        ({"task_id": "a", "task": "Go."}, 1001, "not 1 to 1000"),
        ("Go.", 3, "task 2: 'Go.' is not an object"),
    ],
)
def test_a_wrong_task_of_androidlab_is_refused_or_skipped(tmp_path: Path, task: Any, steps: int, sentence: str) -> None:
    good = {"task_id": "b", "task": "Open it."}
    folder = write_androidlab(tmp_path, {"app": [good, task]}, {"a": steps, "b": 1000})
    with refused(sentence):
        read_androidlab(folder, [])
    notes: list[str] = []
    assert read_androidlab(folder, notes, skip_bad=True).steps.tolist() == [1000]
    assert notes[0] == "1 of 2 tasks skipped: no instruction or no number of steps"


def test_parts_of_a_meeting_of_vcsum_are_one_document(tmp_path: Path) -> None:
    notes: list[str] = []
    parts = [(103, ["12345"]), (101, ["123", "4567"]), (103, ["12345", "67"])]
    lines = [{"av_num": meeting, "context": [text], "discussion": "Done."} for meeting, text in parts]
    (tmp_path / "short_test.txt").write_text("\n".join(map(json.dumps, lines)))
    documents, summaries = read_vcsum(tmp_path / "short_test.txt", notes)
    assert documents.tolist() == [7, 12]  # characters of meetings 101 and 103
    assert summaries.tolist() == [5, 10]
    assert notes == ["2 meetings of 3 parts"]


def test_generators_are_compared_with_the_sources_that_are_there(tmp_path: Path) -> None:
    with refused("has none of the real files"):
        compare(tmp_path)
    poisson_s = np.cumsum(np.random.default_rng(1).exponential(0.2, 1000))
    write_azure(tmp_path / "azure2023" / "AzureLLMInferenceTrace_conv.csv", poisson_s)
    (found,) = compare(tmp_path)
    assert (found.workload, found.source, found.column) == ("poisson", "Azure 2023", "gap / mean gap")
    assert len(found.real) == len(found.ours) == 999
    assert 0 < found.ks < 1.63 * np.sqrt(2 / 999)  # two samples of one law: the test's bound at 1 %


Find = Callable[[str], Path]
MOONCAKE = [
    "recorded on 1180 distinct times, 3 s apart: each request moved by a uniform draw within 3 s",
    "conversations=strict: 3338 of 12031 requests joined to an earlier one ",
    "36.6% of the blocks came before, 27.0% in the same conversation",
]


@pytest.mark.parametrize(
    ("name", "file", "requests", "burstiness", "tokens", "reply_tokens", "notes"),
    [
        ("azure", "azure2023/AzureLLMInferenceTrace_conv.csv", 19366, 1.09, 1155, 211, []),
        ("mooncake", "mooncake/conversation_trace.jsonl", 12031, 1.0, 12035, 343, MOONCAKE),
        ("mooncake", "mooncake/synthetic_trace.jsonl", 3993, 1.01, 15325, None, ["64.0% of the blocks came before"]),
        ("burstgpt", "burstgpt/BurstGPT_1_first400.csv", 383, 4.46, 544, None, ["17 of 400 rows dropped: "]),
        ("burstgpt", "burstgpt/BurstGPT_3_first400.csv", None, None, 619, None, []),
        ("sessions", "ragpulse/sessions_derived.csv", 7106, None, 2944, 283, []),
    ],
)
def test_figures_of_real_records(
    real_file: Find, name: str, file: str, requests: int | None, burstiness: float | None, tokens: float,
    reply_tokens: float | None, notes: list[str],
) -> None:  # fmt: skip
    columns, said = replayed(name, real_file(file))
    assert requests in (None, len(columns["turn"]))
    if burstiness is not None:
        assert gap_cv(np.sort(columns["arrival_s"])) == pytest.approx(burstiness, abs=0.1)
    request_tokens = columns["input_tokens"] + np.nan_to_num(columns["history_tokens"])
    assert request_tokens.mean() == pytest.approx(tokens, abs=1)
    if reply_tokens is not None:
        assert columns["output_tokens"].mean() == pytest.approx(reply_tokens, abs=1)
    assert [note for note in notes if note not in " ".join(said)] == []


def test_tables_of_lengths_are_the_quantiles_of_their_records(real_file: Find) -> None:
    columns, _ = replayed("burstgpt", real_file("burstgpt/BurstGPT_1_first400.csv"))
    ragpulse = CsvFile(real_file("ragpulse/sessions_derived.csv"))
    for table, values in (
        (BURSTGPT_REQUEST, columns["input_tokens"]),
        (BURSTGPT_RESPONSE, columns["output_tokens"]),
        (RAGPULSE_QUERY, ragpulse.numbers("q_tok")),
        (RAGPULSE_REPLY, ragpulse.numbers("output_length")),
    ):
        assert np.quantile(values, table.shares).tolist() == pytest.approx(table.values, abs=0.5)


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


def test_fits_are_as_close_as_they_were(real_file: Find) -> None:
    data = real_file("burstgpt/BurstGPT_1_first400.csv").parents[1]
    found = {(one.workload, one.source, one.column): one for one in compare(data)}
    for key, bound in BOUNDS.items():
        assert found[key].ks < bound, key
    for one in found.values():
        assert np.isfinite(one.real).all() and np.isfinite(one.ours).all()
        assert one.note or one.ks < 0.10
        assert one.ks < 0.2 or one.note.startswith(("poor", "lengths were fitted on"))
