"""The examples as a stranger has them: packages of their own, found by their entry points and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders import settings

pytestmark = pytest.mark.slow("installs the examples")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
EDF = (str(EXAMPLES / "edf_policy/edf.yaml"), *settings("requests=40", "documents=15"), "--seeds", "1")
RAG = (str(EXAMPLES / "my_system/rag.yaml"), *settings("questions=40", "rate=5"), "--seeds", "1")

Rehearse = Callable[..., subprocess.CompletedProcess[str]]
RehearseAll = Callable[..., list[subprocess.CompletedProcess[str]]]

SEVERAL = """
import contextlib, io, json, sys
from reports import cli
for arguments in json.load(sys.stdin):
    sys.argv, out, err = ["rehearse", *arguments], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
"""Commands one after the other in one process: starting takes longer than refusing."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages installed in `site`, as from an index but without a network."""
    place = tmp_path_factory.mktemp("examples")
    sources = []
    for name in ("edf_policy", "my_system", "vtc", "walkie"):
        # A build leaves folders beside its source.
        ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        sources.append(shutil.copytree(EXAMPLES / name, place / "sources" / name, ignore=ignored))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", place / "site"]
    pip = [sys.executable, "-m", "pip", "install", *options, *sources]
    subprocess.run(pip, check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def python(place: Path) -> Rehearse:
    """Runs Python where the packages are installed."""
    paths = os.pathsep.join([str(place / "site"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "150"}
    run = partial(subprocess.run, cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    return lambda *arguments, **more: run([sys.executable, *arguments], **more)


@pytest.fixture(scope="module")
def rehearse(python: Rehearse) -> Rehearse:
    """Runs a command."""
    return lambda *arguments: python("-c", "from reports.cli import main; main()", *arguments)


@pytest.fixture(scope="module")
def rehearse_all(python: Rehearse) -> RehearseAll:
    """Runs several that measure nothing."""

    def run(*commands: tuple[str, ...]) -> list[subprocess.CompletedProcess[str]]:
        done = python("-c", SEVERAL, input=json.dumps(commands))
        ended = map(json.loads, done.stdout.splitlines())
        return [subprocess.CompletedProcess(args, *end) for args, end in zip(commands, ended, strict=True)]

    return run


@pytest.fixture(scope="module")
def edf(place: Path, rehearse: Rehearse) -> str:
    """What the comparison of orders prints; its results are in `edf`."""
    return measured(rehearse("run", *EDF, "--out", "edf"), place / "edf")


@pytest.fixture(scope="module")
def rag(place: Path, rehearse: Rehearse) -> str:
    """What the comparison of rerankers prints; its results are in `rag`."""
    return measured(rehearse("run", *RAG, "--out", "rag"), place / "rag")


def measured(done: subprocess.CompletedProcess[str], out: Path) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "report.html").is_file()
    return done.stdout


def rows(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "summary.json").read_text())


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of exit status 2."""
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert done.stdout == "" and line.startswith("rehearse: ")
    return line.removeprefix("rehearse: ")


def test_the_engines_workloads_deployments_and_dialects_of_packages_are_listed(rehearse_all: RehearseAll) -> None:
    kinds = ("engines", "workloads", "deployments", "dialects")
    done = rehearse_all(*(("list", kind, "--json") for kind in kinds))
    engines, workloads, deployments, dialects = (
        {entry["name"]: entry for entry in json.loads(process.stdout)} for process in done
    )
    assert {"edf", "rag", "rag_shortest", "vllm_omni"} <= engines.keys()
    assert engines["edf"]["composition"]["scheduler"].startswith("edf: ")
    assert engines["rag"]["serves"] == workloads["rag"]["serves"] == "rag"
    assert "rag_2gpu" in deployments
    assert dialects["walkie"]["summary"] == "Servers of an example protocol: push to talk"


@pytest.mark.parametrize("package", ["walkie", "vtc"])
def test_a_package_passes_its_own_tests(place: Path, python: Rehearse, package: str) -> None:
    tests = place / "sources" / package / "tests"
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_earliest_deadline_meets_more_deadlines(place: Path, edf: str) -> None:
    assert "by class of request" in edf
    assert "scheduler=edf" in (place / "edf" / "report.html").read_text()
    metric = "online.ttft_in_deadline"
    met = {row["params"]["scheduler"]: row["metrics"][metric]["value"] for row in rows(place / "edf")}
    assert met.keys() == {"fcfs", "priority", "edf"}
    assert met["edf"] >= met["fcfs"] and met["edf"] > 0.9


def test_results_of_a_new_kind_of_workload_are_shown_with_its_own_metrics(place: Path, rag: str) -> None:
    assert "scored P50" in rag and "TTFT P99" in rag
    assert "wasted" not in rag  # a metric of turns
    report = (place / "rag" / "report.html").read_text()
    assert "time until every passage has a score" in report
    assert "embedding of the question" in report


def test_the_shortest_question_first_scores_sooner_in_the_middle(place: Path, rag: str) -> None:
    import pandas as pd

    by_engine = {row["engine"]: row for row in rows(place / "rag")}
    middle = {name: row["metrics"]["scored_p50"]["value"] for name, row in by_engine.items()}
    assert middle["rag_shortest"] < middle["rag"]
    for row in by_engine.values():
        table: Any = pd.read_parquet(place / "rag" / "points" / row["point"] / "requests.parquet")
        assert (table["status"] == "completed").all() and len(table) == 40
        assert (table["scored_s"] < table["ttft_s"]).all() and (table["ttft_s"] <= table["e2e_s"]).all()


def test_results_of_a_new_kind_of_workload_are_compared(rag: str, rehearse_all: RehearseAll) -> None:
    compare = ("compare", "rag", "rag")
    headline, asked = rehearse_all(compare, (*compare, "--metrics", "scored_p90,ttft_p50"))
    assert headline.returncode == asked.returncode == 0
    assert "scored P50, ms" in headline.stdout and "scored P90, ms" in asked.stdout


def test_the_same_seed_gives_the_same_bytes(place: Path, rag: str, rehearse: Rehearse) -> None:
    measured(rehearse("run", *RAG, "--set", "engine=rag_shortest", "--out", "again"), place / "again")
    (point,) = (place / "again" / "points").iterdir()
    for name in ("run.json", "requests.parquet", "events.parquet", "steps.parquet"):
        assert (point / name).read_bytes() == (place / "rag" / "points" / point.name / name).read_bytes(), name


def test_requests_that_time_out_leave_nothing_behind(place: Path, rehearse: Rehearse) -> None:
    chosen = settings("c=4", "turn_timeout_s=0.8", "prefix_caching=true", "engine=rag", "scheduler=edf")
    measured(rehearse("run", *RAG, *chosen, "--out", "closed"), place / "closed")
    (row,) = rows(place / "closed")
    started, failed, completed = (row["metrics"][name]["value"] for name in ("started", "failed", "completed"))
    assert started == failed + completed == 40
    assert failed > 0 and completed > 0
    manifest = json.loads((place / "closed" / "points" / row["point"] / "manifest.json").read_text())
    assert manifest["proof"]["kv_blocks_used_after"] == manifest["proof"]["requests_after"] == 0


def test_settings_that_a_system_cannot_have_are_refused_in_a_sentence(rehearse_all: RehearseAll) -> None:
    cases = {
        (*RAG, "--set", "kep=3"): ("unknown parameter 'kep'", "'kept'"),
        (*RAG, "--set", "kv=host"): ("kv is no choice of rag",),
        (*RAG, "--set", "scheduler=liveserve"): ("scheduler=liveserve cannot serve rag", "nobody listens"),
        (*RAG, "--set", "kept=32", "--set", "passage_tokens=2048"): ("generator", "16384"),
        (*RAG, "--set", "deployment=llama_8b_1gpu"): ("no stage 'reranker'",),
        (*RAG, "--set", "engine=vllm_omni"): ("'vllm_omni' serves turns", "made of rag", "rag_shortest"),
        (*RAG, "--device", "sockets"): ("rag has no protocol over sockets",),
        (*EDF, "--set", "scheduler=shortest"): ("scheduler=shortest cannot serve turns",),
        (*EDF, "--set", "deployment=rag_2gpu"): ("'rag_2gpu'", "'generator' behind 'reranker'"),
    }
    done = rehearse_all(*(("run", *arguments) for arguments in cases))
    for process, words in zip(done, cases.values(), strict=True):
        sentence = refused(process)
        assert all(word in sentence for word in words), sentence


def test_a_trace_keeps_its_kind_in_a_file(rehearse_all: RehearseAll) -> None:
    typed = ("modality=text", "reply=text", "requests=5")
    file = ("--set", "workload=file", "--set")
    asked, made, edf, turns, other, rag = rehearse_all(
        ("trace", "make", "rag", "--set", "questions=5", "--out", "asked.parquet"),
        ("trace", "make", "poisson", *settings(*typed), "--out", "typed.parquet"),
        ("run", *EDF[:1], *file, "path=asked.parquet"),
        ("run", *RAG[:1], *file, "path=typed.parquet"),
        ("run", *RAG[:1], *file, "path=asked.parquet", "--set", "engine=edf"),
        ("run", *RAG[:1], *file, "path=asked.parquet", "--dry-run"),
    )
    assert asked.returncode == made.returncode == rag.returncode == 0
    assert "made of rag" in refused(edf)
    assert "made of turns" in refused(turns)
    assert "serves turns" in refused(other)


def test_a_card_of_a_package_is_listed_and_can_be_run(rehearse: Rehearse) -> None:
    assert "Fig. 3" in rehearse("list", "cards").stdout
    done = rehearse("run", "vtc-fig3", "--dry-run")
    assert done.returncode == 0 and done.stdout.endswith("6 points\n"), done.stderr
