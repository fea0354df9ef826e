"""A name has one value: the verdict, its page, the table, CSV and `compare` take it from the same turns."""

import csv
import io
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.events.log import EventLog
from harness.live.live_slo import Asked
from harness.slo.targets import parse_targets
from reports.comparison.compare import compare
from reports.live.live_verdict import LiveVerdict, live_verdict, rows
from reports.pages.html import write_report
from reports.runs.measured import load_run
from reports.runs.table import flat, results_data
from reports.tables.plain_tables import csv_of
from tests.reports.lived import live, serve_live
from tests.reports.page import Page
from workloads.trace import Trace

TARGETS = parse_targets(
    "ttfp_p50<=0.5 ttfp_p90<=1 ttfp_p99<=1 ttfp_mean<=1 ttft_p90<=1 e2e_p90<=9 tbt_p50<=1 rtf_p50<=1 continuity>=0.95 "
    "continuity_fixed_timeline>=0.95 talked_over<=5% failed<=1%"
)
OUTCOMES = ("fine", "slow", "broken", "late pieces", "early", "mute", "cut off", "refused")


def endpoint(outcomes: list[str], late_s: list[float]):
    """Return an endpoint whose replies end with these outcomes in turn; a slow or late one takes a time of `late_s`."""

    def play(trace: Trace, c: int, log: EventLog, failures: list) -> float:
        t, reply = 0.0, 0
        for session in trace.sessions:
            log.event(t, "session_start", session.id, -1)
            for turn in session.turns:
                outcome, wait_s = outcomes[reply % len(outcomes)], late_s[reply % len(late_s)]
                reply += 1
                t = answer(log, failures, t, session.id, turn.turn, outcome, wait_s)
            log.event(t, "session_end", session.id, -1)
        return t

    return play


def answer(log: EventLog, failures: list, t: float, session: int, turn: int, outcome: str, wait_s: float) -> float:
    """Write one turn from `t` on; returns its end."""

    def event(t: float, kind: str, value: float = math.nan) -> None:
        log.event(t, kind, session, turn, value=value)

    end_s = t + 1.0
    event(t, "turn_start")
    if outcome == "early":
        event(end_s - 0.2, "audio", 0.5)
    event(end_s, "turn_end", 0.0)
    if outcome == "early":
        event(end_s, "early_reply")
    if outcome not in ("refused", "mute"):
        first_s = end_s + (0.1 if outcome == "fine" else wait_s)
        event(first_s, "first_text", 1)
        for piece in range(4):
            event(first_s + (wait_s if outcome == "late pieces" else 0.25) * piece, "audio", 0.5)
        end_s = first_s + 4 * max(wait_s, 0.5)
    if outcome in ("broken", "refused"):
        event(end_s, "turn_failed")
        failures.append((end_s, session, turn, "error: overloaded"))
        return end_s
    if outcome == "cut off":
        event(end_s, "barge_in", 0.5)
    else:
        event(end_s, "reply_done")
        event(end_s, "playback_done", 2.0)
    event(end_s, "turn_done")
    return end_s


def same(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9))


def values_of(folder: Path, verdict: LiveVerdict) -> dict[str, dict[str, float | None]]:
    """The value of each judged metric, by the place that shows it."""
    (load,) = verdict.loads
    judged = {each.target.metric: each.value for each in load.result.judgements}
    (row,) = results_data(load_run(folder), list(judged))
    (line,) = csv.DictReader(io.StringIO(csv_of(flat([row]))))
    compared = {each.column.metric: each for each in compare(folder, folder, list(judged)).cells[0].metrics}
    return {
        "verdict": judged,
        "table": {name: row["metrics"][name]["median"] for name in judged},
        "CSV": {name: float(line[name]) if line[name] else None for name in judged},
        "A": {name: compared[name].a.median if name in compared else None for name in judged},
        "B": {name: compared[name].b.median if name in compared else None for name in judged},
    }


@pytest.mark.usefixtures("unrendered")
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=12), st.lists(st.floats(0.05, 3.0), min_size=1, max_size=5)
)
@pytest.mark.slow("writes reports of random runs")
def test_a_name_has_one_value_wherever_it_stands(outcomes: list[str], late_s: list[float]) -> None:
    experiment = live(grid={"c": [4]}, seeds=[0])
    with tempfile.TemporaryDirectory() as base:
        folder = serve_live(Path(base) / "run", experiment, play=endpoint(outcomes, late_s))
        Asked(TARGETS, given=True).write(folder)
        verdict = live_verdict(load_run(folder))
        assert verdict is not None
        found = values_of(folder, verdict)
        page = Page(write_report(folder).read_text())
    for place, values in found.items():
        assert [name for name in values if not same(values[name], found["verdict"][name])] == [], place
    header, *judged = next(iter(page.tables.values()))
    at = header.index("target")
    on_page = {cells[at].removesuffix("?"): cells[at + 1] for cells in judged}
    assert [on_page[str(target)] for target in TARGETS] == [shown["value"] for shown in rows(verdict)]
