"""The verdict on a live run: PASS, FAIL or INCONCLUSIVE for each target, over all runs of a load.

A target is judged by the 95 % interval of its metric: order statistics for a percentile, Wilson's interval for a share,
Student's for a mean. Each turn, reply or event counts as one independent draw, and a failed turn is infinitely late.
Counts, rates and the share of failed turns have no interval; their value itself is compared. PASS: the interval and
each run by itself meet the target. FAIL: the whole interval misses it. INCONCLUSIVE: the rest, including a percentile
of too few turns, whose interval has no end.

A run is judged twice: as measured, and without delays that the server did not cause (each turn's own send delay, and
the loop lag of our own server). If the two verdicts on a target differ, it is INCONCLUSIVE, because a slow machine
decided it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from harness.metrics.live import GAPS_MS
from harness.metrics.metric import share, statistic
from harness.metrics.metric_name import parsed
from harness.metrics.replies import FAILED_SHARE
from harness.metrics.stats import mean_interval, quantile_interval, wilson
from harness.metrics.turns import DISTRIBUTIONS, from_turn_end
from harness.records.record import INVALID, Record
from harness.request_tables.playback import CONTINUITY_GAP_S
from harness.request_tables.request_table import FAILED
from harness.request_tables.steady_window import counted
from harness.slo.targets import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    Repeat,
    Target,
    Verdict,
    counts_events,
    is_sampled,
    judged_value,
    needed,
    number,
    scale,
    turn_values,
)

if TYPE_CHECKING:
    from harness.slo.search import Step

MOST_TIMES = 50
"""[chosen] Largest multiple of the turns for which a judgement says whether they would be enough."""


@dataclass(frozen=True)
class Observed:
    """One run: its metrics as a record has them, and its request table."""

    metrics: Mapping[str, dict[str, Any]]
    requests: pd.DataFrame
    sends: pd.DataFrame | None = None
    """Sends of a live run in which some send was later than its `send_delay_limit_ms`."""
    lag_s: float = 0.0
    """Largest lag of the event loop of the server, one of ours, where its P99 is above `send_delay_limit_ms`."""

    def without_delay(self) -> "Observed":
        """Return the run with each turn's own send delay taken off its latencies."""
        if self.sends is None or "turn_end_s" not in self.requests:
            return self
        return self._sooner(send_delays(self.requests, self.sends))

    def without_lag(self) -> "Observed":
        """Return the run with the server's lag taken off each latency and each pause."""
        return self._sooner(np.full(len(self.requests), self.lag_s), pauses=True) if self.lag_s else self

    def _sooner(self, late_s: np.ndarray, pauses: bool = False) -> "Observed":
        names = [*_FROM_TURN_END, *(_PAUSES if pauses else ())]
        late = {name: self.requests[name] - late_s for name in names if name in self.requests}
        requests = self.requests.assign(**late)
        # As of values that lack some, so that they are made of the turns anew.
        metrics = {name: {**each, "missing": each["missing"] or 1} for name, each in self.metrics.items()}
        for name, (column, most_s) in _UNBROKEN.items():
            if pauses and name in metrics and column in requests:
                judged = counted(requests)
                judged = judged.loc[judged["continuous"].notna()]
                value, n, _ = share(judged[column].to_numpy(float) <= most_s + 1e-9)
                metrics[name] = {**metrics[name], "value": value, "n": n}
        return Observed(metrics, requests)


_PAUSES = ("max_gap_s", "underrun_fixed_s", "tbt_mean_s")
_UNBROKEN = {
    "continuity": ("max_gap_s", CONTINUITY_GAP_S),
    "continuity_fixed_timeline": ("underrun_fixed_s", CONTINUITY_GAP_S),
    **{f"continuity_{gap_ms}ms": ("max_gap_s", gap_ms / 1e3) for gap_ms in GAPS_MS},
}
"""Share of replies -> the column of their interruption, and the longest one that goes unnoticed, s."""
_FROM_TURN_END = [each.column for each in DISTRIBUTIONS.values() if from_turn_end(each)] + ["end_of_turn_delay_s"]
_LAST_SENDS = ("commit", "request", "text")
"""Kinds of sends that end a user's turn; on an open microphone it is the last audio."""


