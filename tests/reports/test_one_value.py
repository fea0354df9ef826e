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
from reports.live.live_verdict import live_verdict, rows
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
    """An endpoint whose replies end so, one after the other; a late one takes a time of `late_s`."""

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
    log.event(t, "turn_start", session, turn)
    end_s = t + 1.0
    if outcome == "early":
        log.event(end_s - 0.2, "audio", session, turn, value=0.5)
    log.event(end_s, "turn_end", session, turn, value=0.0)
    if outcome == "early":
        log.event(end_s, "early_reply", session, turn)
    if outcome not in ("refused", "mute"):
        first_s = end_s + (0.1 if outcome == "fine" else wait_s)
        log.event(first_s, "first_text", session, turn, value=1)
        for piece in range(4):
            gap_s = wait_s if outcome == "late pieces" else 0.25
            log.event(first_s + gap_s * piece, "audio", session, turn, value=0.5)
        end_s = first_s + 4 * max(wait_s, 0.5)
    if outcome in ("broken", "refused"):
        log.event(end_s, "turn_failed", session, turn)
        failures.append((end_s, session, turn, "error: overloaded"))
        return end_s
    if outcome == "cut off":
        log.event(end_s, "barge_in", session, turn, value=0.5)
    else:
        log.event(end_s, "reply_done", session, turn)
        log.event(end_s, "playback_done", session, turn, value=2.0)
    log.event(end_s, "turn_done", session, turn)
    return end_s


def same(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9))


@pytest.mark.usefixtures("unrendered")
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=12), st.lists(st.floats(0.05, 3.0), min_size=1, max_size=5)
)
def test_a_name_has_one_value_wherever_it_stands(outcomes: list[str], late_s: list[float]) -> None:
    experiment = live(grid={"c": [4]}, seeds=[0])
    with tempfile.TemporaryDirectory() as base:
        folder = serve_live(Path(base) / "run", experiment, play=endpoint(outcomes, late_s))
        Asked(TARGETS, given=True).write(folder)
        run = load_run(folder)
        verdict = live_verdict(run)
        assert verdict is not None
        (load,) = verdict.loads
        judged = {each.target.metric: each.value for each in load.result.judgements}
        (row,) = results_data(run, list(judged))
        (line,) = csv.DictReader(io.StringIO(csv_of(flat([row]))))
        compared = {each.column.metric: each for each in compare(folder, folder, list(judged)).cells[0].metrics}
        page = Page(write_report(folder).read_text())
        header, *judged_rows = next(iter(page.tables.values()))
        at = header.index("target")
        on_page = {cells[at].removesuffix("?"): cells[at + 1] for cells in judged_rows}
    for target, shown in zip(TARGETS, rows(verdict), strict=True):
        name, value = target.metric, judged[target.metric]
        table = row["metrics"][name]["median"]
        assert same(value, table), (name, value, table)
        assert same(value, float(line[name]) if line[name] else None), (name, value, line[name])
        if name in compared:
            assert same(value, compared[name].a.median) and same(value, compared[name].b.median), name
        else:
            assert value is None
        assert on_page[str(target)] == shown["value"]
