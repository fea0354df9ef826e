"""The verdict on a live run: PASS, FAIL or INCONCLUSIVE for each load and target, and one sentence for all.

All loads together PASS when each one does, FAIL when one does, and are INCONCLUSIVE otherwise: a user who names a
load asks whether the server can handle it. A search asks for a number instead: it passes when it found one.

The targets and the verdict are stored in DIR/verdict.json; a report judges the records again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import exit_status
from harness.live.live_slo import Asked, counted_as, default_targets, served
from harness.live.verdict import Judgement, LoadVerdict, load_verdict, span
from harness.metrics.replies import FAILED_SHARE
from harness.metrics.stats import MIN_FOR_INTERVAL
from harness.records.record import INVALID
from harness.slo.goodput import goodput_rps
from harness.slo.search import SHOWN, Search, Step
from harness.slo.targets import FAIL, INCONCLUSIVE, PASS, Target, Verdict, name_of, needed, number
from reports.live.live_connection import connection_notes, limit_notes
from reports.live.live_goodput import goodput_notes
from reports.live.live_prompts import prompt_notes
from reports.live.live_record import main_reason, middle
from reports.runs.measured import Cell, Run
from reports.runs.part import Section
from reports.tables.columns import MISSING
from reports.tables.labels import counted, setting
from reports.tables.labels import short as short_name
from reports.tables.plain_tables import grid
from workloads.generators.content import speech_source

EXIT = {PASS: exit_status.OK, FAIL: exit_status.FAIL, INCONCLUSIVE: exit_status.UNDECIDED}
"""Exit status of the command for each verdict."""
MET = "met"
_STYLES = {PASS: "green", FAIL: "red", INCONCLUSIVE: "yellow"}
STEP_S, SPARE = 5.0, 1.05
"""Proposed durations are multiples of the first and longer by the second, because turns differ. [chosen]"""


@dataclass(frozen=True)
class Load:
    """All runs of one load, in words."""

    amount: float
    """Calls at once, or calls a second."""
    name: str
    """`16 calls`."""
    short: str
    """The name without its unit, `16`, if nothing else distinguishes the loads."""
    result: LoadVerdict
    on_line: float | None
    """Mean number of concurrent sessions in the steady window."""
    duration_s: float | None = None
    """Length of each run as it was asked for, s."""
    reason: str = ""
    """The main reason of its failed turns; empty where none failed."""
    goodput_rps: float | None = None
    """Turns a second that met every target of single turns."""
    parts: str = ""
    """The parts of the wait: `medians: end of turn 2,500 + answer 310 ms`; empty where the server reports none."""

    @property
    def verdict(self) -> Verdict:
        return self.result.verdict

    @property
    def decided_by_s(self) -> float | None:
        """Return the duration with enough turns, if further turns are like the measured ones; None if no duration is
        known."""
        factors = [_times(each) for each in self.result.undecided]
        if self.result.lost or self.duration_s is None or not factors or None in factors:
            return None
        times = SPARE * max(each for each in factors if each is not None)
        return STEP_S * math.ceil(self.duration_s * times / STEP_S)

    def summary(self) -> str:
        """Return the reason why it does not pass, such as `7 turns, 73 needed`, or the values with which it does."""
        if self.result.lost:
            return self.result.lost[0]
        judged = self.result.judgements
        failed = [each for each in judged if each.target.metric == FAILED_SHARE and each.value]
        of = [each for each in judged if self.verdict in (PASS, each.verdict)]
        if self.verdict == INCONCLUSIVE:
            of = self.result.undecided
            if spoilt := [each for each in of if each.invalid and each.why]:  # more turns would not help
                return ", ".join(map(self._judgement_text, [*spoilt, *failed]))
            few = [(n, each.n) for each in of if (n := needed(each.target)) is not None and each.n < n]
            if few:
                least, n = max(few)
                parts = [f"{counted(n, 'turn')}, {least} needed", *map(self._judgement_text, failed)]
                return ", ".join(parts)
        # Failures are named whenever there are any, and only then.
        named = [each for each in of if each.target.metric != FAILED_SHARE]
        return ", ".join(map(self._judgement_text, [*named, *failed]))

    def _judgement_text(self, judgement: Judgement) -> str:
        """`P90 TTFP 236 ms ≤ 800 ms`."""
        target, named = judgement.target, name_of(judgement.target.metric)
        if judgement.value is None:
            return f"{named} {judgement.why}"
        value = f"{named} {number(target.metric, judgement.value)}"
        if target.metric == FAILED_SHARE:
            failed = round(judgement.value * judgement.n)
            value += f" ({failed} of {judgement.n}{self.reason and f': {self.reason}'})"
        if judgement.verdict == PASS:
            return f"{value} {target.asked}"
        if judgement.verdict == FAIL:
            parts = f" ({self.parts})" if self.parts and target.metric.startswith("audio_ttfp_") else ""
            return f"{value}{parts}, not {target.asked}"
        if judgement.invalid:
            return f"{value}: {INVALID}, {judgement.why}" if judgement.why else f"{value}: {INVALID}"
        return f"{value}{', but' if judgement.why.endswith('missed it') else ''} {judgement.why}"

    def as_dict(self) -> dict[str, Any]:
        """Return the load as plain data for JSON."""
        return {
            "load": self.name,
            "amount": self.amount,
            "verdict": self.verdict,
            "invalid": self.result.invalid,
            "on_line": self.on_line,
            "goodput_rps": self.goodput_rps,
            "runs": len(self.result.measured),
            "lost": list(self.result.lost),
            "targets": [each.as_dict() for each in self.result.judgements],
        }


@dataclass(frozen=True)
class LiveVerdict:
    """The verdict of all loads. `search`: the result of `--find`, which stands for all loads."""

    url: str
    asked: Asked
    default_for: str | None
    """Kind of service whose default targets apply; None if targets were given."""
    loads: tuple[Load, ...]
    search: Search | None
    speech: str | None = None
    """The callers' speech (`workloads.generators.content.speech_source`); None where nobody speaks."""
    users: tuple[str, ...] = ()
    """Sentences on the connections, on the users, and on the prompts that a cache of the server held."""
    measured: str = ""
    """Time of the measurement and build of the server: `2026-11-26 21:40 UTC, server build abc`."""

    @property
    def verdict(self) -> Verdict:
        if self.search is not None:
            return self.search.verdict
        verdicts = {load.verdict for load in self.loads}
        return FAIL if FAIL in verdicts else INCONCLUSIVE if INCONCLUSIVE in verdicts or not verdicts else PASS

    @property
    def held(self) -> Load | None:
        """The largest load that passes."""
        return max((load for load in self.loads if load.verdict == PASS), key=lambda load: load.amount, default=None)

    @property
    def sentence(self) -> str:
        """`FAIL: URL cannot handle 32 calls: P90 TTFP 1,250 ms, not ≤ 800 ms; 16 calls: PASS.`"""
        if self.search is not None:
            return f"{self.verdict}: {self.url} {self.search.answer}"
        if self.verdict == INCONCLUSIVE:
            return self._inconclusive()
        if self.verdict == FAIL:
            first, *more = [load for load in self.loads if load.verdict == FAIL]
            others = [f"{load.short}: {FAIL}, {load.summary()}" for load in more] + self._others(FAIL)
            return _whole(
                "; ".join([f"{FAIL}: {self.url} cannot handle {first.name}: {first.summary().rstrip('.')}", *others])
            )
        held = self.held
        assert held is not None, "every load passes"
        most = "at least " if len(self.loads) > 1 else ""
        why = ", the most that were tried" if most else ""
        return f"{PASS}: {self.url} can handle {most}{held.name}{why}: {held.summary()}."

    def _inconclusive(self) -> str:
        """`INCONCLUSIVE at 4 calls: 7 turns, 73 needed; --duration 330 decides it.`"""
        open_loads = [load for load in self.loads if load.verdict == INCONCLUSIVE]
        if not open_loads:
            return f"{INCONCLUSIVE}: nothing was measured."
        parts = [f"at {load.name}: {load.summary().rstrip('.')}" for load in open_loads]
        wanted = [load.decided_by_s for load in open_loads if not load.result.lost]
        if wanted and None not in wanted:
            parts.append(f"--duration {max(s for s in wanted if s is not None):g} decides it")
        return _whole("; ".join([f"{INCONCLUSIVE} {parts[0]}", *parts[1:], *self._others(INCONCLUSIVE)]))

    def _others(self, verdict: Verdict) -> list[str]:
        """The loads with other verdicts."""
        return [f"{load.short}: {load.result.shown}" for load in self.loads if load.verdict != verdict]

    @property
    def notes(self) -> list[str]:
        """Return notes on the basis of the verdict, and on its limits."""
        notes = []
        if self.default_for is not None:
            targets = ", ".join(map(str, self.asked.targets))
            notes.append(f"No --slo was given: {targets} is the default for {self.default_for}.")
        runs = max((len(load.result.measured) for load in self.loads), default=0)
        if runs > 1:
            notes.append("Values are over the turns of all runs together; other tables have medians of runs.")
        if runs == 1:
            notes.append(
                "One run of each load: the interval covers chance between its turns, not how far another "
                f"run would differ; --repeats {MIN_FOR_INTERVAL} shows that."
            )
        notes += goodput_notes([(load.name, load.short, load.goodput_rps) for load in self.loads])
        notes += self.users
        if self.speech is not None:
            other = "" if self.speech == "recordings" else ", and no recordings; --audio DIR plays yours"
            notes.append(f"Callers spoke {'' if self.speech == 'recordings' else 'with '}{self.speech}{other}.")
        close = [
            load.name
            for load in self.loads
            if not load.result.lost and not load.result.invalid and any(map(_close, load.result.undecided))
        ]
        if close:
            notes.append(f"At {close[0]} it is so close to the target that many more turns would not decide it.")
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data for JSON."""
        held = self.held
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "measured": self.measured,
            "holds": held.amount if self.search is None and held else self.search and self.search.holds,
            "targets": [str(target) for target in self.asked.targets],
            "targets_given": self.asked.given,
            "loads": [load.as_dict() for load in self.loads],
            "notes": self.notes,
        }

    def write(self, folder: Path) -> None:
        """DIR/verdict.json."""
        self.asked.write(folder, self.as_dict())


def live_verdict(run: Run, asked: Asked | None = None) -> LiveVerdict | None:
    """Return the verdict on the points of a live run; None for other runs, and if there are no targets.

    `asked`: default: the targets in its directory, else those of its search, else the default of its kind of service.
    """
    if run.experiment.device != "live" or not run.points:
        return None
    given, search, what = _asked(run, asked)
    if not given.targets:
        return None
    loads = sorted((_load(run, cell, what, given) for cell in run.cells), key=lambda load: load.amount)
    url = str(run.experiment.set.get("url", "the endpoint"))
    speech = speech_source(run.points[0].record.trace()) if run.points[0].record.metrics else None
    default_for = None if given.given else what
    users = (*connection_notes(run.experiment.set), *limit_notes(run), *prompt_notes(run))
    return LiveVerdict(url, given, default_for, tuple(loads), search, speech, users, _measured(run))


def targets(run: Run) -> tuple[Target, ...]:
    """Return the targets that a live run is judged by; none of other runs."""
    return _asked(run)[0].targets if run.experiment.device == "live" and run.points else ()


def _asked(run: Run, asked: Asked | None = None) -> tuple[Asked, Search | None, str | None]:
    """Return the targets, the search if they are its own, and the kind of service."""
    searches, given = run.searches, asked or Asked.read(run.folder)
    search = None if searches is None else searches.searched[0]
    if search is not None and (given is None or given.targets == search.question.targets):
        given = Asked(search.question.targets, True)
    else:
        search = None
    what = _served(run)
    if given is None or not given.given:
        given = Asked(default_targets(what))
    return given, search, what


def _measured(run: Run) -> str:
    """Return the time of its first point, and the server's build if the user named it."""
    begun = min(str(point.record.manifest.get("started", "")) for point in run.points)
    try:
        when = datetime.fromisoformat(begun).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        when = "at a time that is not known"
    label = run.experiment.label
    return f"{when}, server build {label}" if label else when