def send_delays(requests: pd.DataFrame, sends: pd.DataFrame) -> np.ndarray:
    """Return how much later than due the send that ended each turn went, s; 0 where it is not known."""
    last = sends.loc[sends["kind"].isin(_LAST_SENDS)]
    last = (last if len(last) else sends).filter(["session", "due_s", "send_delay_s"]).dropna().sort_values("due_s")
    turns = requests.filter(["session", "turn_start_s", "turn_end_s"]).reset_index(drop=True)
    ended = turns.dropna(subset=["turn_end_s"]).sort_values("turn_end_s").reset_index()
    ended["until_s"] = ended["turn_end_s"] + 1e-3  # times of a trace and of a clock differ by rounding
    types = {"session": "int64"}
    pairs = pd.merge_asof(ended.astype(types), last.astype(types), left_on="until_s", right_on="due_s", by="session")
    within = (pairs["due_s"] >= pairs["turn_start_s"].fillna(-np.inf) - 1e-3).to_numpy()
    delays_s = np.zeros(len(turns))
    delays_s[pairs["index"]] = np.where(within, pairs["send_delay_s"].clip(lower=0.0).to_numpy(float), 0.0)
    return delays_s


@dataclass(frozen=True)
class Judgement:
    """One target at one load, in the metric's own unit."""

    target: Target
    verdict: Verdict
    value: float | None
    """Over all turns of all runs together; the median of the runs' values where it has no interval; None: missing."""
    interval: tuple[float, float] | None
    """95 %; an infinite end is one that so few turns do not have. None: the metric has no interval."""
    n: int
    """Turns, replies or events behind the value; of a metric without an interval what its record says."""
    runs: tuple[float | None, ...]
    """The value of each run by itself."""
    why: str
    """Reason why it is not conclusive; empty where it is."""
    enough: int | None
    """Factor on the number of turns that would decide it; None where it is conclusive, or no number would."""
    invalid: bool = False
    """Not conclusive because a machine was too slow."""

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON; infinite values are the string "inf", a missing end is null."""
        low, high = self.interval or (-math.inf, math.inf)
        return {
            "metric": self.target.metric,
            "op": self.target.op,
            "bound": self.target.bound,
            "target": str(self.target),
            "verdict": self.verdict,
            "value": _json(self.value),
            "interval": None if self.interval is None else [end if math.isfinite(end) else None for end in (low, high)],
            "n": self.n,
            "runs": [_json(value) for value in self.runs],
            "why": self.why,
        }


def judge(target: Target, observed: Sequence[Observed]) -> Judgement:
    """Judge the target at one load, over all its observations. INCONCLUSIVE where there are none, or where a machine
    decides: the client's own send delays, or the lag of a server of ours."""
    judgement = _judge(target, observed)
    if any(each.sends is not None for each in observed):
        without = _judge(target, [each.without_delay() for each in observed])
        if without.verdict != judgement.verdict:
            return _void(
                judgement,
                f"{judgement.verdict} as measured, {without.verdict} without the load generator's own send delay; "
                "give it more --shards or a quieter machine",
            )
    lag_s = max((each.lag_s for each in observed), default=0.0)
    # A lag makes no server look faster.
    if not lag_s or judgement.verdict == PASS or target.metric == FAILED_SHARE:
        return judgement
    sooner = [each.without_lag() for each in observed]
    recomputable = is_sampled(target.metric) or target.metric in _UNBROKEN
    without = _judge(target, sooner) if recomputable else None
    if without is not None and without.verdict == judgement.verdict:
        return judgement
    other = f"{without.verdict} without it" if without is not None else "which may be due to it"
    return _void(
        judgement,
        f"the server's own event loop lagged up to {1e3 * lag_s:,.0f} ms: {judgement.verdict} as measured, {other}; "
        "give the server a core of its own or a quieter machine",
    )


def _void(judgement: Judgement, why: str) -> Judgement:
    return replace(judgement, verdict=INCONCLUSIVE, why=why, enough=None, invalid=True)


def verdict_of(judgements: Iterable[Judgement]) -> Verdict:
    """Return the verdict on a load with these targets: FAIL where one fails, PASS where all pass, else INCONCLUSIVE."""
    verdicts = {each.verdict for each in judgements}
    return FAIL if FAIL in verdicts else PASS if verdicts == {PASS} else INCONCLUSIVE


