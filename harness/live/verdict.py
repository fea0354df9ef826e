"""The verdict on a live run: whether it counts, what it says of each target, and what all runs of a load say together.

Whether a run counts. INVALID: what was measured is the doing of a machine. More than 5 % of the sends were late, the
load generator died, the load was never the planned one, or the server, one of ours, was starved. Failed: the server's
own doing. Most of its turns failed, so the median user waited for ever, whatever those waited who were answered.

Whether a load meets a target, and how sure that is. A percentile or a mean rests on turns, a share on turns, replies or
events, each taken as one draw. What such a value could have been by chance is its 95 % interval: of a percentile by
order statistics, of a share Wilson's, of a mean Student's. Counts and rates have none, and are judged as they are.
Turns that failed count as infinitely late. PASS: the interval lies within the target and every run by itself meets it.
FAIL: all of the interval misses it. All else is INCONCLUSIVE, too few turns for the percentile among it, as the
interval then has no end. A run is judged twice: as measured, and with the client's own send delay taken off each turn.
A target on which the two disagree is INCONCLUSIVE, because the load generator and not the server decides it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.endpoints.target import TargetParams
from harness.kinds.kind import LiveKind
from harness.live.run.plan import Merged
from harness.metrics.live_window import PHASE, counted
from harness.metrics.stats import (
    least_for_quantile,
    least_for_share,
    mean_interval,
    quantile_interval,
    wilson,
)
from harness.metrics.turns import DISTRIBUTIONS, from_turn_end
from harness.metrics.vocabulary import definition
from harness.records.record import INVALID, InvalidPoint, Measurement, Record
from harness.slo.search import SHOWN, Step
from harness.slo.targets import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    Repeat,
    Target,
    Verdict,
    is_sampled,
    judged_value,
    number,
    scale,
    statistic_of,
    turn_values,
)

MOST_LATE = 0.05
"""Share of the sends that may be later than `send_delay_limit_ms`. [chosen]"""
_SHED, _LATE = "sessions turned away", "no answer in time"
_HINTS = (
    (r"http (404|405|501)$", "there are no chat completions at the url; correct its path, often /v1"),
    (r"http (401|403)$", "put the right token into the environment variable that token_env names"),
    (r"http 4..$", "the server does not take what is asked; see its log, and set model where it has several"),
    (r"connect", "see whether the server still runs"),
    (
        r"timeout: no session|garbage|serves|closed|cut short",
        "name what it speaks with --dialect, or see the server's log",
    ),
    (_SHED, "take fewer sessions, or let the server take more"),
    (r"", "see the server's log"),
)
"""Pattern of the reason of a failure, and its likely remedy; the first pattern that matches counts."""


class FailedPoint(RuntimeError):
    """A point whose server failed most requests. `measurement`: the values measured all the same."""

    def __init__(self, reason: str, measurement: Measurement) -> None:
        super().__init__(reason)
        self.measurement = measurement


def check_machines(
    measurement: Measurement, merged: Merged, target: TargetParams, batch: Merged | None = None
) -> None:
    """Raise InvalidPoint when a machine, not the server, determined the result. `batch`: of the batch documents."""
    reason = _why_invalid(measurement, merged, target) or _why_no_batch(batch, target)
    if reason is not None:
        raise InvalidPoint(reason, measurement)


def check_server(kind: LiveKind[Any], measurement: Measurement) -> None:
    """Raise FailedPoint when the server failed most turns, apart from rejected ones, or answered nothing at all."""
    requests = measurement.requests
    turns = kind.turn_rows(requests) is not None
    there = kind.answered(requests)
    answered = int(there.sum())
    assert not isinstance(measurement.events, Path), "a live run keeps its log in memory"
    events, failures = measurement.events.to_pandas(), measurement.more["failures"].to_pandas()
    shed = set(events.loc[(events["kind"] == "shed").to_numpy(), "session"])
    reasons = dict(zip(failures["session"], failures["reason"], strict=True))
    lost = requests["session"].to_numpy()[~there]
    why = Counter(_SHED if session in shed else reasons.get(session, _LATE) for session in lost)
    broken = why.total() - why[_SHED]
    if not why or (answered and (broken <= answered or not turns)):
        return
    if answered:
        del why[_SHED]
    ((reason, count),) = why.most_common(1)
    n, what = len(requests), "turns" if turns else "frames"
    told = f"{broken} of {n} {what} failed" if answered else f"all {n} {what} failed"
    most = "" if count == why.total() else f"{count} of them: "
    hint = next(hint for begin, hint in _HINTS if re.match(begin, reason))
    raise FailedPoint(f"{told} ({most}{reason.replace('http ', 'HTTP status ')}); {hint}", measurement)


def check_window(measurement: Measurement) -> None:
    """Raise InvalidPoint when no turn was asked under the planned load."""
    begin_s, end_s = (measurement.metrics[name]["value"] for name in ("steady_begin", "steady_end"))
    if PHASE in measurement.requests and not len(counted(measurement.requests)):
        there = "never" if begin_s is None else f"{begin_s:.1f} s"
        raise InvalidPoint(
            f"no turn was asked in the steady window, from when all users were there ({there}) to when no new turn "
            f"could begin ({end_s:.1f} s); give a longer --duration",
            measurement,
        )


def _why_invalid(measurement: Measurement, merged: Merged, target: TargetParams) -> str | None:
    if merged.lost:
        told = "; ".join(
            f"load generator {index} of {len(merged.shards)} {loss.reason} at {loss.t_s:.1f} s"
            for index, loss in sorted(merged.lost.items())
        )
        return f"{told}: {len(merged.lost_sessions)} open sessions were lost, and count as failed"
    late = late_share(merged, target)
    if late > MOST_LATE:
        return (
            f"{100 * late:.1f} % of the sends were later than send_delay_limit_ms={target.send_delay_limit_ms:g} "
            "allows: the load generator was late, not the server; give it more --shards, a quieter machine or fewer "
            "sessions"
        )
    lag_s = measurement.metrics["server_lag_p99"]["value"]
    if lag_s is not None and 1e3 * lag_s > target.send_delay_limit_ms:
        return (
            f"the P99 of the server's own loop lag is {1e3 * lag_s:.1f} ms, above send_delay_limit_ms="
            f"{target.send_delay_limit_ms:g}: its machine starved the server, its engine was not slow; give it a "
            "core of its own, a quieter machine or fewer sessions"
        )
    return None


def _why_no_batch(batch: Merged | None, target: TargetParams) -> str | None:
    """Return why the users did not run with the batch that the point names."""
    if batch is None:
        return None
    if batch.lost:
        loss = batch.lost[0]
        return f"the load generator of the batch {loss.reason} at {loss.t_s:.1f} s"
    if not batch.shards[0]["cut"]:
        return f"the batch ran out of documents at {batch.run_end_s:.1f} s; give a shorter --duration"
    late = late_share(batch, target)
    if late > MOST_LATE:
        return (
            f"{100 * late:.1f} % of the batch's sends were later than send_delay_limit_ms="
            f"{target.send_delay_limit_ms:g} allows: its load generator was late; give it a quieter machine "
            "or fewer documents"
        )
    return None


def late_share(merged: Merged, target: TargetParams) -> float:
    """Return the share of the sends that were later than `send_delay_limit_ms` allows; 0 of none."""
    delays_s = merged.sends["send_delay_s"].to_numpy()
    delays_s = delays_s[~np.isnan(delays_s)]
    return float((1e3 * delays_s > target.send_delay_limit_ms).mean()) if delays_s.size else 0.0


MOST_TIMES = 50
"""[chosen] Largest multiple of the turns for which a judgement says whether they would be enough."""


@dataclass(frozen=True)
class Observed:
    """One run: its metrics as a record has them, and its request table."""

    metrics: Mapping[str, dict[str, Any]]
    requests: pd.DataFrame
    sends: pd.DataFrame | None = None
    """Sends of a live run in which some send was later than its `send_delay_limit_ms`."""

    def without_delay(self) -> "Observed":
        """Return the run with each turn's own send delay taken off its latencies."""
        if self.sends is None or "turn_end_s" not in self.requests:
            return self
        delay_s = send_delays(self.requests, self.sends)
        late = [name for name in _FROM_TURN_END if name in self.requests]
        requests = self.requests.assign(**{name: self.requests[name] - delay_s for name in late})
        # As of values that lack some, so that they are made of the turns anew.
        metrics = {name: {**each, "missing": each["missing"] or 1} for name, each in self.metrics.items()}
        return Observed(metrics, requests)