def _served(run: Run) -> str | None:
    """Return the kind of service, by the measured metrics: an endpoint that was spoken to may answer in text."""
    what = served(run.experiment)
    metrics = {name for point in run.points for name, value in point.kept.items() if value is not None}
    return "text" if what == "voice" and "audio_ttfp_p50" not in metrics and "ttft_p50" in metrics else what


def _load(run: Run, cell: Cell, what: str | None, asked: Asked) -> Load:
    points = [point for point in run.points if point.cell == cell]
    result = load_verdict([point.record for point in points], asked.targets)
    on_line = middle(each.metrics["on_line_mean"]["value"] for each in result.measured)
    params = points[0].params
    seconds = next((params[each] for each in ("stop_after_s", "duration_s") if params.get(each)), None)
    reason = main_reason([point.record for point in points])
    parts = [middle(p.kept.get(f"{part}_p50") for p in points) for part in ("end_of_turn", "answer")]
    wait = ""
    if None not in parts:
        end_of_turn, answer = (number("answer_p50", part or 0.0, unit=False) for part in parts)
        wait = f"medians: end of turn {end_of_turn} + answer {answer} ms"
    good = middle(goodput_rps(each, asked.targets) for each in result.measured)
    return Load(*_named(dict(cell), what, params.get("most")), result, on_line, seconds, reason, good, wait)


