"""Every kind of bad input gets one clear sentence on stderr and exit status 2, and loses nothing measured."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rehearsal.reports import cli

YAML = "name: mine\nengines: [liveserve]\nworkload: voice\nset: {sessions: 2}\n"
Rehearse = Callable[..., str]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Rehearse:
    """Runs a command that must be refused, in an empty directory, and returns its sentence."""
    monkeypatch.chdir(tmp_path)

    def refuse(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["rehearse", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        assert end.value.code == cli.BAD_INPUT
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert line.startswith("rehearse: ")
        assert "Traceback" not in line and "Error(" not in line
        return line.removeprefix("rehearse: ")

    return refuse


def test_unknown_names_offer_the_nearest(refuse: Rehearse) -> None:
    cases = {
        ("run", "bench", "--set", "engine=livserve"): ("engine 'livserve'", "'liveserve'"),
        ("run", "bench", "--set", "workload=voise"): ("workload 'voise'", "'voice'"),
        ("run", "bench", "--device", "virtuel"): ("device 'virtuel'", "'virtual'"),
        ("run", "bench", "--device", "gpu"): ("device 'gpu'", "'cuda'", "'virtual'"),
        ("serve", "liveserve", "--device", "GPU"): ("device 'GPU' of a server", "'cuda'", "'virtual'"),
        ("run", "bench", "--set", "u2_mod=yielding"): ("parameter 'u2_mod'", "'u2_mode'"),
        ("run", "bench", "--set", "enginee=liveserve"): ("parameter 'enginee'", "'engine'"),
        ("run", "bench", "--set", "deployment=qwen3_omni_2gpus"): (
            "unknown deployment 'qwen3_omni_2gpus'",
            "rehearse list deployments",
            "Did you mean 'qwen3_omni_2gpu'?",
        ),
        ("run", "benhc"): ("card 'benhc'", "'bench'"),
        ("list", "engine"): ("kind 'engine'", "'engines'"),
        ("list", "workloads", "poison"): ("workload 'poison'", "'poisson'"),
        ("trace", "make", "voise", "--out", "t.parquet"): ("workload 'voise'", "'voice'"),
        ("rum", "bench"): ("command 'rum'", "'run'"),
    }
    for arguments, words in cases.items():
        sentence = refuse(*arguments)
        for word in words:
            assert word in sentence, sentence


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("p=often", ("'p'", "'often'")),
        ("p=1.5", ("'p'", "1.5")),
        ("c=0", ("'c'", "0")),
        ("c=2.5", ("'c'", "2.5")),
        ("sessions=-1", ("'sessions'", "-1")),
        ("u2_mode=lazy", ("'u2_mode'", "'lazy'", "'yielding'")),
    ],
)
def test_a_value_of_the_wrong_type_or_range_names_parameter_and_value(
    refuse: Rehearse, setting: str, words: tuple[str, ...]
) -> None:
    sentence = refuse("run", "bench", "--set", setting)
    for word in words:
        assert word in sentence, sentence


def test_a_truth_value_is_no_number(refuse: Rehearse) -> None:
    assert "'p' should be a number, got True" in refuse("run", "bench", "--set", "p=yes")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "c"), ("c", "NAME=VALUE")),
        (("--set", "c="), ("c=", "lacks a value")),
        (("--set", "c=4", "--set", "c=8"), ("c", "twice", "c=4,8")),
        (("--seeds", "0"), ("--seeds", "at least 1", "0")),
        (("--seeds", "many"), ("--seeds", "many")),
        (("--jobs", "-2"), ("--jobs", "at least 1", "-2")),
        (("--sede", "1"), ("--sede", "--seeds")),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    refuse: Rehearse, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    sentence = refuse("run", "bench", *arguments)
    for word in words:
        assert word in sentence, sentence


def test_a_missing_argument_is_named(refuse: Rehearse) -> None:
    assert "CARD_YAML_OR_DIR" in refuse("run")
    assert "--out" in refuse("trace", "make", "voice")
    assert "path" in refuse("run", "bench", "--set", "workload=burstgpt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", ("not valid YAML", "line")),
        ("just words", ("not an experiment",)),
        (YAML.replace("engines: [liveserve]\n", ""), ("'engines'", "required")),
        (YAML + "grids: {c: [4]}\n", ("'grids'", "'grid'")),
        (YAML.replace("engines: [liveserve]", "engine: liveserve"), ("'engine'", "engines: [liveserve]")),
        (YAML + "seeds: none\n", ("'seeds'",)),
        (YAML + "grid: {c: 4}\n", ("grid.c", "4")),
        (YAML.replace("sessions", "session"), ("'session'", "'sessions'")),
        (YAML.replace("[liveserve]", "[]"), ("'engines'", "needs 1 or more")),
        (YAML.replace("[liveserve]", "[liveserve, liveserve]"), ("'engines'", "liveserve", "twice")),
        (YAML + "grid: {c: [4, 4]}\n", ("grid of c", "4", "twice")),
        (YAML + "schema_version: 99\n", ("mine.yaml", "schema version 99", "upgrade")),
        ("\0", ("not valid YAML", "correct it")),
    ],
)
def test_a_yaml_file_that_is_no_experiment_says_where(
    refuse: Rehearse, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    sentence = refuse("run", "mine.yaml")
    for word in words:
        assert word in sentence, sentence


def test_a_file_that_is_missing_or_unreadable_is_named(refuse: Rehearse, tmp_path: Path) -> None:
    assert "nowhere.yaml" in refuse("run", "nowhere.yaml")
    assert "nowhere.csv" in refuse("run", "bench", "--set", "workload=burstgpt", "--set", "path=nowhere.csv")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "binary.yaml" in refuse("run", "binary.yaml")


BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BURST.replace("Response tokens,", "") + "1,ChatGPT,10,30,API log\n", ("Response tokens",)),
        (BURST + "1,ChatGPT,10,20,30,API log\n2,ChatGPT,ten,20,30,API log\n", ("3", "ten")),
        (BURST, ("burst.csv",)),
        ("", ("empty",)),
    ],
)
def test_a_bad_csv_names_file_and_column_or_row(
    refuse: Rehearse, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "burst.csv").write_text(text)
    for arguments in (
        ("run", "bench", "--set", "workload=burstgpt"),
        ("trace", "make", "burstgpt", "--out", "t"),
    ):
        sentence = refuse(*arguments, "--set", "path=burst.csv")
        for word in ("burst.csv", *words):
            assert word in sentence, sentence
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--sessions", "eight"), ("'eight' is no whole number from 1 on", "--sessions 8,16,32")),
        (("--rate", "fast"), ("'fast' is no number above 0", "--rate 0.5,2")),
        (("--find", "ttfp<=0.5"), ("no ttfp by itself", "ttfp_p50", "ttfp_p99", "ttfp_p90<=0.5")),
        (("--find", "send_slip<=5%"), ("send_slip_p99", "<=5%")),
    ],
)
def test_a_number_or_target_of_a_live_run_that_is_none_says_what_would_be_one(
    refuse: Rehearse, option: tuple[str, str], words: tuple[str, ...]
) -> None:
    sentence = refuse("live", "ws://127.0.0.1:1/v1/realtime", *option)
    for word in words:
        assert word in sentence, sentence


def test_a_file_of_others_is_no_trace_and_says_how_to_make_one(refuse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(BURST + "1,ChatGPT,10,20,30,API log\n")
    sentence = refuse("trace", "stat", "t.csv")
    for word in ("t.csv is not a Parquet file", "rehearse trace make", "--set path=t.csv", "burstgpt"):
        assert word in sentence, sentence


def test_a_trace_file_that_is_none_is_refused(refuse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("no Parquet at all")
    assert "not a Parquet file" in refuse("trace", "show", "t.parquet")
    assert "nowhere.parquet" in refuse("trace", "show", "nowhere.parquet")
    assert "several/t.parquet" in refuse("trace", "make", "voice", "--out", "several/t.parquet")
    assert "takes one" in refuse("trace", "make", "voice", "--set", "p=0,1", "--out", "t.parquet")


def test_a_trace_of_a_newer_schema_is_refused(
    refuse: Rehearse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["rehearse", "trace", "make", "voice", "--set", "sessions=2", "--out", "t.parquet"]
    )
    with pytest.raises(SystemExit):
        cli.main()
    capsys.readouterr()
    table = pq.read_table(tmp_path / "t.parquet")
    header = json.loads(table.schema.metadata[b"rehearsal"])
    newer = json.dumps({**header, "schema_version": 99}).encode()
    pq.write_table(table.replace_schema_metadata({b"rehearsal": newer}), tmp_path / "t.parquet")
    assert "newer" in refuse("trace", "show", "t.parquet")


def test_an_output_directory_of_something_else_is_left_alone(refuse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("precious")
    assert "thesis" in refuse("run", "bench", "--out", "thesis")
    assert "is a file" in refuse("run", "bench", "--out", "thesis/thesis.tex")
    assert "cannot be written" in refuse("run", "bench", "--out", "thesis/thesis.tex/out")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["thesis.tex"]
    assert "not a results directory" in refuse("report", "thesis")


@pytest.mark.parametrize(
    "arguments",
    [
        ("trace", "make", "voice"),
        ("trace", "edit", "t.jsonl"),
        ("trace", "convert", "t.jsonl", "--to", "mooncake"),
        ("trace", "from-run", "record"),
    ],
)
def test_an_output_that_is_no_file_is_left_as_it_is(
    refuse: Rehearse, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, what in (("/dev/full", "no regular file"), ("pipe", "no regular file"), (".", "a folder")):
        sentence = refuse(*arguments, "--out", place)
        assert sentence == f"{place} is {what}; name a file to write, or - for standard output."
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode) and stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_quick_is_for_cards(refuse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    assert "--quick" in refuse("run", "mine.yaml", "--quick")


def test_more_calls_at_once_than_sessions_are_told_and_so_many_are_not(
    rehearse: Callable[..., tuple[int, str, str]],
) -> None:
    ask = ("run", "bench", "--set", "sessions=4", "--set", "p=0", "--seeds", "1", "--dry-run")
    status, _, err = rehearse(*ask, "--set", "c=2,16")
    assert status == 0 and "c=16 and 4 sessions: never so many are on line at once; set sessions=16" in err
    assert rehearse(*ask, "--set", "c=4")[2] == ""
