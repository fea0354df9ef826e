"""The verdict on a target: PASS, FAIL or INCONCLUSIVE, from its interval over the turns of all runs."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.live.verdict import Observed, failures, judge, load_verdict, send_delays
from harness.metrics.metric import statistic
from harness.metrics.stats import mean_interval, quantile_interval
from harness.slo.targets import FAIL, INCONCLUSIVE, PASS, Target, judged_value, needed, parse_targets


def run(ttfp_s: list[float], broken: int = 0) -> Observed:
    """A turn for each TTFP, NaN for a failed one; `broken` of the replies had a gap."""
    values, n = np.array(ttfp_s, float), len(ttfp_s)
    failed = np.isnan(values)
    late_s = np.where(failed, math.inf, values)
    metrics = {
        **{
            f"audio_ttfp_{each}": {"value": statistic(late_s, each)[0], "n": n, "missing": 0}
            for each in ("p50", "p90", "p99", "mean")
        },
        "continuity": {"value": 1 - broken / n if n else None, "n": n, "missing": 0},
        "completed_rps": {"value": float(n - failed.sum()), "n": n, "missing": 0},
        "failed_share": {"value": float(failed.mean()) if n else None, "n": n, "missing": 0},
    }
    status = np.where(failed, "failed", "completed")
    return Observed(metrics, pd.DataFrame({"spoken": True, "status": status, "packets": 1, "audio_ttfp_s": values}))


def only(text: str) -> Target:
    (target,) = parse_targets(text)
    return target


ONE_FAILED, SINGLE = [math.nan], "is a single failure, which takes 100 turns to judge"
seconds = st.one_of(st.floats(0.01, 5), st.just(math.nan))
runs = st.lists(seconds, min_size=1, max_size=120)


@given(runs, st.sampled_from(["p50", "p90", "p99"]))
def test_the_value_of_one_run_is_its_metric(ttfp_s: list[float], statistic: str) -> None:
    observed, metric = run(ttfp_s), f"audio_ttfp_{statistic}"
    result = judge(Target(metric, "<=", 1.0), [observed])
    value = judged_value(metric, observed.metrics, observed.requests)
    assert result.value == pytest.approx(value)
    assert result.runs == (value,)


def test_no_values_have_no_interval() -> None:
    assert quantile_interval(np.empty(0), 0.9) == (-math.inf, math.inf)
    assert mean_interval(np.array([1.0])) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("target", "runs", "verdict", "why"),
    [
        ("ttfp_p90<=800ms", [run([0.2] * 35)], INCONCLUSIVE, "rests on n=35 where 36 are needed"),
        ("ttfp_p90<=800ms", [run([0.2] * 36)], PASS, ""),
        ("ttfp_p90<=800ms", [run([0.9] * 20)], FAIL, ""),  # 20 are enough to miss it
        ("ttfp_p90<=800ms", [run([0.2] * 500), run([0.2] * 10 + [0.9] * 4)], INCONCLUSIVE, "1 of 2 runs missed it"),
        ("continuity>=95%", [run([0.2] * 72)], INCONCLUSIVE, "rests on n=72 where 73 are needed"),
        ("continuity>=95%", [run([0.2] * 73)], PASS, ""),
        ("completed_rps>=2", [run([0.2] * 2)], PASS, ""),
        ("completed_rps>=2", [run([0.2])], FAIL, ""),
        ("completed_rps>=2", [run([0.2] * 3), run([0.2])], INCONCLUSIVE, "1 of 2 runs missed it"),
        ("completed_rps>=2", [], INCONCLUSIVE, "was not measured"),
        ("ttft_p90<=2s", [run([0.2])], INCONCLUSIVE, "was not measured"),
        ("failed<=1%", [run(ONE_FAILED + [0.2] * 98)], INCONCLUSIVE, SINGLE),
        ("failed<=1%", [run(ONE_FAILED + [0.2] * 39), run([0.2] * 60)], PASS, ""),
        ("failed<=1%", [run(ONE_FAILED * 2 + [0.2] * 38)], FAIL, ""),
        ("failed<=1%", [run(ONE_FAILED * 3 + [0.2] * 57), run([0.2] * 400)], INCONCLUSIVE, "1 of 2 runs missed it"),
        ("failed<=1%", [], INCONCLUSIVE, "was not measured"),
    ],
)
def test_a_target_is_judged_over_all_runs_and_an_open_verdict_has_its_reason(
    target: str, runs: list[Observed], verdict: str, why: str
) -> None:
    result = judge(only(target), runs)
    assert (result.verdict, result.why) == (verdict, why)
    assert (result.value is None) == (why == "was not measured")
    if target.startswith(("completed", "failed")):
        assert result.interval is None


@pytest.mark.parametrize(
    ("target", "ttfp_s", "enough"),
    [
        ("ttfp_p90<=800ms", [0.2] * 20, 2),  # 36 are needed
        ("ttfp_p90<=800ms", [0.2] * 18, 2),
        ("ttfp_p90<=800ms", [0.2] * 17, 3),
        ("continuity>=95%", [0.2] * 20, 4),  # 73 are needed
        ("failed<=1%", ONE_FAILED + [0.2] * 39, 3),  # 100 are needed
    ],
)
def test_an_open_verdict_says_how_often_its_turns_decide(target: str, ttfp_s: list[float], enough: int) -> None:
    assert judge(only(target), [run(ttfp_s)]).enough == enough


@pytest.mark.parametrize(
    ("target", "least"),
    [
        ("ttfp_p50<=800ms", 6),
        ("ttfp_p90<=800ms", 36),
        ("ttft_p99<=2s", 368),
        ("continuity>=95%", 73),
        ("continuity>=100%", None),
        ("ttfp_mean<=800ms", 2),
        ("completed_rps>=1", 1),
    ],
)
def test_a_target_needs_as_many_turns_as_its_interval(target: str, least: int | None) -> None:
    assert needed(only(target)) == least


def sent_late(ttfp_s: float, kind: str = "commit") -> Observed:
    """40 turns of 10 s, each ended by a send of this kind 22.5 ms late. Other sends are in time."""
    whole, end_s = run([ttfp_s] * 40), 10.0 * np.arange(40)
    requests = whole.requests.assign(session=0, turn_start_s=end_s - 2, turn_end_s=end_s)
    sends = pd.DataFrame({"kind": kind, "session": 0, "due_s": end_s, "send_delay_s": 0.0225})
    others = (("ack", -1e-4), ("ack", 5e-4), ("commit", 3.0), ("commit", -6.0))  # of playback and of other turns
    more = [sends.assign(kind=name, due_s=end_s + at_s, send_delay_s=0.0) for name, at_s in others]
    return Observed(whole.metrics, requests, pd.concat([sends, *more] if kind != "audio" else [sends]))


@pytest.mark.parametrize(
    ("ttfp_s", "verdict"),
    [
        (0.8, PASS),
        (0.801, INCONCLUSIVE),
        (0.8225, INCONCLUSIVE),  # 0.8 s without the 22.5 ms
        (0.8226, FAIL),
    ],
)
def test_a_late_send_makes_a_verdict_invalid_only_where_it_decides(ttfp_s: float, verdict: str) -> None:
    result = judge(only("ttfp_p90<=800ms"), [sent_late(ttfp_s)])
    assert result.verdict == verdict and result.value == pytest.approx(ttfp_s) and result.n == 40
    assert result.invalid == (verdict == INCONCLUSIVE)
    assert result.invalid == result.why.startswith("FAIL as measured, PASS without the load generator's")
    assert result.enough is None


@pytest.mark.parametrize(
    ("before_s", "delay_s"),
    [(-0.5, 0), (-5e-4, 0.0225), (0, 0.0225), (2, 0.0225), (2.0005, 0.0225), (2.002, 0), (2.5, 0)],
)
def test_a_send_belongs_to_the_turn_in_which_it_is_due(before_s: float, delay_s: float) -> None:
    """Turns last 2 s; the two clocks may differ by a millisecond."""
    late = sent_late(0.81)
    assert late.sends is not None
    sends = late.sends.query("kind == 'commit' and send_delay_s > 0")
    found = send_delays(late.requests, sends.assign(due_s=sends["due_s"] - before_s))
    assert found.tolist() == pytest.approx([delay_s] * 40)


@pytest.mark.parametrize("kind", ["commit", "request", "text", "audio"])
def test_the_delay_of_a_turn_is_that_of_the_send_that_ended_it(kind: str) -> None:
    late = sent_late(0.81, kind)
    assert late.sends is not None
    assert send_delays(late.requests, late.sends).tolist() == pytest.approx([0.0225] * 40)
    assert judge(only("ttfp_p90<=800ms"), [late]).invalid


def test_failed_turns_are_infinitely_late() -> None:
    failed = run([0.2] * 80 + [math.nan] * 20)
    assert judge(only("ttfp_p90<=800ms"), [failed]).verdict == FAIL
    assert judge(only("ttfp_p50<=800ms"), [failed]).verdict == PASS
    mean = judge(only("ttfp_mean<=800ms"), [failed])
    assert mean.verdict == FAIL
    assert mean.interval == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("metrics", "status", "counted"),
    [
        ({"failed_share": {"value": 0.5, "n": 4}}, ["completed"] * 4, (2, 4)),  # two are silent
        ({"failed_share": {"value": None, "n": 0}}, ["completed", "failed"], (1, 2)),
        ({}, ["completed", "failed", "barged_in"], (1, 3)),  # of a record from before the metric
        ({}, None, (0, 0)),
    ],
)
def test_failures_are_counted_by_the_metric_else_by_the_table(
    metrics: dict[str, Any], status: list[str] | None, counted: tuple[int, int]
) -> None:
    observed = Observed(metrics, pd.DataFrame({} if status is None else {"status": status}))
    failed, n = counted
    assert failures(observed) == counted
    result = judge(only("failed<=1%"), [observed])
    assert (result.value, result.n) == (failed / n if n else None, n)


def gaps(gap_s: float) -> Observed:
    """80 replies, each with this gap, of a server whose loop lagged by 50 ms; up to 100 ms go unnoticed."""
    observed = run([0.2] * 80, broken=80)
    return replace(observed, requests=observed.requests.assign(max_gap_s=gap_s, continuous=False), lag_s=0.05)


@pytest.mark.parametrize(("gap_s", "invalid"), [(0.15, True), (0.151, False)])
def test_a_lag_of_the_server_makes_gaps_invalid_that_it_could_have_made(gap_s: float, invalid: bool) -> None:
    result = judge(only("continuity>=95%"), [gaps(gap_s)])
    assert (result.verdict, result.invalid) == (INCONCLUSIVE if invalid else FAIL, invalid)


@pytest.mark.parametrize(("name", "most_s"), [("continuity_250ms", 0.25), ("continuity_500ms", 0.5)])
def test_a_share_of_longer_gaps_is_counted_without_the_lag_of_the_server(name: str, most_s: float) -> None:
    for gap_s, share in ((most_s + 0.05, 1.0), (most_s + 0.051, 0.0)):
        observed = gaps(gap_s)
        observed.metrics[name] = {"value": 0.0, "n": 80, "missing": 0}
        assert observed.without_lag().metrics[name]["value"] == share


def test_a_lag_may_have_cost_throughput_but_fails_no_turn() -> None:
    slow = judge(only("completed_rps>=100"), [gaps(0.2)])
    assert slow.invalid
    assert "which may be due to it" in slow.why
    assert judge(only("failed<=1%"), [replace(run([math.nan] * 9), lag_s=0.05)]).verdict == FAIL


class Kept:
    """The record of 40 turns of one TTFP. `lag_s`: P99 and largest lag of the server's loop."""

    def __init__(self, ttfp_s: float, lag_s: tuple[Any, Any] = (None, None), limit_ms: Any = 20, **more: Any):
        self.run, self.error, self.invalid = sent_late(ttfp_s), more.get("error"), more.get("invalid", False)
        self.metrics = dict(self.run.metrics) if more.get("measured", True) else {}
        values = (*zip(("server_lag_p99", "server_lag_max"), lag_s, strict=True), ("sends_late", more.get("late")))
        self.metrics |= {name: {"value": v, "n": 40, "missing": 0} for name, v in values if v is not None}
        self.point = SimpleNamespace(params={"send_delay_limit_ms": limit_ms})

    def has(self, table: str) -> bool:
        return bool(self.metrics)

    def table(self, name: str) -> pd.DataFrame | None:
        return getattr(self.run, name)

    def metrics_with(self, names: list[str]) -> dict[str, Any]:
        return self.metrics


