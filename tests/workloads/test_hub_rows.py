"""Rows of a hub's data set by the package `datasets`: from a local copy of a repository, and without a network."""

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders import REHEARSE, refused
from workloads.files import hub
from workloads.files.hub import Dataset
from workloads.registry import make_trace

library = pytest.importorskip("datasets", reason="needs the extra data")
COMMIT = "a" * 40
TALK = {"conversation_id": 1, "conversation": [{"human": "a" * 40, "assistant": "b" * 400}], "category": ""}
PAPER = {"input": "问" * 15, "context": "文" * 1500, "answers": ["答" * 30, "x"], "length": 1500}
QUESTIONS = """question_id,question,time_stamp,options,answer
Real-Time Visual Understanding_sample_7_1,What is on the left?,00:01:31,"['A. One', 'B. Two']",A
Real-Time Visual Understanding_sample_7_2,What is on the left?,00:02:31,"['A. One', 'B. Two']",A
Real-Time Visual Understanding_sample_7_3,What is on the left?,00:03:31,"['A. One', 'B. Two']",A
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository of three data sets as their hub has them, each in a layout of its own."""
    folder = tmp_path / "copy"
    (folder / "talks").mkdir(parents=True)
    (folder / "talks" / "en.jsonl").write_text("\n".join([json.dumps(TALK)] * 9))
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("data/dureader.jsonl", "\n".join([json.dumps(PAPER, ensure_ascii=False)] * 3))
    (folder / "q.csv").write_text(QUESTIONS)
    return folder


def dataset(repository: Path | str, **rows: Any) -> Dataset:
    wanted = hub.Rows.model_validate(rows)
    return Dataset(summary="rows", licence="none", repository=str(repository), revision=COMMIT, rows=wanted)


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_rows_of_the_chosen_columns_are_fetched(copy: Path, tmp_path: Path) -> None:
    wanted = dataset(copy, file="talks/*.jsonl", columns=("conversation",), count=4)
    (path,) = hub.fetch(wanted, tmp_path / "out")
    assert read(path) == [{"conversation": TALK["conversation"]}] * 4
    (path,) = hub.fetch(dataset(copy, file="talks/en.jsonl", columns=("conversation",)), tmp_path, rows=2)
    assert (path.name, len(read(path))) == ("en.jsonl", 2)
    assert json.loads((tmp_path / "en.source.json").read_text())["revision"] == COMMIT


def test_a_file_that_is_there_needs_no_network(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = dataset(copy, file="talks/en.jsonl")
    (path,) = hub.fetch(wanted, tmp_path)
    asked: list[object] = []
    monkeypatch.setattr(library, "load_dataset", lambda *a, **k: asked.append(a) or pytest.fail("asked again"))
    assert hub.fetch(wanted, tmp_path) == [path]
    path.write_text("changed\n")
    for again in (wanted, dataset(copy, file="talks/en.jsonl", count=5)):  # what is there is not what is wanted
        with pytest.raises(pytest.fail.Exception):
            hub.fetch(again, tmp_path)
    assert len(asked) == 2


def test_fetched_rows_are_read_by_their_workload(copy: Path, tmp_path: Path) -> None:
    def columns(workload: str, rows: dict[str, Any], **params: Any) -> dict[str, np.ndarray]:
        (path,) = hub.fetch(dataset(copy, **rows), tmp_path)
        return make_trace(workload, {"path": str(path), **params}, 0).columns()

    talks = columns("sharegpt", {"file": "talks/en.jsonl"}, modality="text", reply="text")
    assert (set(talks["input_tokens"]), set(talks["output_tokens"])) == ({10}, {100})
    wanted = {"file": "data.zip", "inside": "data/dureader.jsonl", "columns": ("input", "context", "answers")}
    papers = columns("offline", wanted, shape="dureader", requests=5)
    assert (set(papers["input_tokens"]), set(papers["output_tokens"])) == ({1010}, {20})
    assert set(columns("offline", wanted, shape="dureader", tokens_per_char=1 / 3)["input_tokens"]) == {505}
    beside = columns("co_serving", wanted, shape="vcsum", backlog=2, requests=5, backlog_tps=100.0)
    assert set(beside["input_tokens"][beside["request_class"] == "batch"]) == {1010}
    asked = columns("streamingbench", {"file": "q.csv"}, modality="text", sessions=4)
    assert (asked["turn"].max(), asked["session"].max()) == (2, 3)  # the three are of one video
    assert np.diff(asked["arrival_s"].reshape(4, 3)) == pytest.approx(60)


def test_dates_become_text_and_bytes_become_null(copy: Path, tmp_path: Path) -> None:
    table = {"at": pa.array([0], pa.timestamp("s")), "image": [b"\x89PNG"], "text": ["Why?"]}
    pq.write_table(pa.table(table), copy / "rows.parquet")
    (path,) = hub.fetch(dataset(copy, file="rows.parquet"), tmp_path)
    assert read(path) == [{"at": "1970-01-01T00:00:00", "image": None, "text": "Why?"}]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({"file": "none.jsonl"}, "none.jsonl (Unable to find '"),
        ({"file": "talks/en.jsonl", "columns": ("prompt",)}, "(Column name ['prompt'] not in the dataset."),
        ({"file": "broken.jsonl"}, "broken.jsonl (JSON parse error"),
        ({"file": "data.txt"}, "data.txt is of no kind that is read; give one that ends in .json, .jsonl, .csv,"),
    ],
)
def test_rows_that_cannot_be_streamed_are_refused(copy: Path, tmp_path: Path, rows: dict, sentence: str) -> None:
    (copy / "broken.jsonl").write_text("{")
    with refused(sentence):
        hub.fetch(dataset(copy, **rows), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({"HF_HUB_OFFLINE": "1"}, "offline mode is enabled"), ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "refused")],
)
def test_fetching_without_a_network_is_a_usage_error(tmp_path: Path, environment: dict[str, str], reason: str) -> None:
    """As a user has it: one sentence that says where, why and what to do, and exit status 2."""
    address = f"hf://datasets/some/where@{COMMIT}/rows.jsonl"
    own = {"HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1", "HF_HOME": str(tmp_path), **environment}
    command = [*REHEARSE, "data", "fetch", address, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
    sentence = done.stderr.splitlines()[-1]
    assert done.returncode == 2
    assert sentence.startswith(f"rehearse: cannot stream {address} (") and reason in sentence
    assert sentence.endswith(f"or bring the folder {tmp_path / 'out'} from a machine that has done it.")
