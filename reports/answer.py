"""One sentence that answers what an experiment asks, with its setting: for the head of the report and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rehearsal.harness.metrics.class_definitions import in_class
from rehearsal.harness.metrics.frame_definitions import definition
from rehearsal.reports.columns import Column, class_names, column_for, shown

LOADS = {"c": "at {} {who}", "rate": "at {} a second"}
FRAME_LOADS = {"sessions": "with {} calls"}
"""What a load is, in the order of preference: who is on line at once, else how many come; of calls their number."""

MOST_NAMED = 4
"""Variants that a sentence can name; of more it names the best and the worst."""

NUMBERS = ("one seed", "two seeds", "three seeds", "four seeds", "five seeds")


class Finished(NamedTuple):
    """A point that counts, with its metrics in their own units."""

    engine: str
    params: Mapping[str, Any]
    seed: int
    values: Mapping[str, float | None]


def finished(rows: Iterable[Mapping[str, Any]]) -> list[Finished]:
    """Those of DIR/summary.json that count."""
    return [
        Finished(
            row["engine"], row["params"], row["seed"], {n: m["value"] for n, m in row["metrics"].items()}
        )
        for row in rows
        if row["status"] == "ok"
    ]


def answer(points: Sequence[Finished], axes: Sequence[str]) -> str | None:
    """At the highest load, and where users interrupt most, what each variant gave them.

    Medians over the seeds that all variants finished: others would compare different users. None where there are none.
    """
    if not points:
        return None
    framed = any("frames_with_speech" in point.values for point in points)
    loads = FRAME_LOADS if framed else LOADS
    load = next((name for name in loads if _values(points, name)), None)
    fixed = {name: max(_values(points, name)) for name in (load, "p") if name and _values(points, name)}
    points = [p for p in points if all(p.params.get(name) == value for name, value in fixed.items())]
    compared = [axis for axis in axes if len({p.params[axis] for p in points if axis in p.params}) > 1]
    variants: dict[str, dict[int, Mapping[str, float | None]]] = {}
    for point in points:
        own = (f"{axis}={_written(point.params[axis])}" for axis in compared if axis in point.params)
        variants.setdefault(" ".join([point.engine, *own]), {})[point.seed] = point.values
    metric, says = _question(points)
    seeds = {
        seed
        for seed in {point.seed for point in points}
        if all(by_seed.get(seed, {}).get(metric.metric) is not None for by_seed in variants.values())
    }
    if not seeds:
        return None
    found = {
        label: median([by_seed[seed][metric.metric] or 0.0 for seed in seeds])
        for label, by_seed in variants.items()
    }
    spoken = any(point.values.get("continuity") is not None for point in points)
    where = _setting(fixed, load, spoken)
    return f"{where}{_ranked(found, metric, says)} ({_basis(len(seeds))})."


def _question(points: Sequence[Finished]) -> tuple[Column, str]:
    """The metric that answers first what users would have felt, and what a variant does by it."""
    values = [point.values for point in points]
    columns = shown(values)
    known = {name for each in values for name, value in each.items() if value is not None}
    classes = class_names(values)
    if classes and in_class(classes[0], "ttft_in_deadline") in known:
        metric = in_class(classes[0], "ttft_in_deadline")
        return column_for(metric, columns), f"gives {{}} of {classes[0]} requests their first token in time"
    for name, says in (
        ("end_of_turn_delay_p95", "answers nineteen turns of twenty within {}"),
        ("frames_with_speech", "answers {} of frames with speech"),
        ("continuity", "plays {} of replies without a gap"),
        ("ttft_p90", "gives nine requests of ten their first token within {}"),
    ):
        if name in known:
            return column_for(name, columns), says
    first = next((column for column in columns if column.first), columns[0])
    return first, f"has {first.heading} {{}}"


def _ranked(found: Mapping[str, float], metric: Column, says: str) -> str:
    """The variants, the best first; the verb stands with the first alone."""
    better = definition(metric.metric).better
    labels = sorted(found, key=lambda label: found[label], reverse=better == "higher")
    unit = metric.unit.split()[0] if metric.unit.startswith("%") else metric.unit
    texts = {label: f"{_number(metric, found[label])} {unit}".strip() for label in labels}
    best, *others = labels
    if len(labels) > MOST_NAMED:
        rest = f", {labels[-1]} {texts[labels[-1]]}, the best and the worst of {len(labels)}"
    else:
        rest = "".join(f", {label} {texts[label]}" for label in others)
    return f"{best} {says.format(texts[best])}{rest}"


def _number(metric: Column, value: float) -> str:
    text = metric.text(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _setting(fixed: Mapping[str, Any], load: str | None, spoken: bool) -> str:
    parts = []
    if load is not None:
        words = {**LOADS, **FRAME_LOADS}[load]
        parts.append(words.format(f"{fixed[load]:g}", who="callers" if spoken else "users"))
    if spoken and "p" in fixed:
        share = fixed["p"]
        parts.append(f"{100 * share:g} % interrupting" if share else "nobody interrupting")
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}, " if text else ""


def _written(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _basis(seeds: int) -> str:
    if seeds == 1:
        return NUMBERS[0]
    return f"median of {NUMBERS[seeds - 1] if seeds <= len(NUMBERS) else f'{seeds} seeds'}"


def _values(points: Iterable[Finished], name: str) -> set[Any]:
    return {point.params[name] for point in points if point.params.get(name) is not None}
