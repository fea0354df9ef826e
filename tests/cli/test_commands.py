"""What the commands print and write; `measure` is a stand-in, the rest is real."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.exit_status import BAD_INPUT, OK
from tests.builders import REHEARSE
from tests.conftest import Rehearse
from tests.harness import fakes

pytestmark = pytest.mark.usefixtures("fake_experiment")


def test_a_run_prints_the_table_and_writes_the_summary(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    status, out, err = rehearse("run", "fake.yaml", "--jobs", "2")
    assert status == 0
    assert "A small experiment" in out and "TTFP P50" in out
    assert "50* (0–100)" in out  # ms; the stand-in measures one turn, a tenth of a second per seed
    assert "results/fake/summary.json" in out and "results/fake/report.html" in out
    assert "[4/4]" in err and "0 left" in err
    rows = json.loads(Path("results/fake/summary.json").read_text())
    assert [(row["params"]["c"], row["seed"], row["status"]) for row in rows] == [
        (c, seed, "ok") for c in (1, 2) for seed in (0, 1)
    ]
    keys = {"point", "engine", "device", "workload", "params", "seed", "status", "metrics"}
    assert all(row.keys() == keys for row in rows)
    assert rows[1]["metrics"]["audio_ttfp_p50"] == {"value": 0.1, "unit": "s", "n": 1, "missing": 0}


def test_what_is_fixed_stays_visible(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    title, fixed, *_ = rehearse("run", "fake.yaml", "--set", "c=2", "--set", "p=0.5")[1].splitlines()
    assert title.strip() == "A small experiment" and fixed.split() == ["sessions=2", "c=2", "p=0.5"]


def test_a_run_with_more_callers_than_sessions_says_how_many_are_there(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    out = rehearse("run", "fake.yaml", "--set", "c=2,4")[1]
    assert "\nc = 4 exceeds the 2 sessions, so that at most 2 callers are there at a time.\n" in out
    assert "there at a time" not in rehearse("run", "fake.yaml", "--set", "c=2", "--out", "two")[1]


def test_programs_get_the_table_as_json_or_csv(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    status, out, err = rehearse("run", "fake.yaml", "--csv")
    assert status == 0 and "results/fake/report.html" in err
    first, second = csv.DictReader(io.StringIO(out))
    assert (first["engine"], first["c"], second["c"], first["sessions"]) == ("vllm_omni", "1", "2", "2")
    assert (first["audio_ttfp_p50"], first["audio_ttfp_p50.high"]) == ("0.05", "0.1")  # s, not ms
    rows = json.loads(rehearse("report", "results/fake", "--json")[1])
    assert [row["settings"] for row in rows] == [{"sessions": 2, "c": 1}, {"sessions": 2, "c": 2}]
    spread = {"median": 0.05, "low": 0.0, "high": 0.1}
    assert rows[0]["metrics"]["audio_ttfp_p50"] == {**spread, "n": 1, "runs": 2, "few": True}
    (asked, _) = csv.DictReader(io.StringIO(rehearse("report", "results/fake", "--csv", "--columns", "p50")[1]))
    assert [name for name in asked if "." not in name][-1] == "audio_ttfp_p50" and "continuity" not in asked
    assert (rows[0]["runs"], rows[0]["runs_failed"]) == (2, 0)
    status, out, err = rehearse("report", "results/fake", "--json", "--csv")
    assert (status, out) == (2, "") and "two forms of one table" in err


def test_a_dry_run_tells_programs_all_that_points_have(rehearse: Rehearse) -> None:
    points = json.loads(rehearse("run", "fake.yaml", "--dry-run", "--json")[1])
    assert [point["client_params"]["c"] for point in points] == [1, 1, 2, 2]
    assert [f"{point['id']}  {point['label']}" for point in points] == rehearse("run", "fake.yaml", "--dry-run")[
        1
    ].splitlines()[:-1]
    (row, *_) = csv.DictReader(io.StringIO(rehearse("run", "fake.yaml", "--dry-run", "--csv")[1]))
    assert (row["engine"], row["client_params.c"], row["seed"]) == ("vllm_omni", "1", "0")


def test_the_same_run_again_measures_nothing_and_says_so(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    rehearse("run", "fake.yaml")
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    work(fakes.misbehave)  # would fail on seed 1
    status, out, err = rehearse("run", "fake.yaml")
    assert status == 0 and "4 of 4 points are finished already" in err and "TTFP" in out
    assert {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()} == before


def test_a_wider_grid_measures_only_what_is_new(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    rehearse("run", "fake.yaml", "--set", "c=1")
    status, _, err = rehearse("run", "fake.yaml")
    assert status == 0 and "2 of 4 points are finished already" in err
    assert len(json.loads(Path("results/fake/summary.json").read_text())) == 4


def test_a_failed_point_shows_in_table_summary_and_status(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.misbehave)
    status, out, err = rehearse("run", "fake.yaml", "--out", "here")
    assert status == 1
    assert "1 of 2" in out and "RuntimeError: the engine is lost" in out and "log.txt" in out
    assert "failed (RuntimeError: the engine is lost)" in err
    rows = json.loads(Path("here/summary.json").read_text())
    assert [row["status"] for row in rows] == ["ok", "failed"] * 2
    assert [row["metrics"] for row in rows if row["status"] == "failed"] == [{}, {}]
    assert rehearse("report", "here")[1] == out


def test_a_run_in_which_nothing_worked_has_a_table_and_no_report(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.fail)
    status, out, _ = rehearse("run", "fake.yaml")
    assert status == 1
    assert "0 of 2" in out and "ValueError: nothing works" in out and "report.html" not in out


def test_bad_input_loses_nothing_already_measured(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    rehearse("run", "fake.yaml")
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    for arguments in (("--set", "c=0"), ("--set", "engine=x"), ("--jobs", "0")):
        assert rehearse("run", "fake.yaml", *arguments)[0] == BAD_INPUT
    assert rehearse("run", "bench", "--out", "results/fake")[0] == BAD_INPUT
    assert {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()} == before


def tables() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("results/fake/points").glob("*/*.parquet")}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("requests.parquet", lambda path: os.truncate(path, 0)),
        ("events.parquet", lambda path: os.truncate(path, 500)),
        ("run.json", lambda path: path.write_bytes(b"\xff{")),
        ("manifest.json", lambda path: path.write_text("[]")),
        ("trace.parquet", Path.unlink),
    ],
)
def test_a_damaged_record_is_refused_by_readers_and_measured_again_by_a_run(
    rehearse: Rehearse, work: Callable, name: str, damage: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    work(fakes.measure)
    rehearse("run", "fake.yaml")
    before = tables()
    (first, *_) = sorted(Path("results/fake/points").iterdir())
    damage(first / name)
    for command in (("report", "results/fake"), ("compare", "results/fake", "results/fake")):
        status, out, err = rehearse(*command)
        assert (status, out) == (BAD_INPUT, "")
        assert err.startswith(f"rehearse: {first} is not a readable record: {name} ") and err.count("\n") == 1
    status, _, err = rehearse("run", "fake.yaml")
    assert status == 0 and "3 of 4 points are finished already" in err
    assert f"{first.name}" in caplog.text and name in caplog.text
    shutil.rmtree(f"{first}.damaged")
    assert tables() == before
    assert rehearse("report", "results/fake")[0] == 0


def test_what_is_garbled_beside_the_records_is_written_anew(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    rehearse("run", "fake.yaml")
    path, before = Path("results/fake/experiment.json"), tables()
    written = path.read_bytes()
    path.write_text("{")
    assert rehearse("report", "results/fake")[0] == BAD_INPUT
    work(fakes.fail)
    assert rehearse("run", "fake.yaml")[0] == 0  # nothing is measured again
    assert path.read_bytes() == written and tables() == before


@pytest.mark.parametrize(("sent", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_what_is_finished_and_says_how_to_go_on(
    rehearse: Rehearse, work: Callable, sent: signal.Signals, expected: int
) -> None:
    work(partial(fakes.interrupt, sent))
    status, _, err = rehearse("run", "fake.yaml", "--jobs", "1")
    assert status == expected
    assert err.splitlines()[-1] == "Stopped with 1 of 4 points finished; run the same command again to resume."
    assert len(json.loads(Path("results/fake/summary.json").read_text())) == 1
    work(fakes.measure)
    status, _, err = rehearse("run", "fake.yaml")
    assert status == 0 and "1 of 4 points are finished already" in err


def test_a_full_disk_under_standard_output_is_one_sentence() -> None:
    for arguments in ("--version", "list engines", "trace make voice --out -"):
        command = [*REHEARSE, *arguments.split()]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == BAD_INPUT
        (line,) = done.stderr.splitlines()
        assert line.startswith("rehearse: No space left on device; make room")


def test_nobody_who_reads_on_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    for arguments in ("--version", "list engines"):
        command = [*REHEARSE, *arguments.split()]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (OK, "")
    os.close(write)


def test_a_dry_run_prints_the_points_and_leaves_nothing(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("run", "bench", "--dry-run")
    assert status == 0
    assert out.splitlines()[-1] == "54 points"
    assert len({line.split()[0] for line in out.splitlines()[:-1]}) == 54
    assert rehearse("run", "bench", "--quick", "--dry-run")[1].splitlines()[-1] == "8 points"
    assert [path.name for path in Path().iterdir()] == ["fake.yaml"]


@pytest.mark.parametrize("kind", ["engines", "workloads", "devices", "gpus", "deployments", "dialects", "cards"])
def test_lists_are_for_people_and_for_programs(rehearse: Rehearse, kind: str) -> None:
    entries = json.loads(rehearse("list", kind, "--json")[1])
    assert entries
    table = rehearse("list", kind)[1]
    for entry in entries:
        assert entry["summary"] and entry["name"] in table


def test_a_list_without_a_kind_says_which_there_are(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("list")
    kinds = ("engines", "workloads", "devices", "gpus", "deployments", "dialects", "cards", "metrics")
    assert status == 0 and all(kind in out for kind in kinds)
    assert [row["name"] for row in csv.DictReader(io.StringIO(rehearse("list", "--csv")[1]))] == list(kinds)


def test_one_of_any_kind_can_be_looked_at(rehearse: Rehearse) -> None:
    assert "two H200" in rehearse("list", "deployments", "qwen3_omni_2gpu")[1]
    (card,) = json.loads(rehearse("list", "cards", "metronome-table2-quality", "--json")[1])
    assert card["experiments"] and card["needs"] in card["summary"]
    rows = csv.DictReader(io.StringIO(rehearse("list", "workloads", "voice", "--csv")[1]))
    assert {"p": "0.0", "network_ms": "5.0"}.items() <= {row["name"]: row["default"] for row in rows}.items()


def test_one_engine_shows_everything_that_can_be_set(rehearse: Rehearse) -> None:
    out = rehearse("list", "engines", "liveserve")[1]
    assert all(name in out for name in ("u2_mode", "deployment", "turn_timeout_s"))
    assert "[paper]" in rehearse("list", "engines", "metronome")[1]  # a source, not markup


def test_one_engine_shows_what_it_is_composed_of(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a line each
    made_of = [line.split() for line in rehearse("list", "engines", "vllm_omni")[1].splitlines()]
    parameters = next(i for i, line in enumerate(made_of) if line[:1] == ["parameter"])
    filled = {line[0]: line[1] for line in made_of[2:parameters] if len(line) > 1}
    assert filled.pop("or") == "--set"
    others = {line[2]: {name.strip(",") for name in line[3:]} for line in made_of if line[:2] == ["or", "--set"]}
    assert {"routing=", "talker_routing=", "scheduler="} <= others.keys() and "omniproxy" in others["decode_routing="]
    assert filled["serves"] == "turns" and filled["routing"] == "session_affinity:"
    assert filled["scheduler"] == "fcfs:" and filled["kv"] == "host:"
    (entry,) = json.loads(rehearse("list", "engines", "vllm_omni", "--json")[1])
    assert entry["serves"] == "turns" and entry["composition"].keys() == filled.keys() - {"serves"}
    assert "offline_mode" not in {line[0] for line in made_of if line}
    out = rehearse("list", "engines", "vllm_omni", "--set", "scheduler=conserve")[1]
    assert "offline_mode" in out and "deployment" not in out
    assert len(list(csv.DictReader(io.StringIO(rehearse("list", "engines", "vllm_omni", "--csv")[1])))) > 60
    status, _, err = rehearse("list", "engines", "vllm_omni", "--set", "scheduler=conserv")
    assert status == 2 and "has no such component. Did you mean 'scheduler=conserve'?" in err
    endpoint = rehearse("list", "engines", "endpoint")[1]  # nobody knows what stands behind it
    assert "serves" not in endpoint and "url" in endpoint


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("rehearse do", ["doctor"]),
        ("rehearse list dep", ["deployments"]),
        ("rehearse list engines liveserve_", ["liveserve_on_calls"]),
        ("rehearse run ben", ["bench"]),
        ("rehearse run bench --device vir", ["virtual"]),
        ("rehearse serve metro", ["metronome"]),
        ("rehearse trace make servegen", ["servegen"]),
        ("rehearse run bench --qui", ["--quick"]),
    ],
)
def test_a_shell_completes_what_can_be_named(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, typed: str, completed: list[str]
) -> None:
    monkeypatch.setenv("_REHEARSE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    assert rehearse()[1].split() == completed


def test_our_warnings_are_shown_and_those_of_libraries_only_to_who_asks_for_them() -> None:
    program = """