def _judge(target: Target, observed: Sequence[Observed]) -> Judgement:
    if target.metric == FAILED_SHARE:
        return _judge_failures(target, observed)
    runs = tuple(judged_value(target.metric, each.metrics, each.requests) for each in observed)
    sample = _sample(target.metric, observed)
    if sample is None or all(value is None for value in runs):
        return _as_they_are(target, observed, runs)
    value, interval, n = sample(1)
    verdict = _verdict(target, interval)
    why, enough = "", None
    if verdict == INCONCLUSIVE:
        why = _why(target, interval, n)
        enough = next((k for k in range(2, MOST_TIMES + 1) if _verdict(target, sample(k)[1]) != INCONCLUSIVE), None)
    elif verdict == PASS and (missed := [v for v in runs if not target.met(v)]):
        verdict, why = INCONCLUSIVE, f"{len(missed)} of {len(runs)} runs missed it"
    return Judgement(target, verdict, value, interval, n, runs, why, enough)


def failures(observed: Observed) -> tuple[int, int]:
    """Return the turns that failed, and all that began."""
    metric = observed.metrics.get(FAILED_SHARE)
    if metric is not None and metric["value"] is not None:
        return round(metric["value"] * metric["n"]), metric["n"]
    if "status" not in observed.requests:
        return 0, 0
    status = counted(observed.requests)["status"].to_numpy()  # of a record without the metric
    return int((status == FAILED).sum()), status.size


def _judge_failures(target: Target, observed: Sequence[Observed]) -> Judgement:
    """Judge the share of failed turns by its value. A single failure among fewer turns than the target allows one in
    decides nothing."""
    counts = [failures(each) for each in observed]
    runs = tuple(k / n if n else None for k, n in counts)
    failed, n = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0)
    if not n:
        return Judgement(target, INCONCLUSIVE, None, None, 0, runs, "was not measured", None)
    judgement = Judgement(target, PASS, failed / n, None, n, runs, "", None)
    missed = [k for k, of in counts if of and not _bearable(target, k, of)]
    if target.met(failed / n):
        if not missed:
            return judgement
        return replace(judgement, verdict=INCONCLUSIVE, why=f"{len(missed)} of {len(runs)} runs missed it")
    if not _bearable(target, failed, n):
        return replace(judgement, verdict=FAIL)
    least = math.ceil(1 / target.bound)
    why = f"is a single failure, which takes {least} turns to judge"
    return replace(judgement, verdict=INCONCLUSIVE, why=why, enough=math.ceil(least / n))


def _bearable(target: Target, failed: int, n: int) -> bool:
    return target.met(failed / n) or (failed == 1 and n * target.bound < 1 and target.bound > 0)


_Sampled = tuple[float | None, tuple[float, float], int]


def _sample(metric: str, observed: Sequence[Observed]) -> Any:
    """Return a function of k: value, interval and n of k times the observed turns; None where the metric has no
    interval."""
    tables = [turn_values(metric, each.requests) for each in observed]
    samples = [values for values in tables if values is not None]
    if samples:
        values = np.concatenate(samples)
        return lambda k: _of_turns(metric, np.tile(values, k))
    if not counts_events(metric):
        return None
    shares = [each.metrics[metric] for each in observed if metric in each.metrics]
    n = sum(one["n"] for one in shares)
    hits = sum(round(one["value"] * one["n"]) for one in shares if one["value"] is not None)
    return (lambda k: (hits / n, wilson(k * hits, k * n), k * n)) if n else None


def _of_turns(metric: str, values: np.ndarray) -> _Sampled:
    name = parsed(metric)
    quantile = name.quantile
    low, high = mean_interval(values) if quantile is None else quantile_interval(values, float(quantile))
    value, _, _ = statistic(values, name.statistic)
    if value is not None:  # interpolated, it may lie beside an end that is one of few values
        low, high = min(low, value), max(high, value)
    return value, (low, high), values.size


def _as_they_are(target: Target, observed: Sequence[Observed], runs: tuple[float | None, ...]) -> Judgement:
    values = [value for value in runs if value is not None]
    n = sum(each.metrics.get(target.metric, {}).get("n", 0) for each in observed)
    if len(values) < len(runs) or not values:
        value = float(np.median(values)) if values else None
        return Judgement(target, INCONCLUSIVE, value, None, n, runs, "was not measured", None)
    met = sum(target.met(value) for value in values)
    verdict = PASS if met == len(values) else INCONCLUSIVE if met else FAIL
    why = f"{len(values) - met} of {len(values)} runs missed it" if verdict == INCONCLUSIVE else ""
    return Judgement(target, verdict, float(np.median(values)), None, n, runs, why, None)


