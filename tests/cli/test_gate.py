"""`rehearse compare --gate`: it fails for a change that is both material and beyond chance."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.records.results import write_summary
from reports.comparison.gate import LEAST_SEEDS, Limit, chance, parse
from tests.cli.conftest import small
from tests.conftest import Rehearse
from tests.harness import fakes

GATE = ("--gate", "audio_ttfp_p50±5%")


@pytest.fixture
def sides(serve: Callable) -> Callable[[float], None]:
    """Fills the results directories `before` and `after`, which is `slower` times as slow."""

    def sides(slower: float) -> None:
        for name, factor in (("before", 1.0), ("after", slower)):
            serve(name, small(seeds=list(range(LEAST_SEEDS))), slower=factor)

    return sides


@pytest.mark.parametrize(("slower", "verdict"), [(1.06, "worse"), (1.04, "within"), (0.96, "within"), (0.94, "better")])
def test_a_change_for_the_worse_fails(rehearse: Rehearse, sides: Callable, slower: float, verdict: str) -> None:
    sides(slower)
    status, out, err = rehearse("compare", "before", "after", *GATE, "--json")
    found = json.loads(out)
    assert {row["verdict"] for row in found["gate"]} == {verdict} and len(found["gate"]) == 2
    assert status == (1 if verdict == "worse" else 0)
    assert err.count("audio_ttfp_p50 of vllm_omni c=") == len(found["failed"]) == (2 if verdict == "worse" else 0)


def test_the_verdict_as_markdown_is_a_table_with_its_head(rehearse: Rehearse, sides: Callable) -> None:
    sides(1.2)
    status, out, err = rehearse("compare", "before", "after", *GATE, "--markdown")
    assert (status, err) == (1, "")
    assert out.startswith("**The gate fails**: 0 of 2 limits hold.\n\nA: before") and "\n\n| setting" in out
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| vllm_omni")]
    assert [row[0] for row in rows] == ["| vllm_omni c=8", "| vllm_omni c=16"]
    assert all(row[1:] == ["TTFP P50, ms", "300", "360", "1.200", "±5 %", "0.031", "**worse** |"] for row in rows)
    status, out, _ = rehearse("compare", "before", "before", *GATE, "--markdown")
    assert status == 0 and out.startswith("**The gate passes**: 2 of 2 limits hold.")


def test_a_change_on_all_but_one_of_five_seeds_is_chance() -> None:
    assert chance(np.ones(5)) == pytest.approx(1 / 32)
    assert chance(np.array([1.0, 1.0, 1.0, 1.0, -0.5])) == pytest.approx(2 / 32)
    assert chance(np.zeros(5)) == 1


def test_limits_are_read_as_they_are_written() -> None:
    limits = [Limit("audio_ttfp_p90", 5), Limit("online.ttft_p99", 2.5)]
    assert parse("audio_ttfp_p90±5% online.ttft_p99±2.5%") == limits
    assert parse("audio_ttfp_p90+-5%, online.ttft_p99+/-2.5%") == limits


def test_a_gate_needs_five_seeds(rehearse: Rehearse, serve: Callable) -> None:
    serve("before", small())
    serve("after", small(), slower=2.0)
    status, _, err = rehearse("compare", "before", "after", *GATE)
    assert status == 2 and "5 runs or more" in err and "there are 3; measure both with --seeds 5" in err
    assert "or use --fail-above 5 --metrics audio_ttfp_p50, which fails: audio_ttfp_p50 of vllm_omni c=8" in err
    _, _, err = rehearse("compare", "before", "before", *GATE)
    assert "or use --fail-above 5 --metrics audio_ttfp_p50, which passes." in err


def without(name: str, lacks: Callable[[dict], bool]) -> None:
    """Take the metric out of the records of the points that `lacks` says."""
    rows = json.loads(Path(name, "summary.json").read_text())
    for row in filter(lacks, rows):
        record = Path(name, "points", row["point"])
        fakes.restated(record, lambda metrics: metrics["audio_ttfp_p50"].update(value=None, n=0))
    write_summary(Path(name), [row["point"] for row in rows])


def test_a_gate_that_looked_at_nothing_does_not_pass(rehearse: Rehearse, sides: Callable) -> None:
    sides(2.0)
    for name in ("before", "after"):
        without(name, lambda row: True)
    status, out, err = rehearse("compare", "before", "after", *GATE)
    assert (status, out) == (2, "") and "audio_ttfp_p50 can be judged in no cell: 0 seeds" in err


def test_a_metric_that_b_lacks_on_some_seeds_fails(rehearse: Rehearse, sides: Callable) -> None:
    sides(1.0)
    without("after", lambda row: row["seed"] in (1, 3))
    status, out, err = rehearse("compare", "before", "after", *GATE)
    assert status == 1 and "0 of 2 limits hold" in out
    assert err.count("missing in B on 2 of the 5 seeds that have it in A") == 2


def test_too_few_pairs_are_not_judged_and_do_not_hold(rehearse: Rehearse, sides: Callable) -> None:
    sides(1.0)
    without("before", lambda row: row["seed"] == 0 and row["params"]["c"] == 8)
    status, out, err = rehearse("compare", "before", "after", *GATE)
    assert status == 0 and "1 of 2 limits hold, 1 not judged" in out
    assert "audio_ttfp_p50 of vllm_omni c=8 is not judged: of 5 seeds A has it on 4, B on 5 and both on 4" in err
    _, out, _ = rehearse("compare", "before", "after", *GATE, "--markdown")
    assert out.startswith("**The gate passes**: 1 of 2 limits hold, 1 not judged.") and "**not judged**" in out
