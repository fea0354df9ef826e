"""One sentence that answers what an experiment asks, with its setting: for the head of the report and the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from harness.metrics.metric_name import in_class
from harness.metrics.vocabulary import definition
from reports.tables.columns import OVER_RUN, Column, class_names, column_for, fewest, least_events, shown, spoken

LOADS = {"c": "at {} {who}", "rate": "at {} a second"}
FRAME_LOADS = {"sessions": "with {} calls"}
"""Parameter of a load -> its words, in the order of preference: the number present at once, else the number that come.
Calls count by their number."""

MOST_NAMED = 4
"""Variants that a sentence can name; of more it names the best and the worst."""

NUMBERS = ("one seed", "two seeds", "three seeds", "four seeds", "five seeds")


class Finished(NamedTuple):
    """A point that counts, with its metrics in their own units."""

    engine: str
    params: Mapping[str, Any]
    seed: int
    values: Mapping[str, float | None]
    n: Mapping[str, int] = {}
    """Events behind each."""


@dataclass(frozen=True)
class Answer:
    """The service of every variant at one setting, as a sentence, tiles and a chart."""

    sentence: str
    fixed: Mapping[str, Any]
    """Load and share of interruptions, by the names of their parameters."""
    load: str | None
    """Parameter of the load."""
    column: Column
    """Column of the metric that users feel first."""
    variants: Mapping[str, Mapping[int, Finished]]
    """Label -> seed -> its point at that setting; the best variant first."""
    seeds: Sequence[int]
    """The seeds in which every variant has the metric."""

    @property
    def named(self) -> list[str]:
        """The variants that a sentence has room for, the best first."""
        labels = [*self.variants]
        return labels if len(labels) <= MOST_NAMED else [labels[0], labels[-1]]

    def by_seed(self, label: str, metric: str) -> dict[int, float | None]:
        """Returns the values of the seeds that all variants share."""
        return {seed: self.variants[label][seed].values.get(metric) for seed in self.seeds}

    def events(self, label: str, metric: str) -> int | None:
        """Return the number of events behind the median over these seeds; see `fewest`."""
        points = (self.variants[label][seed] for seed in self.seeds)
        return fewest((point.values.get(metric), point.n.get(metric, 0)) for point in points)


def answer(points: Sequence[Finished], axes: Sequence[str]) -> str | None:
    """The sentence of `find_answer`."""
    result = find_answer(points, axes)
    return None if result is None else result.sentence


def find_answer(points: Sequence[Finished], axes: Sequence[str]) -> Answer | None:
    """Return the service of each variant at the highest load and the highest share of interruptions.

    Medians over the seeds that all variants finished: others would compare different users. None if there is no such
    seed.
    """
    if not points:
        return None
    framed = any("frames_with_speech" in point.values for point in points)
    loads = FRAME_LOADS if framed else LOADS
    load = next((name for name in loads if _values(points, name)), None)
    spoken = any(point.values.get("continuity") is not None for point in points)
    names = (load, "p") if spoken else (load,)  # replies in text are not interrupted
    fixed = {name: max(_values(points, name)) for name in names if name and _values(points, name)}
    at = [p for p in points if all(p.params.get(name) == value for name, value in fixed.items())]
    variants: dict[str, dict[int, Finished]] = {}
    for point, label in zip(at, labels(at, axes), strict=True):
        variants.setdefault(label, {})[point.seed] = point
    column, says = _question(at, variants)
    seeds = sorted(
        seed
        for seed in {point.seed for point in at}
        if all(seed in by_seed and by_seed[seed].values.get(column.metric) is not None for by_seed in variants.values())
    )
    if not seeds:
        return None
    medians = {
        label: median([by_seed[seed].values[column.metric] or 0.0 for seed in seeds])
        for label, by_seed in variants.items()
    }
    order = sorted(medians, key=lambda label: medians[label], reverse=definition(column.metric).better == "higher")
    where = _setting(fixed, load, spoken)
    ranking = _ranked({label: medians[label] for label in order}, column, says)
    sentence = f"{where}{ranking} ({_basis(len(seeds))})."
    return Answer(sentence, fixed, load, column, {label: variants[label] for label in order}, seeds)


def labels(points: Sequence[Finished], axes: Sequence[str]) -> list[str]:
    """Return the label of each point among the others: its engine, and its values of the axes in which they differ."""
    compared = [axis for axis in axes if len({p.params[axis] for p in points if axis in p.params}) > 1]
    return [
        " ".join([p.engine, *(f"{axis}={_written(p.params[axis])}" for axis in compared if axis in p.params)])
        for p in points
    ]


ALIKE = 0.05
"""Relative difference between best and worst up to which variants are alike. [chosen]"""


def _question(points: Sequence[Finished], variants: Mapping[str, Mapping[int, Finished]]) -> tuple[Column, str]:
    """The metric that answers first what users would have felt, and what a variant does by it. Where the variants are
    alike in that, the one in which they differ most."""
    usual, says = _usual_question(points)
    if len(variants) < 2 or _apart(usual.metric, variants) > ALIKE:
        return usual, says
    columns = [
        column
        for column in shown([point.values for point in points])
        if column not in OVER_RUN
        and (column.unit.startswith("%") or least_events(column.metric) > 1)
        and _apart(column.metric, variants, True) > ALIKE
    ]
    if not columns:
        return usual, says
    largest = max(columns, key=lambda column: _apart(column.metric, variants))
    return largest, f"has the best {spoken(largest)}, {{}}"


def _apart(metric: str, variants: Mapping[str, Mapping[int, Finished]], every_seed: bool = False) -> float:
    """Return the relative difference between the medians of the best and the worst variant. 0 if a variant lacks the
    metric or it has no better direction and, for `every_seed`, if one seed disagrees."""
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in variants.values())))
    values = [[by_seed[seed].values.get(metric) for seed in seeds] for by_seed in variants.values()]
    measured = [[value for value in each if value is not None] for each in values]
    if not seeds or definition(metric).better is None or any(len(each) < len(seeds) for each in measured):
        return 0.0
    low, *_, high = sorted(measured, key=median)
    if every_seed and not all(x < y for x, y in zip(low, high, strict=True)):
        return 0.0
    return (median(high) - median(low)) / (max(abs(median(high)), abs(median(low))) or 1.0)


def _usual_question(points: Sequence[Finished]) -> tuple[Column, str]:
    """The metric by the kind of run."""
    values = [point.values for point in points]
    columns = shown(values)
    names = {name for each in values for name, value in each.items() if value is not None}
    classes = class_names(values)
    if classes and in_class(classes[0], "ttft_in_deadline") in names:
        metric = in_class(classes[0], "ttft_in_deadline")
        return column_for(metric), f"gives {{}} of {classes[0]} requests their first token in time"
    for name, says in (
        ("end_of_turn_delay_p95", "answers nineteen turns of twenty within {}"),
        ("frames_with_speech", "answers {} of frames with speech"),
        ("continuity", "plays {} of replies without a gap"),
        ("ttft_p90", "gives nine requests of ten their first token within {}"),
    ):
        if name in names:
            return column_for(name), says
    first = next((column for column in columns if column.first), columns[0])
    return first, f"has {first.heading} {{}}"


def _ranked(medians: Mapping[str, float], metric: Column, says: str) -> str:
    """Return the variants as text, the best first; the verb follows the first alone."""
    texts = {label: metric.with_unit(value) for label, value in medians.items()}
    best, *others = medians
    if others and len(set(texts.values())) == 1:
        *some, last = others
        does = "so do" if some else "so does"
        return f"{best} {says.format(texts[best])}, and {does} {' and '.join(filter(None, [', '.join(some), last]))}"
    if len(medians) > MOST_NAMED:
        rest = f", {others[-1]} {texts[others[-1]]}, the best and the worst of {len(medians)}"
    else:
        rest = "".join(f", {label} {texts[label]}" for label in others)
    return f"{best} {says.format(texts[best])}{rest}"


def _setting(fixed: Mapping[str, Any], load: str | None, spoken: bool) -> str:
    parts = []
    if load is not None:
        words = {**LOADS, **FRAME_LOADS}[load]
        who = ("caller" if spoken else "user") + ("s" if fixed[load] != 1 else "")
        parts.append(words.format(f"{fixed[load]:g}", who=who))
    if "p" in fixed:
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