_FROM_TURN_END = [each.column for each in DISTRIBUTIONS.values() if from_turn_end(each)] + [
    "end_of_turn_delay_s"
]
_LAST_SENDS = ("commit", "request", "text")
"""Kinds of sends that end a user's turn; on an open microphone it is the last audio."""


def send_delays(requests: pd.DataFrame, sends: pd.DataFrame) -> np.ndarray:
    """Return how much later than due the send that ended each turn went, s; 0 where it is not known."""
    last = sends.loc[sends["kind"].isin(_LAST_SENDS)]
    last = (
        (last if len(last) else sends)
        .filter(["session", "due_s", "send_delay_s"])
        .dropna()
        .sort_values("due_s")
    )
    turns = requests.filter(["session", "turn_start_s", "turn_end_s"]).reset_index(drop=True)
    known = turns.dropna(subset=["turn_end_s"]).sort_values("turn_end_s").reset_index()
    known["until_s"] = known["turn_end_s"] + 1e-3  # times of a trace and of a clock differ by rounding
    types = {"session": "int64"}
    found = pd.merge_asof(
        known.astype(types), last.astype(types), left_on="until_s", right_on="due_s", by="session"
    )
    own = (found["due_s"] >= found["turn_start_s"].fillna(-np.inf) - 1e-3).to_numpy()
    delays_s = np.zeros(len(turns))
    delays_s[found["index"]] = np.where(own, found["send_delay_s"].clip(lower=0.0).to_numpy(float), 0.0)
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
            "interval": None
            if self.interval is None
            else [end if math.isfinite(end) else None for end in (low, high)],
            "n": self.n,
            "runs": [_json(value) for value in self.runs],
            "why": self.why,
        }


