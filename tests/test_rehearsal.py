"""`import rehearsal`: results as data frames, and errors as sentences."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rehearsal
from harness.experiments.experiment import Experiment
from reports.cards import card as cards
from reports.cards.card import Figure
from tests.harness import fakes
from tests.reports.figure_card import CLAIMS, figure, serve_cards
from tests.reports.written import Fails, never, write_run


def measured(out: Path, fails: Fails = never) -> rehearsal.Results:
    changes: Any = {"set": {"sessions": 2}, "grid": {"c": [1, 2]}, "seeds": [0, 1]}
    experiment = Experiment(name="small", workload="voice", engines=["vllm_omni", "liveserve"], **changes)
    loaded = rehearsal.load(write_run(out / "small", experiment, fakes.measure, fails))
    assert isinstance(loaded, rehearsal.Results)
    return loaded


@pytest.fixture
def results(tmp_path: Path) -> rehearsal.Results:
    return measured(tmp_path)


def test_points_have_a_row_each_and_the_summary_a_row_for_each_setting(results: rehearsal.Results, tmp_path: Path):
    assert list(results.points["engine"]) == ["vllm_omni"] * 4 + ["liveserve"] * 4
    assert list(results.points["c"]) == [1, 1, 2, 2] * 2 and list(results.points["seed"]) == [0, 1] * 4
    assert set(results.points["status"]) == {"ok"} and set(results.points["error"].isna()) == {True}
    assert list(results.summary["c"]) == [1, 2, 1, 2] and set(results.summary["runs"]) == {2}
    assert list(results.points["audio_ttfp_p50"]) == [0.0, 0.1] * 4  # a tenth of a second for each seed
    assert list(results.summary["audio_ttfp_p50"]) == [0.05] * 4
    assert results.rows == json.loads((tmp_path / "small" / "summary.json").read_text())


def test_tables_and_counters_of_all_points_are_indexed_by_engine_settings_and_seed(results: rehearsal.Results):
    requests = results.table("requests")
    assert requests.index.names == ["engine", "c", "seed", "row"]
    assert len(requests) == 8 and requests.groupby(level=["engine", "c", "seed"]).ngroups == 8
    assert results.counters.index.names == ["engine", "c", "seed"]
    assert results.counters.loc[("liveserve", 2, 1), "steps"] == 2
    with pytest.raises(rehearsal.UserError, match=r"has no table 'requets'\. Did you mean 'requests'\?"):
        results.table("requets")


@pytest.fixture
def small_card(monkeypatch: pytest.MonkeyPatch) -> Figure:
    """The only card: panel `quiet` with c = 8 and 16, panel `loud` with c = 8, two engines and three seeds each."""
    card = figure(claims=CLAIMS[:2])
    listed = {card.name: cards.Listed(card.name, card.group, card.title, False, "")}
    monkeypatch.setattr(cards, "figures", lambda: {card.name: card})
    monkeypatch.setattr(cards, "index", lambda: listed)
    return card


@pytest.fixture(params=["loaded", "run again"])
def card_results(request: pytest.FixtureRequest, small_card: Figure, tmp_path: Path) -> rehearsal.CardResults:
    """The card's results: from its folder, or from a second run, for which no point is left to measure."""
    folder = serve_cards(tmp_path / "run", [small_card])
    loaded = request.param == "loaded"
    results = rehearsal.load(folder) if loaded else rehearsal.run(small_card.name, out=folder)
    assert isinstance(results, rehearsal.CardResults)
    return results


def test_a_card_has_its_claims_and_the_results_of_each_panel(card_results: rehearsal.CardResults) -> None:
    # Scripted servers: TTFP of liveserve is 200 ms, of vllm_omni 300 ms. The claims are ratios of 0.65 and of 0.1.
    assert card_results.claims["outcome"].to_dict() == {"ttfp": "matches", "far": "same direction"}
    assert card_results.points.index.names == ["card", "panel", "point"]
    # Engines x values of c x seeds
    assert card_results.points.groupby(level="panel").size().to_dict() == {"quiet": 2 * 2 * 3, "loud": 2 * 1 * 3}
    assert set(card_results.summary.xs("quiet", level="panel")["c"]) == {8, 16}
    assert set(card_results.summary.xs("loud", level="panel")["c"]) == {8}
    quiet = card_results.panels["liveserve-small", "quiet"]
    assert set(quiet.table("requests").reset_index()["c"]) == {8, 16}


def test_a_failed_point_is_a_row_with_its_reason(tmp_path: Path):
    results = measured(tmp_path, lambda point: point.params["c"] == 2)
    assert list(results.points.query("status == 'failed'")["error"]) == ["the GPU <melted>"] * 4
    assert set(results.table("requests").index.get_level_values("c")) == {1}
    assert list(results.summary["runs_failed"]) == [0, 2, 0, 2]


def test_a_trace_is_a_frame_that_says_how_it_was_made(tmp_path: Path):
    turns: Any = rehearsal.trace("voice", {"p": 0.5, "sessions": 20}, seed=3, out=tmp_path / "voice.parquet")
    assert turns["session"].nunique() == 20 and True in set(turns["barge_in_after_s"].notna())
    assert turns.attrs["generator"] == "voice" and turns.attrs["seed"] == 3
    again = rehearsal.trace("file", {"path": str(tmp_path / "voice.parquet")})
    assert again.equals(turns) and again.attrs["hash"] == turns.attrs["hash"]


def test_bad_input_is_a_sentence_and_leaves_nothing(tmp_path: Path):
    with pytest.raises(rehearsal.UserError, match=r"unknown parameter 'cc' .* Did you mean 'c'\?"):
        rehearsal.run("bench", {"cc": 4}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow("a script starts a run of its own")
def test_a_script_without_a_guard_runs_points_once(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import rehearsal\nprint('begins')\n"
        "results = rehearsal.run('bench', {'c': 1, 'sessions': 1, 'p': 0, 'engine': 'vllm_omni'}, seeds=1, out='out')\n"
        "print(list(results.points['status']))\n"
    )
    command = [sys.executable, str(script)]
    root = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "begins\n['ok']\n"), done.stderr