import logging, warnings
from reports import cli
from reports.cli.app import NAMES, build

@build(NAMES).command("noisy")
def noisy():
    warnings.warn("a library is old", FutureWarning)
    logging.getLogger("library").warning("a backend is missing")
    logging.getLogger("harness.records.results").warning("a record is damaged")
    logging.getLogger("library").error("it is broken")

cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program, "noisy"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "a record is damaged\nit is broken\n")
    done = subprocess.run([sys.executable, "-Wd", "-c", program, "noisy"], capture_output=True, text=True)
    assert "FutureWarning: a library is old" in done.stderr


def test_quick_settings_that_another_workload_lacks_are_dropped(rehearse: Rehearse) -> None:
    arguments = ("--quick", "--set", "workload=gui", "--set", "p=0", "--dry-run")
    status, out, err = rehearse("run", "bench", *arguments)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "4 points"


def test_more_calls_at_once_than_sessions_are_told_and_so_many_are_not(rehearse: Rehearse) -> None:
    ask = ("run", "bench", "--set", "sessions=4", "--set", "p=0", "--seeds", "1", "--dry-run")
    status, _, err = rehearse(*ask, "--set", "c=2,16")
    assert status == 0 and "c=16 and 4 sessions: 16 sessions are never concurrent; set sessions=16" in err
    assert rehearse(*ask, "--set", "c=4")[2] == ""


