"""`rehearse trace`: make, convert, look into and draw a trace, and take one from a run."""

import csv
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.conftest import Rehearse
from tests.reports.test_traces import Compared
from workloads.formats import load_trace


@pytest.fixture
def voice(rehearse: Rehearse) -> str:
    """The path of a trace file."""
    rehearse("trace", "make", "voice", "--set", "sessions=12", "--set", "p=0.5", "--out", "v.parquet")
    return "v.parquet"


def test_a_trace_goes_through_json_lines_and_back(rehearse: Rehearse, voice: str) -> None:
    assert rehearse("trace", "convert", voice, "--to", "jsonl", "--out", "v.jsonl") == (0, "v.jsonl\n", "")
    assert rehearse("trace", "convert", "v.jsonl", "--to", "parquet", "--out", "w.parquet")[0] == 0
    assert load_trace("w.parquet") == load_trace(voice)
    shown = rehearse("trace", "show", voice)
    assert rehearse("trace", "show", "v.jsonl") == shown
    assert load_trace(voice).header.hash[:16] in shown[1] and "voice, seed 0" in shown[1]


@pytest.mark.parametrize("to", ["mooncake", "burstgpt", "burstgpt-sessions"])
def test_a_trace_goes_out_to_other_tools(rehearse: Rehearse, voice: str, to: str) -> None:
    status, _, _ = rehearse("trace", "convert", voice, "--to", to, "--out", "out")
    assert status == 0
    lines = Path("out").read_text().splitlines()
    assert len(lines) == len(load_trace(voice)) + ("burstgpt" in to)


def test_make_writes_json_lines_where_the_name_asks_for_them(rehearse: Rehearse) -> None:
    assert rehearse("trace", "make", "voice", "--set", "sessions=2", "--out", "t.jsonl")[0] == 0
    assert json.loads(Path("t.jsonl").read_text().splitlines()[0])["generator"] == "voice"


@pytest.mark.parametrize(
    "arguments",
    [
        ("make", "voice", "--set", "sessions=12", "--set", "p=0.5"),
        ("edit", "v.parquet"),
        ("convert", "v.parquet", "--to", "jsonl"),
    ],
)
def test_a_dash_prints_json_lines_and_nothing_else(rehearse: Rehearse, voice: str, arguments: tuple[str, ...]) -> None:
    status, out, err = rehearse("trace", *arguments, "--out", "-")
    Path("printed.jsonl").write_text(out)
    assert status == 0 and load_trace("printed.jsonl").columns().keys() == load_trace(voice).columns().keys()
    assert load_trace("printed.jsonl") == load_trace(voice)
    assert ("sessions" in err) == (arguments[0] != "convert")
    assert not Path("-").exists()


def test_stat_prints_tables_or_json(rehearse: Rehearse, voice: str) -> None:
    status, out, _ = rehearse("trace", "stat", voice)
    assert status == 0
    for words in ("CV of gaps (Poisson: 1)", "reply_audio_s", "replies with a drawn interruption", "p99"):
        assert words in out
    assert "…" not in out and max(map(len, out.splitlines())) <= 80
    status, out, _ = rehearse("trace", "stat", voice, "--json")
    assert status == 0
    assert json.loads(out)["sessions"] == 12
    (row,) = csv.DictReader(io.StringIO(rehearse("trace", "stat", voice, "--csv")[1]))
    assert row["sessions"] == "12" and float(row["quantities.reply_audio_s.p99"]) > 0


def test_show_gives_programs_every_turn(rehearse: Rehearse, voice: str) -> None:
    turns = load_trace(voice).columns()
    rows = json.loads(rehearse("trace", "show", voice, "--json")[1])
    assert [row["input_tokens"] for row in rows] == turns["input_tokens"].tolist()
    lines = list(csv.DictReader(io.StringIO(rehearse("trace", "show", voice, "--csv")[1])))
    assert len(lines) == len(rows) and lines[0]["modality"] == "audio"


