from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from harness.experiments.point import Point
from harness.records.measured import RunFacts
from harness.records.record import Measurement
from reports.figures import headline
from reports.figures.drawing import line
from reports.figures.picture import Picture
from reports.figures.style import looks, style
from reports.replays.served import lowered_lengths
from reports.replays.side import show_answer
from reports.runs.answer import Answer, Finished, answer, find_answer
from reports.runs.measured import Run, load_run, over_seeds
from reports.runs.notes import failed_turns, notes
from reports.runs.policies import counters, identical_sentences, order_sentences
from reports.runs.useful import useful_loads, useful_rps
from tests.harness import fakes
from tests.reports.served import bench, serve
from tests.reports.written import never, write_run


def points(engine: str, by_seed: dict[int, float], metric: str = "continuity", **params: object) -> list[Finished]:
    spoken = {"audio_ttfp_p50": 0.2} if metric == "continuity" else {}
    return [Finished(engine, params, seed, {**spoken, metric: value}) for seed, value in by_seed.items()]


def slow(engine: str, p50_s: float, p90_s: float) -> Finished:
    return Finished(engine, {"rate": 1}, 0, {"ttft_p50": p50_s, "ttft_p90": p90_s})


def urgent(share: float) -> list[Finished]:
    classes = {"online.ttft_in_deadline": share, "online.priority": -1, "batch.priority": 1}
    return [Finished("e", {"rate": 1}, 0, {"ttft_p90": 3.0, **classes})]


GAPLESS = "of replies without a gap"
MANY = [point for i in range(6) for point in points("m", {0: 0.1 * (i + 1)}, "ttft_p90", rate=2, x=i)]
WINDOWS = points("m", {0: 1.0}, "frames_with_speech", sessions=48, window=1024)
WINDOWS += points("m", {0: 0.928}, "frames_with_speech", sessions=48, window=None)
MOST_INTERRUPTED = [
    *points("stock", {0: 0.41, 1: 0.37, 2: 0.35}, c=16, p=0.7),
    *points("ours", {0: 1.0, 1: 0.999, 2: 1.0}, c=16, p=0.7),
    *points("stock", {0: 0.9}, c=16, p=0.0),
    *points("ours", {0: 0.1}, c=8, p=0.7),
]


@pytest.mark.parametrize(
    ("measured", "axes", "sentence"),
    [
        (
            MOST_INTERRUPTED,
            ["c", "p"],
            f"At 16 callers, 70 % interrupting, ours plays 100 % {GAPLESS}, stock 37 % (median of three seeds).",
        ),
        (  # only seeds that all variants finished count
            [*points("a", {0: 0.0, 1: 0.9}, c=4), *points("b", {0: 0.6}, c=4)],
            ["c"],
            f"At 4 callers, b plays 60 % {GAPLESS}, a 0 % (one seed).",
        ),
        ([*points("a", {0: 0.5}, c=4), *points("b", {1: 0.6}, c=4)], ["c"], None),
        ([], [], None),
        (  # what a variant is set to is told where it differs
            WINDOWS,
            ["window"],
            "With 48 calls, m window=1024 answers 100 % of frames with speech, m window=none 92.8 % (one seed).",
        ),
        (  # variants that are alike
            [slow("a", 1.0, 24.4870), slow("b", 1.0, 24.4871), slow("c", 1.0, 24.4872)],
            [],
            "At 1 a second, a gives nine requests of ten their first token within 24.5 s, "
            "and so do b and c (one seed).",
        ),
        (  # alike in the usual metric
            [slow("a", 10.910, 24.487), slow("b", 1.249, 24.817)],
            [],
            "At 1 a second, b has the best P50 TTFT, 1,249 ms, a 10.9 s (one seed).",
        ),
        (
            MANY,
            ["x"],
            "At 2 a second, m x=0 gives nine requests of ten their first token within 100 ms, m x=5 600 ms, "
            "the best and the worst of 6 (one seed).",
        ),
        (  # nobody interrupts a reply that is read
            points("m", {0: 0.1}, "ttft_p90", c=4, p=0.0),
            ["c"],
            "At 4 users, m gives nine requests of ten their first token within 100 ms (one seed).",
        ),
        (urgent(0.59), [], "At 1 a second, e gives 59 % of online requests their first token in time (one seed)."),
    ],
)
def test_the_answer_is_one_sentence(measured: list[Finished], axes: list[str], sentence: str | None):
    assert answer(measured, axes) == sentence