def test_a_recorded_trace_is_not_asked_for_more_sessions(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("session_id,t,query,output\na,0,120,60\nb,1,40,80\n")
    mine = ("--set", "workload=sessions", "--set", f"path={tmp_path / 'mine.csv'}", "--set", "reply=text")
    where = ("--set", "deployment=llama_8b_1gpu", "--set", "engine=vllm_omni_wo", "--set", "p=0")
    status, out, err = rehearse("run", "bench", *mine, *where, "--set", "c=16", "--seeds", "1", "--dry-run")
    assert (status, out.splitlines()[-1]) == (0, "1 point")
    assert err.startswith(
        "c=16 and 2 sessions: 16 sessions are never concurrent; set a smaller c.\nc limits the sessions"
    )


def test_a_wrong_option_points_to_the_help_of_its_command(rehearse: Rehearse) -> None:
    status, _, err = rehearse("report", "results/x", "--figure", "continuity", "--width", "0")
    sentence = "rehearse: invalid value for '--width': it must be a number from 1 to 40, got '0'; see rehearse report"
    assert (status, err) == (2, f"{sentence} --help.\n")


@pytest.mark.parametrize(
    ("error", "status"),
    [(RuntimeError(), 70), (EOFError(), 70), (PermissionError(1, "no"), 70), (KeyboardInterrupt(), 130)],
)
def test_a_fault_of_ours_has_a_status_that_no_verdict_has(
    error: BaseException, status: int, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("workloads.registry.make_trace", fail)
    found, _, err = rehearse("trace", "make", "voice", "--out", "x.parquet")
    assert found == status and ("this is a fault of rehearse itself, and no verdict" in err) == (status == 70)
