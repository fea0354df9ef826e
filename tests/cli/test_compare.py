"""`rehearse compare`: cells of two results directories side by side, the first sentence, and regressions."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.metrics.stats import Spread, across_seeds, paired
from reports.comparison.compare import Cell, Compared, Comparison, Side
from reports.comparison.headline import changed, headline
from reports.runs.measured import load_run
from reports.tables.columns import asked_columns, columns
from tests.cli.conftest import small
from tests.conftest import Rehearse
from tests.reports.lived import live, serve_live

TTFP = ("--metrics", "audio_ttfp_p50")


def compared(rehearse: Rehearse, *arguments: str) -> dict:
    _, out, _ = rehearse("compare", *arguments, "--json")
    return json.loads(out)


def test_two_devices_are_compared_cell_by_cell_and_the_step_times_differ(rehearse: Rehearse, serve: Callable) -> None:
    serve("real", small(), device="cpu")
    serve("model", small(), slower=1.5)
    status, out, err = rehearse("compare", "real", "model")
    assert (status, err) == (0, "")
    assert "A: real, device cpu" in out and "B: model, device virtual" in out
    for words in ("TTFP P50, ms", "300 (300–300)", "450 (450–450)", "1.500 (1.500–1.500)"):
        assert words in out
    found = compared(rehearse, "real", "model")
    assert [cell["settings"] for cell in found["cells"]] == [{"c": 8}, {"c": 16}]
    assert all(cell["seeds"] == [0, 1, 2] and cell["same_trace"] for cell in found["cells"])
    metric = found["cells"][0]["metrics"]["audio_ttfp_p50"]
    assert (metric["better"], metric["unit"], metric["ratio"]["median"]) == ("lower", "s", pytest.approx(1.5))
    assert found["a"]["device"] == "cpu" and set(found["differing"]) == {"step times"}
    step_times = found["differing"]["step times"]
    assert step_times["a"] == "real execution" and "measured on h200" in step_times["b"]


def test_one_directory_is_compared_over_its_devices(rehearse: Rehearse, serve: Callable) -> None:
    serve("both", small(), slower=2.0)
    serve("both", small(), device="cpu")
    found = compared(rehearse, "both", *TTFP)
    assert (found["a"]["device"], found["b"]["device"]) == ("cpu", "virtual")
    assert found["cells"][0]["metrics"]["audio_ttfp_p50"]["ratio"]["median"] == pytest.approx(2.0)


def test_a_metric_that_got_worse_is_named_with_both_values_and_commits(rehearse: Rehearse, serve: Callable) -> None:
    serve("before", small())
    serve("after", small(), slower=1.2)
    status, out, err = rehearse("compare", "before", "after", "--fail-above", "10", *TTFP)
    assert status == 1 and out.startswith("B is worse: P50 TTFP 300 -> 360 ms (x 1.20) in 3 of 3 runs at c=8.")
    (first, _) = err.splitlines()
    for words in ("audio_ttfp_p50", "vllm_omni c=8", "20.0%", "300 ms in A", "360 ms in B", "A is commit"):
        assert words in first, first
    assert rehearse("compare", "before", "after", "--fail-above", "25", *TTFP)[0] == 0
    assert rehearse("compare", "after", "before", "--fail-above", "1", *TTFP)[0] == 0  # better is not worse
    found = json.loads(rehearse("compare", "before", "after", "--fail-above", "10", "--json")[1])
    assert found["fail_above"] == 10 and any("audio_ttfp_p50" in text for text in found["regressions"])


def test_cells_with_other_traces_are_compared_and_never_judged(rehearse: Rehearse, serve: Callable) -> None:
    serve("before", small())
    serve("other", small(set={"sessions": 7, "turns": 2}), slower=3.0)
    status, out, _ = rehearse("compare", "before", "other")
    assert status == 0 and out.count("other trace") >= 2 and "did not serve the same users" in out
    assert "sessions: 6 in A, 7 in B" in out
    assert not any(cell["same_trace"] for cell in compared(rehearse, "before", "other")["cells"])
    status, _, err = rehearse("compare", "before", "other", "--fail-above", "5")
    assert status == 2 and "nothing to judge" in err


def test_cells_of_one_side_alone_are_counted(rehearse: Rehearse, serve: Callable) -> None:
    serve("wide", small())
    serve("narrow", small(grid={"c": [16, 32]}, seeds=[2, 3]))
    _, out, _ = rehearse("compare", "wide", "narrow")
    assert "not compared: 1 cells only in A, 1 only in B" in out
    (cell,) = compared(rehearse, "wide", "narrow")["cells"]
    assert cell["seeds"] == [2]


def spread(*values: float) -> Spread:
    return across_seeds(dict(enumerate(values)))


def metric(name: str, a: tuple[float, ...], b: tuple[float, ...]) -> Compared:
    pairs = paired(dict(enumerate(a)), dict(enumerate(b)))
    known = tuple(each for each in pairs.differences.values() if each is not None)
    (column,) = asked_columns([name], columns(spoken=name.startswith(("audio", "continuity"))))
    return Compared(column, spread(*a), spread(*b), pairs.difference, pairs.ratio, known)


WORSE = "B is worse: P90 TTFT 57 -> 708 ms (x 12) in 3 of 3 runs"
BETTER = "wasted tokens 31 -> 21 % (x 0.68) in 3 of 3 runs."
P90 = metric("ttft_p90", (0.057, 0.055, 0.058), (0.708, 0.70, 0.72))
P50 = metric("ttft_p50", (0.02, 0.02, 0.021), (0.6, 0.61, 0.59))
NOISE = metric("completed_rps", (5.0, 5.1, 4.9), (4.9, 5.2, 4.9))
FAIRER = metric("wasted_token_ratio", (0.30, 0.31, 0.32), (0.20, 0.21, 0.22))
LATE = metric("send_delay_p99", (0.001, 0.001, 0.001), (0.002, 0.002, 0.002))  # the client's, not the server's
SOME = metric("ttft_p90", (0.9, 0.9, 0.9), (0.9, 0.5, 0.5))
MORE = metric("ttft_p90", (0.9, 0.9, 0.9), (0.9, 1.5, 1.5))
FAILED = metric("failed", (0.0, 0.0, 0.0), (5.0, 5.0, 5.0))  # no ratio
SLOW = metric("ttft_p90", (0.9, 0.9), (12.0, 12.5))


def cell(*metrics: Compared, seeds: int = 3, failed_b: int = 0, **known: Any) -> Cell:
    settings = known.pop("settings", {"c": 10})
    return Cell("endpoint", settings, [*range(seeds)], known.pop("same_trace", True), 0, failed_b, [*metrics], **known)


def rises(to_s: float) -> Cell:
    return cell(metric("ttft_p90", (1.0,) * 3, (to_s,) * 3))


SLOWER = metric("audio_ttfp_p50", (0.6, 0.61), (1.8, 1.82))
TOKENS = metric("tbt_p50", (0.0001, 0.0001), (0.0, 0.0))
ONE_MORE_REPLY = replace(metric("continuity", (0.966, 0.966), (1.0, 1.0)), n=29)


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([cell(P50, P90, NOISE)], f"{WORSE}, also P50 TTFT (x 30); within the spread: completed."),
        ([cell(FAIRER)], f"B is better: {BETTER}"),
        ([cell(P90, FAIRER)], f"{WORSE.replace('B is worse', 'Mixed. Worse')}; better: {BETTER}"),
        ([cell(FAILED, P90)], "B is worse: failed 0 -> 5 turns in 3 of 3 runs, also P90 TTFT (x 12)."),
        ([rises(1.95)], "B is worse: P90 TTFT 1,000 -> 1,950 ms (x 1.9) in 3 of 3 runs."),
        ([rises(9.5)], "B is worse: P90 TTFT 1,000 -> 9,500 ms (x 10) in 3 of 3 runs."),
        ([cell(SOME), cell(MORE)], "No difference beyond the spread of 3 runs: P90 TTFT."),
        ([cell(SLOW, seeds=2)], "B is worse: P90 TTFT 900 ms -> 12.2 s (x 14) in 2 of 2 runs."),
        ([cell(NOISE), cell(P90, settings={"c": 20})], f"{WORSE} at c=20; within the spread: completed."),
        ([cell(NOISE, failed_b=1)], "B is worse: 1 point failed, 0 in A; within the spread: completed."),
        ([cell(NOISE, LATE)], "No difference beyond the spread of 3 runs: completed."),
        ([cell(P90, identical=True)], "B is identical to A in every request."),
        ([cell(P90, same_trace=False, redrawn=True)], f"{WORSE}."),
        ([cell(P90, same_trace=False)], "Not judged: A and B did not serve the same users in any cell."),
        ([cell(TOKENS, NOISE)], "No difference that a person would notice: P50 TBT, completed."),
        (  # a slower bot is worse although one reply more played through
            [cell(SLOWER, TOKENS, ONE_MORE_REPLY, seeds=2)],
            "B is worse: P50 TTFP 605 -> 1,810 ms (x 3.0) in 2 of 2 runs; too small to notice: P50 TBT, continuity.",
        ),
        (
            [cell(metric("ttft_p90", (0.057,), (0.708,)), seeds=1)],
            f"{WORSE.replace('3 of 3 runs', '1 of 1 run')}. "
            "One run of each cannot show how far two runs of the same differ.",
        ),
    ],
)
def test_the_first_sentence_says_which_side_is_worse(cells: list[Cell], sentence: str) -> None:
    side = Side(Path("x"), [])
    assert headline(Comparison(side, side, cells, 0, 0, {})) == sentence


@pytest.mark.parametrize(
    ("name", "a", "b", "n", "seen"),
    [
        ("tbt_p50", 0.0, 0.0049, 60, False),  # nobody reads that fast
        ("tbt_p50", 0.0, 0.005, 60, True),
        ("ttft_p50", 0.0, 0.049, 60, False),  # both are instantaneous
        ("ttft_p50", 0.0, 0.05, 60, True),
        ("max_gap_p50", 0.0, 0.019, 60, False),
        ("max_gap_p50", 0.0, 0.02, 60, True),
        ("audio_ttfp_p50", 2.0, 2.09, 60, False),  # less than a twentieth
        ("audio_ttfp_p50", 2.0, 2.11, 60, True),
        ("continuity", 0.95, 0.983, 30, False),  # one reply of thirty
        ("continuity", 0.5, 0.514, 100, False),  # one and a half of a hundred
        ("continuity", 0.5, 0.516, 100, True),
        ("continuity", 0.0, 0.01, 600, True),
        ("continuity", 0.0, 0.009, 600, False),
        ("failed", 0.0, 1.4, 60, False),
        ("failed", 0.0, 1.5, 60, True),
        ("ttft_p90", 0.5, np.inf, 60, True),  # of failed turns
    ],
)
def test_a_difference_counts_if_a_person_would_notice_it(name: str, a: float, b: float, n: int, seen: bool) -> None:
    for before, after in ((a, b), (b, a)):
        if np.isfinite(before):
            assert changed(replace(metric(name, (before,) * 3, (after,) * 3), n=n)) == seen


@pytest.mark.parametrize(
    ("name", "a", "b", "worse_by", "beyond"),
    [
        ("ttft_p90", (2.0,) * 3, (3.0,) * 3, 0.5, True),
        ("ttft_p90", (2.0,) * 3, (2.0, 3.0, 3.0), 0.5, False),
        ("completed_rps", (2.0,) * 3, (1.5,) * 3, 0.25, True),
        ("completed_rps", (2.0,) * 3, (3.0,) * 3, -0.5, False),
        ("failed", (0.0,), (1.0,), np.inf, True),
        ("failed", (0.0,), (0.0,), 0.0, False),
        ("completed_rps", (0.0,), (1.0,), 0.0, False),
        ("rtf_p50", (1.0,), (2.0,), None, False),  # no better direction
    ],
)
def test_worse_is_a_share_of_a_in_the_metrics_own_direction(
    name: str, a: tuple[float, ...], b: tuple[float, ...], worse_by: float | None, beyond: bool
) -> None:
    found = metric(name, a, b)
    assert found.worse_by == worse_by and (worse_by is None or found.beyond_spread == beyond)


def of_server(name: str, seed: int | None) -> Side:
    point: Any = SimpleNamespace(point=SimpleNamespace(device="live"), params={"users_seed": seed})
    return Side(Path(name), [point], name)


def regressions(*cells: Cell, percent: float) -> list[str]:
    return Comparison(of_server("x", 1), of_server("y", 2), [*cells], 0, 0, {}).regressions(percent)


BY_HALF = metric("ttft_p90", (2.0, 2.0, 2.0), (3.0, 3.0, 3.0))
LOST = replace(metric("completed_rps", (2.0,), (2.0,)), b=spread(), difference=spread())


@pytest.mark.parametrize(
    ("worse", "sentence"),
    [
        (cell(BY_HALF), "ttft_p90 of endpoint c=10 got worse by 50.0%: 2,000 ms in A, 3,000 ms in B"),
        (cell(FAILED), "failed of endpoint c=10 got worse by no finite share: 0 turns in A, 5 turns in B"),
        (cell(LOST), "completed_rps of endpoint c=10 is 2.000 1/s in A and missing in B"),
        (cell(failed_b=1), "endpoint c=10: 1 of 3 points failed in B, 0 in A"),
    ],
)
def test_a_regression_is_a_sentence_with_what_each_side_has(worse: Cell, sentence: str) -> None:
    assert regressions(worse, percent=49.9) == [f"{sentence} (A is label x, B is label y)"]


@pytest.mark.parametrize(
    ("measured", "percent"),
    [
        pytest.param(cell(BY_HALF), 50, id="at the limit"),
        pytest.param(cell(MORE), 0, id="as good on one seed"),
        pytest.param(cell(BY_HALF, same_trace=False), 0, id="with other users"),
    ],
)
def test_a_metric_has_not_regressed(measured: Cell, percent: float) -> None:
    assert regressions(measured, percent=percent) == []


@pytest.mark.parametrize(
    ("seed", "known", "sentence"),
    [
        (1, {}, "A and B had the same users: a server that was not restarted in between may have held their prompts"),
        (1, {"same_trace": False, "redrawn": True}, "(seeds 1 and 2). --seed 1 gives B the users of A."),
        (None, {"same_trace": False, "redrawn": True}, "drawn from the same workload (seeds None and 2)."),
        (1, {"same_trace": False}, ""),
    ],
)
def test_live_runs_say_whose_users_they_had(seed: int | None, known: dict[str, bool], sentence: str) -> None:
    said = Comparison(of_server("x", seed), of_server("y", 2), [cell(P90, **known)], 0, 0, {}).users
    assert sentence in said and bool(said) == bool(sentence) and said.count("--seed") == sentence.count("--seed")


def test_a_server_is_named_by_its_label_and_not_by_our_commit(rehearse: Rehearse, tmp_path: Path) -> None:
    for name in ("before", "after"):
        serve_live(tmp_path / name, live(grid={"c": [4]}))
    status, out, _ = rehearse("compare", "before", "after")
    assert status == 0 and "A: before, device live " in out and "commit" not in out
    labelled = Side(Path("before"), load_run(tmp_path / "before").points, "max-num-seqs 16")
    assert labelled.name == "before, device live, label max-num-seqs 16"
    status, _, err = rehearse("compare", "before", "after", "--gate", "audio_ttfp_p90±5%")
    assert status == 2 and "measure both with --repeats 5, or use --fail-above 5" in err and "passes" in err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": [7]}, "seed is 0, 1, 2 in A and 7 in B"),
        ({"engines": ["liveserve"]}, "engine is vllm_omni in A and liveserve in B"),
    ],
)
def test_a_common_cell_is_needed(rehearse: Rehearse, serve: Callable, changes: dict[str, Any], words: str) -> None:
    serve("one", small())
    serve("two", small(**changes))
    status, out, err = rehearse("compare", "one", "two")
    assert (status, out) == (2, "") and "no cell in common" in err and words in err