COUNTED = {
    "vllm_omni": {},
    "liveserve": {"thinker.planned_rounds": 58000, "thinker.order_mattered": 0, "thinker.mine": 7},
}


def counted(tmp_path: Path, later: float = 0.0, kv_pool_blocks: int | None = None, **changed: int) -> Run:
    """Two engines with the same requests but for `later` at seed 1; what the policy of the second counted."""

    def measure(point: Point) -> Measurement:
        own = point.engine == "liveserve"
        requests = pd.DataFrame({"session": [0], "ttft_s": [later if own and point.seed else 0.0]})
        counters = COUNTED[point.engine] | (changed if own else {})
        return replace(fakes.measure(point), requests=requests, facts=RunFacts(counters=counters))

    settings = {"sessions": 2, "kv_pool_blocks": kv_pool_blocks}
    experiment = bench(name="two", engines=[*COUNTED], set=settings, grid={"c": [4]}, seeds=[0, 1])
    return load_run(write_run(tmp_path / "two", experiment, measure, never))


def test_a_policy_that_never_mattered_is_named(tmp_path: Path):
    run = counted(tmp_path)
    same = "vllm_omni and liveserve are identical in every request."
    order = "liveserve: order mattered in 0 of 116,000 rounds."  # 2 seeds of 58,000
    assert (order_sentences(run, never=True), identical_sentences(run)) == ([order], [same])
    found = counters(run)
    assert found is not None
    assert (found["sentences"], found["variants"]) == ([order, same], ["liveserve"])
    assert ("thinker.mine", ["14"]) in found["rows"]


def test_a_policy_that_mattered_is_named_on_the_page_alone(tmp_path: Path):
    run = counted(tmp_path, later=0.5, **{"thinker.order_mattered": 3})
    assert order_sentences(run, never=True) == []
    assert order_sentences(run) == ["liveserve: order mattered in 6 of 116,000 rounds."]
    assert identical_sentences(run) == ["vllm_omni and liveserve are identical in every request of 1 of 2 points."]


def test_what_was_measured_otherwise_than_asked_is_named(tmp_path: Path):
    run = counted(tmp_path, truncated_replies=1, kv_pool_blocks=1000)
    said = [
        "max_model_len of stage thinker is 15,984 tokens in place of 65,536: no longer request fits its KV pool of "
        "1,000 blocks.",
        "Replies cut to what max_model_len or max_tokens leaves: 2.",
    ]
    assert [*lowered_lengths(run), *notes(run)[1:]] == said
    console = Console(record=True, width=200)
    show_answer(console, run)
    assert all(each in console.export_text(clear=False) for each in said)


def test_failed_turns_have_their_reasons():
    def point(failed: int, *reasons: str) -> SimpleNamespace:
        record = SimpleNamespace(table=lambda _: pd.DataFrame({"reason": reasons}))
        tables = ["failures"] if reasons else []
        return SimpleNamespace(error=None, has=tables.__contains__, record=record, value=lambda _: failed)

    run: Any = SimpleNamespace(points=[point(3, "http 400"), point(1, "http 400"), point(0)])
    assert failed_turns(run) == [f"2 turns failed: {why}." for why in ("http 400", "no answer in time")]


def test_the_load_of_a_closed_loop_is_what_its_callers_complete(tmp_path: Path):
    run = load_run(serve(tmp_path / "run", bench(set={"sessions": 150, "turns": 2})))
    useful = useful_loads(run)
    assert useful is not None and useful["axes"] == ["p"]
    assert len(useful["rows"]) == len(run.variants) * len(run.values("p"))
    for row in useful["rows"]:
        if row["value"] == "–":
            assert "no load qualifies" in row["reason"]
            continue
        said, _, callers = row["value"].partition(", with ")
        points = run.at(run.variants[row["variant"]], c=int(callers.removesuffix(" callers")))
        assert said in {f"{value:.3f}" for point in points if (value := point.value("completed_rps")) is not None}


