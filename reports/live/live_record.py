"""Parts of a live record that other records do not have: send delays, failures, and the sound of calls.

A point whose generator was late is INVALID: it counts as failed, and its tables stay in its folder. They are read
here all the same, because they say why.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from harness.live.endpoints.target import TargetParams
from harness.records.record import INVALID, Record
from harness.records.saved_calls import session_of
from harness.request_tables.request_table import FAILED, turn_keys
from harness.request_tables.steady_window import counted as in_window
from reports.figures.call_timeline import saved_calls
from reports.runs.measured import Cell, Measured, Run, Variant
from reports.runs.notes import reasons
from reports.runs.part import Section
from reports.tables.columns import LEFT_OUT, MISSING, live_notes
from reports.tables.labels import counted, seed_list, setting, short

DELAY_LIMIT_MS = "send_delay_limit_ms"
"""Parameter with the largest allowed send delay."""
DEFAULT_LIMIT_MS = float(TargetParams.model_fields[DELAY_LIMIT_MS].default)
"""Send delay limit, ms, of points of device sockets. Their target is made for them."""


SEND_DELAY_P50, SEND_DELAY_P99 = "send_delay_p50_s", "send_delay_p99_s"
BIAS = ("bias_p50_s", "bias_p99_s")
"""Names in a floor, see `harness.live.run.floor`: send delay; reported less true time to the first answer."""


@dataclass(frozen=True)
class Load:
    """The points of a run that differ in their seed only, one load of one variant, as far as they have live tables."""

    variant: Variant
    cell: Cell
    points: tuple[Measured, ...]

    def label(self, run: Run) -> str:
        """Return the shortest label that distinguishes it from the other loads of the run."""
        where = setting(dict(self.cell))
        named = self.variant.label if len(run.variants) > 1 or not where else ""
        return ", ".join(filter(None, [named, where]))


def busiest(run: Run) -> list[Load]:
    """Return the loads of the cell with the most concurrent sessions; INVALID ones only if no other is there."""
    all_loads = loads(run)
    counts = [load for load in all_loads if any(point.error is None for point in load.points)] or all_loads
    if not counts:
        return []
    most = [max(on_line(point).to_numpy().max(initial=0) for point in load.points) for load in counts]
    cell = counts[int(np.argmax(most))].cell
    return [load for load in counts if load.cell == cell]


def on_line(point: Measured) -> pd.Series:
    """Sessions that have begun and not ended, after each change; by time in s."""
    log = point.kinds("session_start", "session_end")
    times, change = log["t"].to_numpy(float), np.where(log["kind"] == "session_start", 1, -1)
    order = np.argsort(times, kind="stable")
    counts = pd.Series(np.cumsum(change[order]), times[order])
    return counts.groupby(level=0).last()  # one goes and the next comes at the same instant


def one(points: Sequence[Measured]) -> Measured:
    """The first that counts, else the first."""
    return next((point for point in points if point.error is None), points[0])


def all_of(points: Sequence[Measured]) -> str:
    """Return the sentence on the points of a picture in which INVALID points are shown like others."""
    late = sum(point.record.invalid for point in points)
    seeds = sorted({point.seed for point in points})
    invalidity = f", {late} of them INVALID" if late else ""
    return f"Made from {counted(len(points), 'point')}{invalidity}, {seed_list(seeds)}."


def loads(run: Run) -> list[Load]:
    """Return every load with a live record, by cell and variant, INVALID ones included."""
    return [
        Load(variant, cell, points)
        for cell in run.cells
        for variant in run.variants
        if (points := tuple(point for point in run.at(variant, cell) if point.has("sends")))
    ]


def delays_s(points: Sequence[Measured]) -> np.ndarray:
    """Return the send delays of all messages of these points, ascending, s."""
    tables = [point.record.table("sends")["send_delay_s"].to_numpy(float) for point in points]
    joined = np.concatenate(tables) if tables else np.empty(0)
    return np.sort(joined[~np.isnan(joined)])


def send_delay_limit_s(points: Sequence[Measured]) -> float | None:
    """Return the largest allowed send delay (`harness.live.validity`); None if the points disagree."""
    limits = {point.params.get(DELAY_LIMIT_MS, DEFAULT_LIMIT_MS) for point in points}
    return limits.pop() / 1000 if len(limits) == 1 else None


def floor_over(points: Sequence[Measured], name: str) -> float | None:
    """Return the median of one number of the same generator against the null server just before; None without any."""
    floors = (point.record.manifest.get("cost", {}).get("floor") or {} for point in points)
    return middle(floor.get(name) for floor in floors)


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None without any."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def main_reason(records: Sequence[Record]) -> str:
    """Return why most of the turns failed that metrics are over, and how many of them where there are other reasons;
    empty where none failed. A turn that no failure is logged of had no answer in time."""
    counts: Counter[str] = Counter()
    for record in records:
        if not (record.metrics and record.has("requests") and record.has("failures")):
            continue
        requests = in_window(record.table("requests"))
        if "status" not in requests or "turn" not in requests:
            continue
        failed = requests.loc[(requests["status"] == FAILED).to_numpy()]
        failures = record.table("failures").drop_duplicates(["session", "turn"], keep="last")
        reasons = pd.Series(failures["reason"].to_numpy(), turn_keys(failures))
        counts.update(reasons.reindex(turn_keys(failed)).fillna("no answer in time"))
        counts["silent"] += int(record.metrics.get("silent_replies", {}).get("value") or 0)
    counts = +counts
    if not counts:
        return ""
    ((reason, count),) = counts.most_common(1)
    return reason if len(counts) == 1 else f"{count} of them {reason}"


def live_section(run: Run) -> dict[str, Any] | None:
    """Return the report's section on the generator and on failures; None for a run without sockets."""
    if not run.live:
        return None
    every = loads(run)
    limit_s = send_delay_limit_s([point for load in every for point in load.points])
    return {
        "generator": generator(run),
        "failures": failures_by_reason(run),
        "loads": [load.label(run) or load.variant.label for load in every],
        "limit_ms": None if limit_s is None else f"{1000 * limit_s:g}",
        "notes": live_notes(
            {f"{name}: " if (name := load.label(run)) else "": [point.kept for point in load.points] for load in every}
        ),
        "left_out": any(point.kept.get("steady_end") is not None for point in run.points),
    }