@pytest.mark.parametrize(
    ("record", "verdict", "invalid"),
    [
        (Kept(0.81), FAIL, False),
        (Kept(0.81, (0.02, 0.5)), FAIL, False),  # the P99 is at the limit
        (Kept(0.81, (0.0201, 0.5)), INCONCLUSIVE, True),
        (Kept(0.81, (0.0201, None)), INCONCLUSIVE, True),
        (Kept(0.83, (0.0201, 0.025)), FAIL, False),  # the largest lag explains less
        (Kept(0.81, (0.0201, 0.5), None), FAIL, False),
        (Kept(0.81, (0.0201, 0.5), 20.2), FAIL, False),
        (Kept(0.79, (0.0201, 0.5)), PASS, False),  # no lag makes a server look faster
        (Kept(0.81, late=1.0), INCONCLUSIVE, True),  # 22.5 ms are the generator's
        (Kept(0.81, late=0.0), FAIL, False),
    ],
)
def test_what_a_machine_did_counts_above_its_limit(record: Any, verdict: str, invalid: bool) -> None:
    found = load_verdict([record], [only("ttfp_p90<=800ms")])
    assert (found.verdict, found.invalid, found.lost) == (verdict, invalid, ())
    assert found.shown == ("INVALID" if invalid else verdict)
    assert [each.verdict for each in found.undecided] == [INCONCLUSIVE] * invalid
    assert ("FAIL as measured, PASS without" in found.judgements[0].why) == invalid