def _named(cell: dict[str, Any], what: str | None, most: int | None = None) -> tuple[float, str, str]:
    """Return the amount of the load, and its long and short name."""
    axis = next((name for name in ("rate", "c", "sessions") if name in cell), None)
    if axis is None and "path" in cell:  # loads that another tool put on, by their names
        name = short_name(cell["path"])
        return 0.0, name, name
    amount = 0.0 if axis is None else float(cell.pop(axis))
    one = counted_as(what, axis)
    name = f"{amount:g} {one}{'' if amount == 1 else 's'}{' a second' if axis == 'rate' else ''}"
    name = "the recorded times" if axis is None else name + (f" with at most {most} at once" if most else "")
    short = name if cell or axis is None else f"{amount:g}"
    more = f", {setting(cell)}" if cell else ""
    return amount, name + more, short + more


def _whole(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _times(judgement: Judgement) -> float | None:
    """Return the factor of turns that decides it, if they are like the measured ones. None: no reasonable number
    would, or there was no turn."""
    least = needed(judgement.target)
    if least is not None and 0 < judgement.n < least:
        return max(least / judgement.n, judgement.enough or 1)
    return judgement.enough


def _close(judgement: Judgement) -> bool:
    """Return whether many more turns like these would not decide it."""
    enough = judgement.n >= (needed(judgement.target) or 1)
    return judgement.interval is not None and enough and judgement.enough is None


def rows(verdict: LiveVerdict) -> list[dict[str, Any]]:
    """Return a table row for each load and target, as text; values of the load are in its first row."""
    table = []
    for load in verdict.loads:
        of_load = {
            "load": load.name,
            "on_line": MISSING if load.on_line is None else f"{load.on_line:.1f}",
            "lost": [why for why in load.result.lost if why.rstrip(".") not in verdict.sentence],
        }
        for each in load.result.judgements:
            of_target = {
                "target": str(each.target),
                "metric": each.target.metric,
                "value": MISSING if each.value is None else number(each.target.metric, each.value),
                "interval": MISSING if each.interval is None else span(each.target.metric, each.interval),
                "n": f"{each.n:,}",
                "verdict": _shown(load, each),
                "why": "" if each.why in verdict.sentence else each.why,
            }
            table.append(of_load | of_target)
            of_load = {"load": "", "on_line": "", "lost": ()}
    return table


def _shown(load: Load, judgement: Judgement) -> str:
    """Return the word of a target's row. PASS and FAIL are words of a load: a target that is met under another verdict
    is only met."""
    if judgement.invalid:
        return INVALID
    return MET if judgement.verdict == PASS and load.verdict != PASS else judgement.verdict


def show_verdict(console: Console, verdict: LiveVerdict) -> None:
    """Print the sentence, then its basis: tables and notes."""
    console.print(Text(verdict.sentence, f"bold {_STYLES[verdict.verdict]}"), soft_wrap=True)
    console.print(Text(f"Measured {verdict.measured}.", "dim"), soft_wrap=True)
    if verdict.search is not None:
        console.print(_search_table(verdict.search))
    console.print(_table(verdict))
    for note in verdict.notes:
        console.print(Text(note, "dim"), soft_wrap=True)


def _table(verdict: LiveVerdict) -> Table:
    """A row for each load and target."""
    names = ("load", "on_line", "target", "value", "interval", "n")
    cells = [(*(row[name] for name in names), _word(row["verdict"])) for row in rows(verdict)]
    headings = ("load", "users", "target", "measured", "95 % interval", "n", "")
    table = grid(headings, cells, 1, box=SIMPLE_HEAD, collapse_padding=True)
    table.columns[2].justify = table.columns[6].justify = "left"
    return table


def _search_table(search: Search) -> Table:
    """Each number that was tried, with every repeat, and whether it passed."""
    question = search.question

    def texts(step: Step) -> Iterator[str]:
        for index, target in enumerate(question.targets):
            values = (repeat.values[index] for repeat in step.repeats)
            yield ", ".join(MISSING if v is None else number(target.metric, v, unit=False) for v in values)

    cells = [(f"{step.value:g}", *texts(step), _word(SHOWN[step.verdict])) for step in search.steps]
    table = grid([f"{question.counts}s", *map(str, question.targets), ""], cells, 0, box=SIMPLE_HEAD)
    table.columns[-1].justify = "left"
    return table


def _word(verdict: str) -> Text:
    return Text(verdict, _STYLES.get(verdict, "yellow"))


def capacity(run: Run) -> dict[str, Any] | None:
    """Return the numbers that were tried; None without a search."""
    if run.searches is None or not run.searches.question.counts:
        return None
    question, (one, *_) = run.searches.question, run.searches.searched
    rows = [
        (step, [_over_repeats(step, index, target) for index, target in enumerate(question.targets)])
        for step in one.steps
    ]
    return {"counts": question.counts, "headings": list(map(str, question.targets)), "rows": rows}


def _over_repeats(step: Step, index: int, target: Target) -> tuple[str, str]:
    """A target's median and its range."""
    values = sorted(value for repeat in step.repeats if (value := repeat.values[index]) is not None)
    if not values:
        return MISSING, ""
    low, middle, high = (number(target.metric, value) for value in (values[0], median(values), values[-1]))
    return middle, f"{low} to {high}" if len(values) > 1 else ""


CAPACITY = Section("live/capacity.html.j2", capacity, "search", ("capacity", "How many calls"))