GENERATOR = Section("live/generator.html.j2", live_section, "pictures", ("generator", "Generator"))


def generator(run: Run) -> list[dict[str, Any]]:
    """Return a row for each load: messages sent and their delay, floor and server, connections, and whether it
    counts."""
    rows = []
    for load in loads(run):
        points, delays = load.points, delays_s(load.points)
        connects = pd.concat([point.kinds("connected")["value"] for point in points]).dropna().to_numpy(float)
        lags_s = [lag_s for point in points if (lag_s := point.kept.get("server_lag_p99")) is not None]
        rows.append(
            {
                "cell": [short(value) for _, value in load.cell],
                "variant": run.variants.index(load.variant),
                "sends": f"{delays.size:,}",
                "times": [
                    *(_ms(delays, percentile) for percentile in (50, 99, 100)),
                    one_ms(floor_over(points, SEND_DELAY_P99)),
                    " / ".join(one_ms(floor_over(points, name)) for name in BIAS),
                    " / ".join(_ms(connects, percentile) for percentile in (50, 99)),
                    one_ms(max(lags_s, default=None)),
                ],
                "left_out": " / ".join(_count(points, name) for name in LEFT_OUT),
                "shed": sum(len(point.kinds("shed")) for point in points),
                "failures": sum(reasons(points).values()),
                **_verdict(points),
            }
        )
    return rows


def _verdict(points: Sequence[Measured]) -> dict[str, Any]:
    """Return the verdict on the points of a load: valid, INVALID or failed. The last two state how many of the points
    are."""
    late, lost = (sum(point.record.invalid for point in points), sum(point.error is not None for point in points))
    problems = [
        name if count == len(points) else f"{name} ({count} of {len(points)})"
        for name, count in ((INVALID, late), ("failed", lost - late))
        if count
    ]
    floor_s, limit_s = floor_over(points, SEND_DELAY_P99), send_delay_limit_s(points)
    if not problems and floor_s is not None and limit_s is not None and floor_s > limit_s:
        return {"verdict": "valid, with a late floor", "bad": True}
    return {"verdict": ", ".join(problems) or "valid", "bad": bool(problems)}


def _count(points: Sequence[Measured], metric: str) -> str:
    """Its sum over the points that have it."""
    counts = [value for point in points if (value := point.kept.get(metric)) is not None]
    return f"{sum(counts):.0f}" if counts else MISSING


def failures_by_reason(run: Run) -> list[dict[str, Any]]:
    """A row for each reason with its count at each load, the most frequent first."""
    counted = [reasons(load.points) for load in loads(run)]
    total = sum(counted, Counter())
    return [
        {"reason": reason, "counts": [each[reason] for each in counted], "total": count}
        for reason, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))
    ]


def sounds(run: Run) -> list[dict[str, str]]:
    """Return each call whose sound was kept, with the path of its file from the report."""
    return [
        {
            "label": point.point.label,
            "session": str(session_of(path)),
            "file": f"points/{point.record.folder.name}/{path.name}",
        }
        for point in run.points
        for path in saved_calls(point)
    ]


SOUNDS = Section("live/sounds.html.j2", sounds, "left-out")


def _ms(values_s: np.ndarray, percentile: float) -> str:
    return one_ms(float(np.percentile(values_s, percentile)) if values_s.size else None)


def one_ms(value_s: float | None) -> str:
    return MISSING if value_s is None else f"{1000 * value_s:,.2f}"