@pytest.mark.usefixtures("unrendered")
def test_plot_writes_the_page_and_the_pictures(rehearse: Rehearse, voice: str) -> None:
    assert rehearse("trace", "plot", voice, "--out", "a/b") == (0, "a/b/trace.html\n", "")
    assert {"arrivals.png", "gaps.svg", "lengths.pdf"} <= {path.name for path in Path("a/b").iterdir()}
    rehearse("trace", "make", "poisson", "--out", "p.jsonl")
    assert rehearse("trace", "plot", voice, "--against", "p.jsonl", "--out", "c")[0] == 0
    assert "against those of p.jsonl" in Path("c/trace.html").read_text()


def test_fidelity_without_the_real_files_says_which_it_wants(rehearse: Rehearse) -> None:
    Path("data").mkdir()
    status, out, err = rehearse("trace", "fidelity", "--data", "data")
    assert (status, out) == (2, "")
    assert err.startswith("rehearse: data has none of the real files (")


def test_fidelity_prints_and_draws_what_compare_finds(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.linspace(1, 9, 50)
    stand_in = ModuleType("workloads.statistics.generator_fit")
    found = [Compared("rag", f"{Path('data')}/r.csv", "think", "s", values, values, 0.012, "fits")]
    stand_in.compare = lambda data, seed=0: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "workloads.statistics.generator_fit", stand_in)
    status, out, _ = rehearse("trace", "fidelity", "--data", "data", "--out", "f")
    assert status == 0
    assert "0.012" in out and "f/fidelity.html" in out
    assert Path("f/fidelity_rag.png").exists()


def test_edit_merges_cuts_thins_scales_and_loops(rehearse: Rehearse, voice: str) -> None:
    whole = load_trace(voice)
    first = [session.turns[0].arrival_s or 0.0 for session in whole.sessions]
    assert rehearse("trace", "edit", voice, voice, "--out", "merged.parquet")[0] == 0
    assert len(load_trace("merged.parquet").sessions) == 2 * len(first)
    half = sorted(first)[len(first) // 2]
    steps = ["--cut", f"0:{half}", "--scale", "0.5", "--loop", "3"]
    assert rehearse("trace", "edit", voice, *steps, "--out", "edited.parquet")[0] == 0
    edited = load_trace("edited.parquet")
    kept = [t for t in first if t < half]
    assert len(edited.sessions) == 3 * len(kept)
    assert edited.sessions[len(kept) - 1].turns[0].arrival_s == pytest.approx(max(kept) / 2, abs=1e-6)
    assert rehearse("trace", "edit", voice, "--thin", "0.5", "--seed", "1", "--out", "thin.parquet")[0] == 0
    assert 0 < len(load_trace("thin.parquet").sessions) < len(first)


def test_edit_labels_and_merges_and_stat_shows_the_classes(rehearse: Rehearse, voice: str) -> None:
    rehearse("trace", "make", "offline", "--set", "requests=9", "--out", "o.jsonl")
    labels = ["--class", "online,batch", "--priority", "0, 10", "--ttft-deadline", "1.5,none"]
    arguments = [voice, "o.jsonl", *labels, "--tbt-deadline", "0.2,", "--out", "both.jsonl"]
    assert rehearse("trace", "edit", *arguments)[0] == 0
    classes = json.loads(rehearse("trace", "stat", "both.jsonl", "--json")[1])["classes"]
    assert list(classes) == ["online", "batch"]
    assert classes["online"]["turns"] == len(load_trace(voice)) and classes["online"]["sessions"] == 12
    assert classes["batch"] | {"priority": [10, 10], "ttft_deadline_s": None, "rate_per_s": None} == classes["batch"]
    assert (classes["online"]["ttft_deadline_s"], classes["online"]["tbt_deadline_s"]) == ([1.5, 1.5], [0.2, 0.2])
    out = rehearse("trace", "stat", "both.jsonl")[1]
    assert "Classes of requests" in out and max(map(len, out.splitlines())) <= 80
    assert "Classes" not in rehearse("trace", "stat", voice)[1]
    assert "batch" in rehearse("trace", "show", "both.jsonl")[1]
    assert rehearse("trace", "make", "file", "--set", "path=both.jsonl", "--out", "again.parquet")[0] == 0
    assert load_trace("again.parquet") == load_trace("both.jsonl")
