import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import refused
from workloads.errors import UserError
from workloads.files import packed
from workloads.files.csv_file import CsvFile
from workloads.files.record_file import read_records
from workloads.registry import make_trace
from workloads.trace import Trace

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
CSV = {
    "burstgpt": (BURST, "{},ChatGPT,10,20,30,Conversation log"),
    "sessions": ("session_id,t,query,output", "a{},{},10,20"),
}


def mooncake(path: Path, times: list[float], block: int = 512, **more: Any) -> Path:
    lines = [
        {"timestamp": t, "input_length": 5000, "output_length": 5, "hash_ids": [*range(-(-5000 // block))], **more}
        for t in times
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def csv(path: Path, workload: str, times: list[float]) -> Path:
    head, row = CSV[workload]
    path.write_text("\n".join([head, *(row.replace("a{}", f"a{i}").format(t) for i, t in enumerate(times))]))
    return path


def span_s(trace: Trace) -> float:
    return float(np.ptp(trace.columns()["arrival_s"]))


SECONDS = [0.0, 0.2, 0.4, 1.1, 2.0]


@pytest.mark.parametrize(
    ("times", "asked", "answers"),
    [
        (SECONDS, "2,000 requests/s: are the times in seconds? --set unit=s", {"s": 2.0, "ms": 0.002}),
        # Slow enough for ms, but ms have no decimals.
        ([0.5, 60, 120, 180, 240], "16.7015 requests/s: are the times in seconds? --set unit=s", {"s": 239.5}),
        (
            [0, 1e7, 2e7, 3e7, 4e7],
            "one request in 10,000 s: are the times in microseconds? --set unit=us",
            {"us": 40.0},
        ),
    ],
)
def test_times_that_look_like_another_unit_are_asked(
    tmp_path: Path, times: list[float], asked: str, answers: dict[str, float]
) -> None:
    path = mooncake(tmp_path / "t.jsonl", times)
    with pytest.raises(UserError, match=re.escape(f"{path}: {asked} (or --set unit=ms, if not).")):
        make_trace("mooncake", {"path": path, "jitter_s": 0}, 0)
    for unit, span in answers.items():
        assert span_s(make_trace("mooncake", {"path": path, "jitter_s": 0, "unit": unit}, 0)) == pytest.approx(span)


@pytest.mark.parametrize("workload", CSV)
def test_milliseconds_in_a_log_of_seconds_are_asked(tmp_path: Path, workload: str) -> None:
    path = csv(tmp_path / "t.csv", workload, [0, 4000, 8000, 12_000, 16_000])
    with pytest.raises(UserError, match=r"one request in 4,000 s: are the times in milliseconds. --set unit=ms"):
        make_trace(workload, {"path": path}, 0)
    assert span_s(make_trace(workload, {"path": path, "unit": "ms"}, 0)) == pytest.approx(16)
    assert span_s(make_trace(workload, {"path": path, "unit": "s"}, 0)) == pytest.approx(16_000)


def test_a_unit_for_dates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-10-14 00:00:00,1,2\n")
    with pytest.raises(UserError, match="unit=s: the times of column 'TIMESTAMP' are dates"):
        make_trace("azure", {"path": path, "unit": "s"}, 0)


@pytest.mark.parametrize("block", [16, 64, 1024])
def test_blocks_of_another_size_are_asked(tmp_path: Path, block: int) -> None:
    path = mooncake(tmp_path / "t.jsonl", [0, 1000, 2000], block)
    with pytest.raises(UserError, match=f"are they of {block} tokens. --set block_tokens={block} "):
        make_trace("mooncake", {"path": path}, 0)
    assert make_trace("mooncake", {"path": path, "block_tokens": block}, 0).header.params["block_tokens"] == block


def linked(path: Path, *parents: int | None) -> Path:
    """Requests 0, 1, ... with the request that each continues."""
    rows = [
        {
            "chat_id": i,
            "parent_chat_id": parent,
            "timestamp": 10.5 * i,
            "input_length": 100 + 50 * i,
            "output_length": 5,
        }
        for i, parent in enumerate(parents)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_parent_links_make_conversations(tmp_path: Path) -> None:
    path = linked(tmp_path / "t.jsonl", -1, 0, 1, 1, 77, None)  # 3 continues what 2 does already; there is no 77
    trace = make_trace("mooncake", {"path": path}, 0)
    assert trace.columns()["session"].tolist() == [0, 0, 0, 1, 2, 3]
    assert trace.columns()["history_tokens"].tolist() == [0, 100 + 5, 150 + 5, 0, 0, 0]
    notes = " ".join(trace.header.notes)
    assert "2 of 6 requests continue" in notes
    assert "1 requests name one that is not in the file" in notes
    assert "1 requests continue one that another continues already" in notes
    alone = make_trace("mooncake", {"path": path, "conversations": "never"}, 0)
    assert alone.columns()["session"].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_chat_id_of_two_requests_is_refused(tmp_path: Path) -> None:
    path = linked(tmp_path / "t.jsonl", -1, 0)
    path.write_text(f"{path.read_text()}\n{path.read_text().splitlines()[0]}")
    with refused("line 3, column 'chat_id': 0 is that of an earlier request, too"):
        make_trace("mooncake", {"path": path}, 0)


def test_columns_that_are_not_used_are_noted(tmp_path: Path) -> None:
    images = tmp_path / "t.csv"
    images.write_text("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-14 00:00:00,3,1,2\n")
    more = mooncake(tmp_path / "t.jsonl", [0], images=2)
    for name, path, unused in (
        ("azure", images, ["columns that are not used: NumImages"]),
        ("mooncake", more, ["columns that are not used: images"]),
        ("burstgpt", csv(tmp_path / "b.csv", "burstgpt", [0, 1]), []),
    ):
        notes = make_trace(name, {"path": path}, 0).header.notes
        assert [note for note in notes if "not used" in note] == unused


@pytest.mark.parametrize("head", ["t,t,session_id,query,output", "t, t ,session_id,query,output"])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, head: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{head}\n0,5,a,1,2\n")
    with pytest.raises(UserError, match="has two columns 't'; rename or remove one"):
        make_trace("sessions", {"path": path}, 0)


@pytest.mark.parametrize("read", [CsvFile, lambda path: list(read_records(path))])
def test_a_packed_file_that_grows_a_hundredfold_is_refused(tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed, "FREE_BYTES", 2**20)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(bytes(2**24)))
    with pytest.raises(UserError, match=r"bomb.csv.gz has 16,\d+ bytes and unpacks to \d MiB or more"):
        read(path)


def test_a_table_of_more_rows_than_its_file_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_trace("poisson", {"requests": 2000, "modality": "text", "reply": "text"}, 0).save(tmp_path / "t.parquet")
    assert Trace.load(tmp_path / "t.parquet").sessions
    monkeypatch.setattr(packed, "FREE_BYTES", 1)
    monkeypatch.setattr(packed, "MOST_TIMES", 1)
    with pytest.raises(UserError, match=r"t\.parquet has .* which no honest file does"):
        Trace.load(tmp_path / "t.parquet")
