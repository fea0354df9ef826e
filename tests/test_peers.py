"""Other simulators get the requests of our load, and `make perf` goes on without them."""

import csv
import json
import sys
from pathlib import Path

import pytest

from tests.perf.pairs import LOADS
from tools.peers.__main__ import TEXT, main, write_text, write_vidur
from workloads.registry import make_trace


def test_text_is_the_load_of_our_own_measurement(tmp_path: Path) -> None:
    _, workload, settings = LOADS["text"]
    assert (workload, {**settings, "deployment": None}) == ("poisson", {**TEXT, "deployment": None})
    write_text(tmp_path / "text.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "text.jsonl").read_text().splitlines()]
    turns = [turn for session in make_trace("poisson", TEXT, 0).sessions for turn in session.turns]
    lengths = sorted((row["input_length"], row["output_length"]) for row in rows)
    assert lengths == sorted((turn.input_tokens, turn.output_tokens) for turn in turns)
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)


def test_vidur_gets_times_and_lengths(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 1500, "input_length": 7, "output_length": 2, "hash_ids": [2]}\n'
    )
    write_vidur(tmp_path / "a.jsonl", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = [[*row.values()] for row in csv.DictReader(file)]
    assert rows == [["replay", "0.0", "600", "5"], ["replay", "1.5", "7", "2"]]


def test_a_missing_peer_has_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REHEARSAL_PEERS", sys.executable)  # our own environment, which has neither peer
    assert main([]) == 0
    _head, _rule, *rows = capsys.readouterr().out.splitlines()
    installed = [row.split(": pip")[0] for row in rows]
    assert installed == ["| Dynamo replay | is not installed", "| Vidur | is not installed"]
