import csv
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.builders import starts
from tests.conftest import Rehearse
from tests.reports.test_traces import Compared
from workloads.formats import load_trace
from workloads.trace import Trace


@pytest.fixture
def voice(rehearse: Rehearse) -> str:
    """The path of a trace file."""
    rehearse("trace", "make", "voice", "--set", "sessions=12", "--set", "p=0.5", "--out", "v.parquet")
    return "v.parquet"


def test_a_trace_is_converted_to_json_lines_and_back_and_for_other_tools(rehearse: Rehearse, voice: str) -> None:
    assert rehearse("trace", "convert", voice, "--to", "jsonl", "--out", "v.jsonl") == (0, "v.jsonl\n", "")
    assert rehearse("trace", "convert", "v.jsonl", "--to", "parquet", "--out", "w.parquet")[0] == 0
    assert load_trace("w.parquet") == load_trace(voice)
    shown = rehearse("trace", "show", voice)
    assert rehearse("trace", "show", "v.jsonl") == shown
    assert load_trace(voice).header.hash[:16] in shown[1] and "voice, seed 0" in shown[1]
    for to, heads in (("mooncake", 0), ("burstgpt", 1), ("burstgpt-sessions", 1)):
        assert rehearse("trace", "convert", voice, "--to", to, "--out", to)[0] == 0
        assert len(Path(to).read_text().splitlines()) == len(load_trace(voice)) + heads


@pytest.mark.parametrize(
    ("command", "tells"),
    [
        ("make voice --set sessions=12 --set p=0.5", True),
        ("edit v.parquet", True),
        ("convert v.parquet --to jsonl", False),
    ],
)
def test_a_dash_prints_json_lines_alone(rehearse: Rehearse, voice: str, command: str, tells: bool) -> None:
    status, out, err = rehearse("trace", *command.split(), "--out", "-")
    Path("printed.jsonl").write_text(out)
    printed = load_trace("printed.jsonl")
    assert status == 0 and printed == load_trace(voice) and ("sessions" in err) == tells
    assert not Path("-").exists()


def test_stat_and_show_print_tables_json_or_csv(rehearse: Rehearse, voice: str) -> None:
    out = rehearse("trace", "stat", voice)[1]
    assert "CV of gaps (Poisson: 1)" in out and "reply_audio_s" in out
    assert json.loads(rehearse("trace", "stat", voice, "--json")[1])["sessions"] == 12
    (row,) = csv.DictReader(io.StringIO(rehearse("trace", "stat", voice, "--csv")[1]))
    assert row["sessions"] == "12" and float(row["quantities.reply_audio_s.p99"]) > 0
    rows = json.loads(rehearse("trace", "show", voice, "--json")[1])
    assert [row["input_tokens"] for row in rows] == load_trace(voice).columns()["input_tokens"].tolist()
    lines = list(csv.DictReader(io.StringIO(rehearse("trace", "show", voice, "--csv")[1])))
    assert len(lines) == len(rows) and lines[0]["modality"] == "audio"


@pytest.mark.usefixtures("unrendered")
def test_plot_writes_the_page_and_the_pictures(rehearse: Rehearse, voice: str) -> None:
    assert rehearse("trace", "plot", voice, "--out", "a/b") == (0, "a/b/trace.html\n", "")
    assert {"arrivals.png", "gaps.svg", "lengths.pdf"} <= {path.name for path in Path("a/b").iterdir()}
    rehearse("trace", "make", "poisson", "--out", "p.jsonl")
    assert rehearse("trace", "plot", voice, "--against", "p.jsonl", "--out", "c")[0] == 0
    assert "against those of p.jsonl" in Path("c/trace.html").read_text()


def test_edit_merges_cuts_thins_scales_and_loops(rehearse: Rehearse, voice: str) -> None:
    def edited(*arguments: str) -> Trace:
        assert rehearse("trace", "edit", *arguments, "--out", "edited.parquet")[0] == 0
        return load_trace("edited.parquet")

    first = sorted(starts(load_trace(voice)))
    assert len(edited(voice, voice).sessions) == 2 * len(first)
    half = first[len(first) // 2]
    kept = [t for t in first if t < half]
    looped = edited(voice, "--cut", f"0:{half}", "--scale", "0.5", "--loop", "3")
    assert len(looped.sessions) == 3 * len(kept)
    assert starts(looped)[: len(kept)].max() == pytest.approx(max(kept) / 2, abs=1e-6)
    assert 0 < len(edited(voice, "--thin", "0.5", "--seed", "1").sessions) < len(first)


def test_edit_labels_classes_and_merges_them_and_stat_shows_each(rehearse: Rehearse, voice: str) -> None:
    rehearse("trace", "make", "offline", "--set", "requests=9", "--out", "o.jsonl")
    labels = ["--class", "online,batch", "--priority", "0, 10", "--ttft-deadline", "1.5,none", "--tbt-deadline", "0.2,"]
    assert rehearse("trace", "edit", voice, "o.jsonl", *labels, "--out", "both.jsonl")[0] == 0
    classes = json.loads(rehearse("trace", "stat", "both.jsonl", "--json")[1])["classes"]
    online, batch = classes["online"], classes["batch"]
    assert list(classes) == ["online", "batch"]
    assert (online["turns"], online["sessions"]) == (len(load_trace(voice)), 12)
    assert (online["ttft_deadline_s"], online["tbt_deadline_s"]) == ([1.5, 1.5], [0.2, 0.2])
    assert (batch["priority"], batch["ttft_deadline_s"], batch["rate_per_s"]) == ([10, 10], None, None)
    assert "Classes of requests" in rehearse("trace", "stat", "both.jsonl")[1]
    assert "Classes" not in rehearse("trace", "stat", voice)[1]
    assert rehearse("trace", "make", "file", "--set", "path=both.jsonl", "--out", "again.parquet")[0] == 0
    assert load_trace("again.parquet") == load_trace("both.jsonl")


def test_fidelity_prints_and_draws_what_compare_finds(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.linspace(1, 9, 50)
    found = Compared("rag", "data/r.csv", "think", "s", values, values, 0.012, "fits")
    stand_in: Any = ModuleType("workloads.statistics.generator_fit")
    stand_in.compare = lambda data, seed=0: [found]
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    status, out, _ = rehearse("trace", "fidelity", "--data", "data", "--out", "f")
    assert status == 0 and "0.012" in out and "f/fidelity.html" in out
    assert Path("f/fidelity_rag.png").exists()