def judge(target: Target, observed: Sequence[Observed]) -> Judgement:
    """Judge the target at one load, over all its observations. INCONCLUSIVE where there are none, or where the client's
    own send delays decide."""
    found = _judge(target, observed)
    if all(each.sends is None for each in observed):
        return found
    without = _judge(target, [each.without_delay() for each in observed])
    if without.verdict == found.verdict:
        return found
    why = (
        f"is {INVALID}: {found.verdict} as measured, {without.verdict} without the load generator's own send delay; "
        "give it more --shards or a quieter machine"
    )
    return replace(found, verdict=INCONCLUSIVE, why=why, enough=None)


def verdict_of(judgements: Iterable[Judgement]) -> Verdict:
    """Return the verdict on a load with these targets: FAIL where one fails, PASS where all pass, else INCONCLUSIVE."""
    found = {each.verdict for each in judgements}
    return FAIL if FAIL in found else PASS if found == {PASS} else INCONCLUSIVE


def needed(target: Target) -> int | None:
    """Return the fewest turns, replies or events that show a target to be met if all of them meet it; None: no number
    does."""
    metric, bound = target.metric, target.bound
    if is_sampled(metric):
        if (quantile := _quantile(metric)) is None:
            return 2
        return least_for_quantile(quantile if target.op == "<=" else 1 - quantile)
    if not _counts_events(metric):
        return 1
    missed = bound if target.op == "<=" else 1 - bound
    return least_for_share(missed) if missed > 0 else None


def _judge(target: Target, observed: Sequence[Observed]) -> Judgement:
    runs = tuple(judged_value(target.metric, each.metrics, each.requests) for each in observed)
    sample = _sample(target.metric, observed)
    if sample is None or all(value is None for value in runs):
        return _as_they_are(target, observed, runs)
    value, interval, n = sample(1)
    verdict = _verdict(target, interval)
    why, enough = "", None
    if verdict == INCONCLUSIVE:
        why = _why(target, interval, n)
        enough = next(
            (k for k in range(2, MOST_TIMES + 1) if _verdict(target, sample(k)[1]) != INCONCLUSIVE), None
        )
    elif verdict == PASS and (missed := [v for v in runs if not target.met(v)]):
        verdict, why = INCONCLUSIVE, f"{len(missed)} of {len(runs)} runs missed it"
    return Judgement(target, verdict, value, interval, n, runs, why, enough)