@pytest.mark.parametrize(
    ("loads", "value", "reason"),
    [
        ({1.0: [1.0] * 3, 2.0: [0.96, 0.95, 0.94]}, 2.0, "highest of 2 loads with a median continuity of at least 95%"),
        ({1.0: [1.0] * 3, 2.0: [0.9, 0.9499, 1.0]}, 1.0, "highest of 2 loads with a median continuity of at least 95%"),
        ({1.0: [1.0, 1.0], 2.0: [0.5] * 3}, None, "1 rps: not judged, 2 of 3 seeds"),
        ({1.0: [1.0, 1.0], 2.0: [0.5] * 3}, None, "2 rps: median continuity 50.0%"),
        ({1.0: [0.5] * 3, 3.0: [1.0, 1.0, None]}, None, "3 rps: continuity unknown for 1 of 3 seeds"),
        ({1.0: [1.0] * 2}, None, "not judged: a load takes 3 seeds, and at most 2 seeds of each were run"),
        ({1.0: [0.5] * 3, 2.0: [1.0] * 3}, 2.0, "although lower loads do not qualify: 1 rps"),
        ({}, None, "no load was measured"),
    ],
)
def test_a_useful_load_keeps_95_percent(loads: dict[float, list[float | None]], value: float | None, reason: str):
    result = useful_rps({load: dict(enumerate(seeds)) for load, seeds in loads.items()})
    assert result.value == value and reason in result.reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"set": {"sessions": 6, "turns": 2}, "grid": {"c": [4, 8, 16], "p": [0.0, 1.0]}},
            "c = 8 and 16 exceed the 6 sessions, so that at most 6 callers are there at a time.",
        ),
        ({"set": {"sessions": 6, "turns": 2}, "grid": {"c": [4, 6]}}, None),
        (
            {"set": {"turns": 2, "c": 8}, "grid": {"sessions": [6, 7, 9]}},
            "c = 8 exceeds the 6 to 7 sessions in 4 of 6 points, so that at most 7 callers are there at a time.",
        ),
    ],
)
def test_more_callers_than_sessions_are_named(tmp_path: Path, changes: dict[str, Any], said: str | None) -> None:
    run = load_run(serve(tmp_path / "run", bench(**{"seeds": [0], **changes})))
    assert run.beyond_sessions == said


def answered(run: Run) -> tuple[Answer, Picture | None]:
    """The answer of a run and its picture."""
    found = find_answer([point.finished for point in run.points], [*run.experiment.grid])
    assert found is not None
    with style():
        picture = headline.draw(run, found)
        if picture is not None:
            picture.figure.canvas.draw()
    return found, picture


def test_the_picture_has_the_setting_and_the_values_of_the_answer(tmp_path: Path) -> None:
    run = load_run(serve(tmp_path / "run", bench()))
    found, picture = answered(run)
    assert found.fixed == {"c": 16, "p": 1.0} and picture is not None
    assert picture.title.endswith("p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}1")  # c is the axis
    (axes,) = picture.figure.axes
    for label, shown in zip(headline.answer_looks(run, found), axes.texts, strict=False):
        shares = [found.variants[label][seed].values["continuity"] or 0 for seed in found.seeds]
        assert shown.get_text() == f"{100 * median(shares):.1f}"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["8", "16"]


def test_one_load_is_shown_as_bars_and_one_number_not_at_all(tmp_path: Path) -> None:
    _, picture = answered(load_run(serve(tmp_path / "run", bench(grid={"c": [16]}))))
    assert picture is not None
    (axes,) = picture.figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["vllm_omni", "liveserve"]
    alone = serve(tmp_path / "one", bench(grid={"c": [16]}, engines=["liveserve"]))
    assert answered(load_run(alone))[1] is None


@pytest.mark.parametrize(("loads", "style_of_line"), [([2, 16], "None"), ([2, 4, 16], "-")])
def test_two_points_are_not_joined(tmp_path: Path, loads: list[int], style_of_line: str) -> None:
    run = load_run(serve(tmp_path / "run", bench(grid={"c": loads}, seeds=[0])))
    (variant, *_), axes = run.variants, Figure().subplots()
    spreads = {c: over_seeds(run.at(variant, c=c), "audio_ttfp_p50") for c in loads}
    line(axes, spreads, looks(run.variants)[variant], "one")
    assert axes.lines[0].get_linestyle() == style_of_line