def _verdict(target: Target, interval: tuple[float, float]) -> Verdict:
    met = [target.met(end) for end in interval]
    return PASS if all(met) else INCONCLUSIVE if any(met) else FAIL


def _why(target: Target, interval: tuple[float, float], n: int) -> str:
    least = needed(target)
    if least is not None and n < least:
        return f"rests on n={n} where {least} are needed"
    return f"could be {span(target.metric, interval)} by chance of n={n}"


def span(metric: str, interval: tuple[float, float]) -> str:
    """Return an interval in words, with its unit: `720 to 850 ms`. A missing end is ∞ or, below, left out."""
    low, high = interval
    if math.isinf(low) and low < 0:
        return f"up to {number(metric, high)}"
    unit = scale(metric)[1]
    if math.isinf(low):
        return number(metric, low)
    if math.isinf(high):
        return f"{number(metric, low, unit=False)} to ∞{unit and f' {unit}'}"
    return f"{number(metric, low, unit=False)} to {number(metric, high)}"


def _json(value: float | None) -> float | str | None:
    return "inf" if value is not None and math.isinf(value) else value


class LoadVerdict(NamedTuple):
    """The verdict of all runs of one load together."""

    verdict: Verdict
    judgements: tuple[Judgement, ...]
    lost: tuple[str, ...]
    """Reasons why runs do not count: the server failed, or a machine was too slow."""
    measured: tuple[Record, ...]
    """The runs that count."""
    invalid: bool
    """Undecided because a machine was too slow."""

    @property
    def shown(self) -> str:
        return INVALID if self.invalid else self.verdict

    @property
    def undecided(self) -> list[Judgement]:
        return [each for each in self.judgements if each.verdict == INCONCLUSIVE]


def load_verdict(records: Sequence[Record], targets: Sequence[Target]) -> LoadVerdict:
    """Judge a load by the one rule of runs and searches. The values of a load without a counting run are shown all the
    same."""
    there = [record for record in records if record.metrics and record.has("requests")]
    measured = [record for record in there if not record.invalid]
    late = [record for record in records if record.invalid]
    failed = [record for record in records if record.error is not None and not record.invalid]
    judgements = [judge(target, [_observed(record, target) for record in measured or there]) for target in targets]
    if not measured:
        judgements = [
            replace(each, verdict=INCONCLUSIVE, why="", enough=None, invalid=bool(late)) for each in judgements
        ]
    verdict = verdict_of(judgements)
    verdict = FAIL if failed else INCONCLUSIVE if late and verdict == PASS else verdict
    lost = [*_lost(failed, len(records)), *(_lost(late, len(records)) if verdict != FAIL else ())]
    spoilt = bool(late) or any(each.invalid for each in judgements)
    undecided = verdict == INCONCLUSIVE and spoilt
    return LoadVerdict(verdict, tuple(judgements), tuple(lost), tuple(measured), undecided)


def load_step(value: float, records: Sequence[Record], repeats: Sequence[Repeat], targets: Sequence[Target]) -> "Step":
    """Return the same as a step of a search; `repeats`: of the records."""
    from harness.slo.search import SHOWN, Step

    shown = load_verdict(records, targets).shown
    return Step(value, tuple(repeats), next(outcome for outcome, word in SHOWN.items() if word == shown))


def _observed(record: Record, target: Target) -> Observed:
    late = record.metrics.get("sends_late", {}).get("value") and record.has("sends")
    p99_s, most_s = (record.metrics.get(f"server_lag_{each}", {}).get("value") or 0.0 for each in ("p99", "max"))
    limit_ms = record.point.params.get("send_delay_limit_ms")
    starved = isinstance(limit_ms, int | float) and 1e3 * p99_s > limit_ms
    return Observed(
        record.metrics_with([target.metric]),
        record.table("requests"),
        record.table("sends") if late else None,
        max(p99_s, most_s) if starved else 0.0,
    )


def _lost(records: Sequence[Record], of: int) -> list[str]:
    if not records:
        return []
    which = "" if of == 1 else f"{len(records)} of {of} runs: "
    return [f"{which}{records[0].error}"]