FAST, SLOW = Kept(0.2), Kept(0.9)
LATE, BROKEN = Kept(0.2, invalid=True, error="late sends"), Kept(0.2, measured=False, error="it died")


@pytest.mark.parametrize(
    ("records", "verdict", "lost", "counting"),
    [
        ([FAST, FAST], PASS, [], 2),
        ([FAST, LATE], INCONCLUSIVE, ["1 of 2 runs: late sends"], 1),
        ([LATE], INCONCLUSIVE, ["late sends"], 0),
        ([SLOW, LATE], FAIL, [], 1),  # whatever the other would have been
        ([FAST, BROKEN], FAIL, ["1 of 2 runs: it died"], 1),
        ([BROKEN, LATE, LATE], FAIL, ["1 of 3 runs: it died"], 0),
    ],
)
def test_runs_that_do_not_count_are_named(records: list[Any], verdict: str, lost: list[str], counting: int) -> None:
    found = load_verdict(records, [only("ttfp_p90<=800ms")])
    assert (found.verdict, list(found.lost), len(found.measured)) == (verdict, lost, counting)
    assert found.invalid == (verdict == INCONCLUSIVE)
    assert [each.why for each in found.judgements] == [""]
    assert counting or found.judgements[0].verdict == INCONCLUSIVE