_Sampled = tuple[float | None, tuple[float, float], int]


def _sample(metric: str, observed: Sequence[Observed]) -> Any:
    """Return a function of k: value, interval and n of k times the observed turns; None where the metric has no
    interval."""
    tables = [turn_values(metric, each.requests) for each in observed]
    known = [values for values in tables if values is not None]
    if known:
        values = np.concatenate(known)
        return lambda k: _of_turns(metric, np.tile(values, k))
    if not _counts_events(metric):
        return None
    found = [each.metrics[metric] for each in observed if metric in each.metrics]
    n = sum(one["n"] for one in found)
    hits = sum(round(one["value"] * one["n"]) for one in found if one["value"] is not None)
    return (lambda k: (hits / n, wilson(k * hits, k * n), k * n)) if n else None


def _of_turns(metric: str, values: np.ndarray) -> _Sampled:
    quantile = _quantile(metric)
    low, high = mean_interval(values) if quantile is None else quantile_interval(values, quantile)
    value = statistic_of(metric, values)
    if value is not None:  # interpolated, it may lie beside an end that is one of few values
        low, high = min(low, value), max(high, value)
    return value, (low, high), values.size


def _quantile(metric: str) -> float | None:
    statistic = metric.rpartition("_")[2]
    return None if statistic == "mean" else float(statistic[1:]) / 100


def _counts_events(metric: str) -> bool:
    """Return whether it is a share of turns, replies or events, each a draw, and not of time, tokens or blocks."""
    said = definition(metric).definition
    return said.startswith(("share of ", "the same share")) and not said.startswith(
        ("share of the time", "share of the user's speech")
    )


def _as_they_are(target: Target, observed: Sequence[Observed], runs: tuple[float | None, ...]) -> Judgement:
    known = [value for value in runs if value is not None]
    n = sum(each.metrics.get(target.metric, {}).get("n", 0) for each in observed)
    if len(known) < len(runs) or not known:
        value = float(np.median(known)) if known else None
        return Judgement(target, INCONCLUSIVE, value, None, n, runs, "was not measured", None)
    met = sum(target.met(value) for value in known)
    verdict = PASS if met == len(known) else INCONCLUSIVE if met else FAIL
    why = f"{len(known) - met} of {len(known)} runs missed it" if verdict == INCONCLUSIVE else ""
    return Judgement(target, verdict, float(np.median(known)), None, n, runs, why, None)


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
    judgements = [judge(target, [_observed(record) for record in measured or there]) for target in targets]
    if not measured:
        why = f"is {INVALID}"
        judgements = [replace(each, verdict=INCONCLUSIVE, why=why, enough=None) for each in judgements]
    found = verdict_of(judgements)
    verdict = FAIL if failed else INCONCLUSIVE if late and found == PASS else found
    lost = [*_lost(failed, len(records)), *(_lost(late, len(records)) if verdict != FAIL else ())]
    spoilt = bool(late) or any(each.why.startswith(f"is {INVALID}") for each in judgements)
    undecided = verdict == INCONCLUSIVE and spoilt
    return LoadVerdict(verdict, tuple(judgements), tuple(lost), tuple(measured), undecided)


def load_step(
    value: float, records: Sequence[Record], repeats: Sequence[Repeat], targets: Sequence[Target]
) -> Step:
    """Return the same as a step of a search; `repeats`: of the records."""
    shown = load_verdict(records, targets).shown
    return Step(value, tuple(repeats), next(outcome for outcome, word in SHOWN.items() if word == shown))


def _observed(record: Record) -> Observed:
    late = record.metrics.get("sends_late", {}).get("value") and record.has("sends")
    return Observed(record.metrics, record.table("requests"), record.table("sends") if late else None)


def _lost(records: Sequence[Record], of: int) -> list[str]:
    if not records:
        return []
    which = "" if of == 1 else f"{len(records)} of {of} runs: "
    return [f"{which}{records[0].error}"]
