"""The commands print tables and write results; `measure` is a stand-in, the rest is real."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engines.registry import ENGINES, beside_baselines
from harness.exit_status import BAD_INPUT, FAULT, OK
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.turns import DEFINITIONS
from harness.metrics.vocabulary import OWN_DEFINITIONS
from reports.cards.card import figures
from reports.cli.run import order_seed
from tests.builders import REHEARSE, settings
from tests.conftest import Rehearse
from tests.harness import fakes

pytestmark = pytest.mark.usefixtures("fake_experiment")

SUMMARY = Path("results/fake/summary.json")


def contents(pattern: str = "**/*") -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("results").glob(pattern) if path.is_file()}


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_run_prints_the_table_and_writes_the_summary(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    status, out, err = rehearse("run", "fake.yaml", "--jobs", "2")
    title, fixed, *_ = out.splitlines()
    assert (status, title.strip(), fixed.strip()) == (0, "A small experiment", "sessions=2")
    assert "50* (0–100)" in out  # ms; the stand-in measures one turn, a tenth of a second per seed
    assert "results/fake/summary.json" in out and "results/fake/report.html" in out
    assert "[4/4]" in err and "0 left" in err
    rows = json.loads(SUMMARY.read_text())
    assert [(row["params"]["c"], row["seed"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert rows[0].keys() == {"point", "engine", "device", "workload", "params", "seed", "status", "metrics"}
    assert rows[1]["metrics"]["audio_ttfp_p50"] == {"value": 0.1, "unit": "s", "n": 1, "missing": 0}


def test_programs_get_the_table_as_json_or_csv(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    status, out, err = rehearse("run", "fake.yaml", "--csv")
    assert status == 0 and "results/fake/report.html" in err
    first, second = read_csv(out)
    assert (first["engine"], first["c"], second["c"], first["sessions"]) == ("vllm_omni", "1", "2", "2")
    assert (first["audio_ttfp_p50"], first["audio_ttfp_p50.high"]) == ("0.05", "0.1")  # s, not ms
    rows = json.loads(rehearse("report", "results/fake", "--json")[1])
    assert [row["settings"] for row in rows] == [{"sessions": 2, "c": 1}, {"sessions": 2, "c": 2}]
    assert (rows[0]["runs"], rows[0]["runs_failed"]) == (2, 0)
    spread = {"median": 0.05, "low": 0.0, "high": 0.1}
    assert rows[0]["metrics"]["audio_ttfp_p50"] == {**spread, "n": 1, "runs": 2, "few": True}
    (asked, _) = read_csv(rehearse("report", "results/fake", "--csv", "--columns", "p50")[1])
    assert [name for name in asked if "." not in name][-1] == "audio_ttfp_p50" and "continuity" not in asked


def test_a_dry_run_lists_the_points_and_leaves_nothing(rehearse: Rehearse) -> None:
    *lines, total = rehearse("run", "fake.yaml", "--dry-run")[1].splitlines()
    points = json.loads(rehearse("run", "fake.yaml", "--dry-run", "--json")[1])
    assert [f"{point['id']}  {point['label']}" for point in points] == lines and total == "4 points"
    assert len({point["id"] for point in points}) == 4
    assert [point["client_params"]["c"] for point in points] == [1, 1, 2, 2]
    (row, *_) = read_csv(rehearse("run", "fake.yaml", "--dry-run", "--csv")[1])
    assert (row["engine"], row["client_params.c"], row["seed"]) == ("vllm_omni", "1", "0")
    assert [path.name for path in Path().iterdir()] == ["fake.yaml"]


@pytest.mark.parametrize(
    ("arguments", "total"),
    [
        ("bench", "54 points"),
        ("bench --quick", "8 points"),
        ("bench --quick --set workload=gui --set p=0", "4 points"),  # gui lacks some settings of --quick
    ],
)
def test_the_bench_has_54_points_and_its_small_version_8(rehearse: Rehearse, arguments: str, total: str) -> None:
    status, out, err = rehearse("run", *arguments.split(), "--dry-run")
    assert (status, err, out.splitlines()[-1]) == (0, "", total)


def test_a_run_measures_only_points_that_are_new_or_failed(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.misbehave)  # seed 1 fails
    status, out, err = rehearse("run", "fake.yaml")
    assert status == 1 and "failed (RuntimeError: the engine is lost)" in err
    assert "1 of 2" in out and "RuntimeError: the engine is lost" in out and "log.txt" in out
    assert [row["status"] for row in json.loads(SUMMARY.read_text())] == ["ok", "failed"] * 2
    work(fakes.measure)
    status, _, err = rehearse("run", "fake.yaml")
    assert status == 0 and "2 of 4 points are finished already" in err
    before = contents()
    work(fakes.fail)
    status, out, err = rehearse("run", "fake.yaml")
    assert status == 0 and "4 of 4 points are finished already" in err and "TTFP" in out
    assert contents() == before


@pytest.mark.parametrize(("sent", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupts_keep_finished_points(
    rehearse: Rehearse, work: Callable, sent: signal.Signals, expected: int
) -> None:
    work(partial(fakes.interrupt, sent))
    status, _, err = rehearse("run", "fake.yaml", "--jobs", "1")
    assert status == expected
    assert err.splitlines()[-1] == "Stopped with 1 of 4 points finished; run the same command again to resume."
    assert len(json.loads(SUMMARY.read_text())) == 1
    work(fakes.measure)
    status, _, err = rehearse("run", "fake.yaml")
    assert status == 0 and "1 of 4 points are finished already" in err


@pytest.mark.parametrize("arguments", ["--version", "list engines", "trace make voice --out -"])
def test_a_full_disk_is_one_sentence_and_a_closed_pipe_none(arguments: str) -> None:
    command = [*REHEARSE, *arguments.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    (line,) = done.stderr.splitlines()
    assert done.returncode == BAD_INPUT and line.startswith("rehearse: No space left on device; make room")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == OK and "Traceback" not in done.stderr and "Broken" not in done.stderr


@pytest.mark.parametrize("kind", ["engines", "workloads", "devices", "gpus", "deployments", "dialects", "cards"])
def test_lists_are_for_people_and_for_programs(rehearse: Rehearse, kind: str) -> None:
    entries = json.loads(rehearse("list", kind, "--json")[1])
    table = rehearse("list", kind)[1]
    assert entries and all(entry["summary"] and entry["name"] in table for entry in entries)


def test_a_list_without_a_kind_says_which_there_are(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("list")
    kinds = ["engines", "workloads", "devices", "gpus", "deployments", "dialects", "cards", "metrics"]
    assert status == 0 and all(kind in out for kind in kinds)
    assert [row["name"] for row in read_csv(rehearse("list", "--csv")[1])] == kinds


def test_one_of_any_kind_can_be_listed_alone(rehearse: Rehearse) -> None:
    assert "two H200" in rehearse("list", "deployments", "qwen3_omni_2gpu")[1]
    (card,) = json.loads(rehearse("list", "cards", "metronome-table2-quality", "--json")[1])
    assert card["experiments"] and card["needs"] in card["summary"]
    defaults = {row["name"]: row["default"] for row in read_csv(rehearse("list", "workloads", "voice", "--csv")[1])}
    assert (defaults["p"], defaults["network_ms"]) == ("0.0", "5.0")
    assert "[paper]" in rehearse("list", "engines", "metronome")[1]  # a source, not markup


def test_every_engine_is_listed_once_and_a_baseline_after_its_system() -> None:
    assert all(set(system.against) <= ENGINES.keys() for system in ENGINES.values())
    groups = beside_baselines()
    listed = [name for system, baselines in groups.items() for name in (system, *baselines)]
    assert sorted(listed) == sorted(ENGINES)
    for system, baselines in groups.items():
        assert set(baselines) <= set(ENGINES[system].against) and system not in ENGINES[system].against
    assert groups["liveserve"] == ["vllm_omni", "vllm_omni_wo"]
    assert groups["metronome"][0] == "vllm_realtime" and groups["nova"] == ["multi_stream", "pf_limit", "chunked"]
    kinds = [ENGINES[system].kind for system in groups]
    assert kinds == sorted(kinds, key=["turns", "frames", *kinds].index)


def test_every_metric_is_listed_with_its_unit_and_meaning(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("list", "metrics")
    line = next(line for line in out.splitlines() if line.startswith("audio_ttfp_p90 "))
    assert status == 0 and line.split()[1] == "s" and "P90 over turns: time to the first non-empty audio packet" in line
    rows = {row["name"]: row for row in json.loads(rehearse("list", "metrics", "--json")[1])}
    assert {*DEFINITIONS, *LIVE_DEFINITIONS, *OWN_DEFINITIONS} <= rows.keys() and "CLASS.ttft_p90" in rows
    assert rows["continuity"]["better"] == "higher" and "not" in rows["continuity"]["summary"]
    assert rehearse("list", "metrics", "continuity")[0] == 0


def test_an_engine_is_listed_with_its_composition_and_its_parameters(rehearse: Rehearse) -> None:
    (entry,) = json.loads(rehearse("list", "engines", "vllm_omni", "--json")[1])
    assert entry["serves"] == "turns" and {"routing", "scheduler", "kv"} <= entry["composition"].keys()
    plain = rehearse("list", "engines", "vllm_omni")[1]
    assert "session_affinity:" in plain and "or --set decode_routing=" in plain and "offline_mode" not in plain
    changed = rehearse("list", "engines", "vllm_omni", "--set", "scheduler=conserve")[1]
    assert "offline_mode" in changed  # a parameter of ConServe's scheduler
    endpoint = rehearse("list", "engines", "endpoint")[1]  # nobody knows what stands behind it
    assert "serves" not in endpoint and "url" in endpoint


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("rehearse do", ["doctor"]),
        ("rehearse list engines liveserve_", ["liveserve_on_calls"]),
        ("rehearse run ben", ["bench"]),
        ("rehearse run bench --device vir", ["virtual"]),
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


def test_our_warnings_are_shown_and_those_of_libraries_are_not() -> None:
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


def test_more_callers_than_sessions_of_a_recorded_trace_are_noted(rehearse: Rehearse) -> None:
    Path("mine.csv").write_text("session_id,t,query,output\na,0,120,60\nb,1,40,80\n")
    mine = settings("workload=sessions", "path=mine.csv", "reply=text", "p=0")
    mine += settings("deployment=llama_8b_1gpu", "engine=vllm_omni_wo")

    def notes(c: str) -> str:
        return rehearse("run", "bench", *mine, "--set", f"c={c}", "--seeds", "1", "--dry-run")[2]

    assert "c=3 and 2 sessions: 3 sessions are never concurrent; set a smaller c.\nc limits the sessions" in notes("3")
    assert "never concurrent" not in notes("2")
    assert "c limits" not in notes("null")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError(), FAULT),
        (EOFError(), FAULT),
        (PermissionError(1, "no"), FAULT),
        (SystemExit(1), FAULT),  # of a library
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_unexpected_error_has_a_status_that_no_verdict_has(
    error: BaseException, status: int, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("workloads.registry.make_trace", fail)
    found, _, err = rehearse("trace", "make", "voice", "--out", "x.parquet")
    assert found == status and ("this is a fault of rehearse itself, and no verdict" in err) == (status == FAULT)


def listed(rehearse: Rehearse, *arguments: str) -> list[str]:
    """Ids in the order of a dry run."""
    out = rehearse("run", "fake.yaml", "--dry-run", *arguments)[1]
    return [line.split()[0] for line in out.splitlines()[:-1]]


def test_a_shuffled_order_can_be_read_before_the_run_is_run_and_recorded(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    order = listed(rehearse, "--shuffle", "3")
    assert sorted(order) == sorted(listed(rehearse)) and order != listed(rehearse)
    assert rehearse("run", "fake.yaml", "--shuffle", "3", "--jobs", "1")[0] == 0
    manifests = {path.parent.name: json.loads(path.read_text()) for path in Path().glob("results/**/manifest.json")}
    for field in ("order", "started"):
        assert sorted(manifests, key=lambda id: manifests[id][field]) == order
    assert {manifest["order_seed"] for manifest in manifests.values()} == {3}
    # The results are shown as the experiment has them, whatever the order of the runs.
    assert [row["point"] for row in json.loads(SUMMARY.read_text())] == listed(rehearse)


def test_figures_of_metronome_are_shuffled_unless_told_otherwise() -> None:
    defaults = {figure.group: figure.order_seed for figure in figures().values()}
    assert defaults["metronome"] == 0 and defaults["liveserve"] is None
    for text, default, seed in ((None, 0, 0), (None, None, None), ("7", 0, 7), ("none", 0, None)):
        assert order_seed(text, default) == seed
