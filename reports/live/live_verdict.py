"""The verdict on a live run: of each load and target PASS, FAIL or INCONCLUSIVE, and of all together one sentence.

All loads together PASS when each one does, FAIL when one does, and are INCONCLUSIVE otherwise: whoever names a load
asks whether it is held. A search asks for a number instead: it passes when it found one.

What was asked is kept beside the points, DIR/verdict.json, with what came out; a report judges the records again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harness.live.capacity import Capacity, answer
from harness.live.live_slo import default_targets, served
from harness.metrics.stats import MIN_FOR_INTERVAL
from harness.records.record import write_json
from harness.slo.judgement import FAIL, INCONCLUSIVE, PASS, Judgement, Observed, Verdict, judge, span
from harness.slo.targets import Target, name_of, number
from reports.cost.usage import per_call_minute
from reports.figures.live_capacity import load_capacity
from reports.figures.picture import counted, setting
from reports.figures.picture import short as short_name
from reports.live.live_record import invalid
from reports.runs.measured import Cell, Measured, Run
from reports.tables.columns import MISSING
from workloads.errors import UserError

VERDICT = "verdict.json"
EXIT = {PASS: 0, FAIL: 1, INCONCLUSIVE: 3}
"""Status of the command; 2 is a wrong word."""
MOST_REPEATS = 10
"""More than so many runs are not proposed, but a longer one. [chosen]"""


@dataclass(frozen=True)
class Asked:
    """`given`: the targets are the user's own. `price`: of the whole server, an hour."""

    targets: tuple[Target, ...]
    given: bool = False
    price: float | None = None

    def write(self, folder: Path, more: dict[str, Any] | None = None) -> None:
        """DIR/verdict.json."""
        targets = [{"metric": t.metric, "op": t.op, "bound": t.bound} for t in self.targets]
        data = {"schema_version": 1, "asked": {"targets": targets, "given": self.given, "price": self.price}}
        write_json(folder / VERDICT, {**data, **(more or {})})

    @classmethod
    def read(cls, folder: Path) -> Asked | None:
        """What was asked of a results directory; None where nobody said. UserError for a damaged file."""
        path = folder / VERDICT
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text())["asked"]
            return cls(tuple(Target(**each) for each in data["targets"]), data["given"], data["price"])
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{path} is damaged; delete it, and give --slo again.") from None


@dataclass(frozen=True)
class LoadVerdict:
    """All runs of one load."""

    amount: float
    """Calls at once, or calls a second."""
    name: str
    """`16 calls`."""
    short: str
    """Without what is counted, `16`, where nothing else tells loads apart."""
    verdict: Verdict
    judgements: tuple[Judgement, ...]
    on_line: float | None
    """Sessions on line in the steady window, on average."""
    price_per_minute: float | None
    """Of one call, in the currency of `--price`."""
    runs: int
    """Runs that count."""
    lost: tuple[str, ...]
    """Why runs do not count: the server failed, or a machine was too slow."""

    def told(self) -> str:
        """Why it does not pass, or with what it does."""
        if self.lost:
            return self.lost[0]
        return ", and ".join(_said(each) for each in self.judgements if self.verdict in (PASS, each.verdict))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "load": self.name,
            "amount": self.amount,
            "verdict": self.verdict,
            "on_line": self.on_line,
            "price_per_call_minute": self.price_per_minute,
            "runs": self.runs,
            "lost": list(self.lost),
            "targets": [each.as_dict() for each in self.judgements],
        }


@dataclass(frozen=True)
class LiveVerdict:
    """`search`: what `--find` found, whose answer stands for all loads."""

    url: str
    asked: Asked
    default_for: str | None
    """What the targets are the default of; None where they were given."""
    loads: tuple[LoadVerdict, ...]
    search: Capacity | None
    duration_s: float | None = None
    """Of each run, as it was asked for."""

    @property
    def verdict(self) -> Verdict:
        if self.search is not None:
            return self.search.verdict
        found = {load.verdict for load in self.loads}
        return FAIL if FAIL in found else INCONCLUSIVE if INCONCLUSIVE in found or not found else PASS

    @property
    def held(self) -> LoadVerdict | None:
        """The largest load that passes."""
        return max(
            (load for load in self.loads if load.verdict == PASS),
            key=lambda load: load.amount,
            default=None,
        )

    @property
    def sentence(self) -> str:
        """`FAIL: holds 16 calls: PASS; 32: FAIL, P90 TTFP 1,250 ms, not ≤ 800 ms.`, of the endpoint."""
        if self.search is not None:
            return f"{self.verdict}: {self.url} {answer(self.search)}"
        return f"{self.verdict}: {self.url} {self._loads()}"

    def _loads(self) -> str:
        held = self.held
        others = [load for load in self.loads if load.verdict != PASS]
        if held is not None and not others:
            most = " at least, the most that were tried" if len(self.loads) > 1 else ""
            return f"holds {held.name}{most}: {held.told()}."
        if held is None and len(others) == 1:
            words = "does not hold" if others[0].verdict == FAIL else "may or may not hold"
            return f"{words} {others[0].name}: {_whole(others[0].told())}"
        why = [f"{load.verdict}, {load.told()}" for load in others]
        told = [f"{load.short}: {each}" for load, each in zip(others, why, strict=True)]
        if held is not None:
            return _whole("; ".join([f"holds {held.name}: {PASS}", *told]))
        return _whole("; ".join([f"at {others[0].name}: {why[0]}", *told[1:]]))

    @property
    def notes(self) -> list[str]:
        """What the verdict rests on, what it cannot say, and what would mend that."""
        notes = []
        if self.default_for is not None:
            targets = ", ".join(map(str, self.asked.targets))
            notes.append(f"No --slo was given: {targets} is the default for {self.default_for}.")
        if max((load.runs for load in self.loads), default=0) == 1:
            notes.append(
                "One run of each load: an interval says what chance may have done to its turns, not how far another "
                f"run would differ; --repeats {MIN_FOR_INTERVAL} tells."
            )
        if self.search is not None:
            notes.append(
                "A search takes each number by what was measured; the intervals say how sure that is."
            )
        elif self.verdict == INCONCLUSIVE:
            notes += _mend(self.loads, self.duration_s)
        return notes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        held = self.held
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
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
    """The verdict on the points of a live run; None for any other, and where there is nothing to judge by.

    `asked`: default: what its directory says, else the targets of a search there, else the default of what it serves.
    """
    if run.experiment.device != "live" or not run.points:
        return None
    search, given = load_capacity(run), asked or Asked.read(run.folder)
    if search is not None and (given is None or given.targets == search.targets):
        given = Asked(search.targets, True, given.price if given else None)
    else:
        search = None
    what = _served(run)
    if given is None or not given.given:
        given = Asked(default_targets(what), False, given.price if given else None)
    if not given.targets:
        return None
    loads = sorted((_load(run, cell, what, given) for cell in run.cells), key=lambda load: load.amount)
    known = run.experiment.set
    duration_s = next((known[name] for name in ("stop_after_s", "duration_s") if name in known), None)
    url = str(known.get("url", "the endpoint"))
    return LiveVerdict(url, given, None if given.given else what, tuple(loads), search, duration_s)


def _served(run: Run) -> str | None:
    """What it serves, by what was measured: an endpoint that was spoken to may answer in text."""
    what = served(run.experiment)
    known = {name for point in run.points for name, value in point.kept.items() if value is not None}
    return "text" if what == "voice" and "audio_ttfp_p50" not in known and "ttft_p50" in known else what


def _load(run: Run, cell: Cell, what: str | None, asked: Asked) -> LoadVerdict:
    points = [point for point in run.points if point.cell == cell]
    measured = [p for p in points if not invalid(p) and p.record.metrics and p.has("requests")]
    observed = [Observed(p.record.metrics, p.record.table("requests")) for p in measured]
    judgements = tuple(judge(target, observed) for target in asked.targets)
    failed = [point for point in points if point.error is not None and not invalid(point)]
    late = [point for point in points if invalid(point)]
    found = {each.verdict for each in judgements}
    verdict: Verdict = (
        FAIL if failed or FAIL in found else INCONCLUSIVE if late or INCONCLUSIVE in found else PASS
    )
    online = [value for p in measured if (value := p.kept.get("on_line_mean")) is not None]
    on_line = median(online) if online else None
    amount, name, short = _named(dict(cell), what)
    lost = [*_lost(failed, len(points)), *(_lost(late, len(points)) if FAIL not in found else ())]
    price = per_call_minute(asked.price, on_line)
    return LoadVerdict(amount, name, short, verdict, judgements, on_line, price, len(measured), tuple(lost))


def _lost(points: Sequence[Measured], of: int) -> list[str]:
    if not points:
        return []
    which = "" if of == 1 else f"{len(points)} of {of} runs: "
    return [f"{which}{points[0].error}"]


def _named(cell: dict[str, Any], what: str | None) -> tuple[float, str, str]:
    """How much load it is, and in words, long and short."""
    axis = next((name for name in ("rate", "c", "sessions") if name in cell), None)
    if axis is None and "path" in cell:  # loads that another tool put on, by their names
        name = short_name(cell["path"])
        return 0.0, name, name
    amount = 0.0 if axis is None else float(cell.pop(axis))
    one = "call" if what != "text" else "request" if axis == "rate" else "user"
    name = f"{amount:g} {one}{'' if amount == 1 else 's'}{' a second' if axis == 'rate' else ''}"
    short = name if cell else f"{amount:g}"
    documents = cell.pop("batch", None)
    if documents is not None:
        name = short = f"{name} beside {counted(documents, 'document')}"
    more = f", {setting(cell)}" if cell else ""
    return amount, name + more, short + more


def _said(judgement: Judgement) -> str:
    """`P90 TTFP 236 ms ≤ 800 ms`."""
    target, named = judgement.target, name_of(judgement.target.metric)
    if judgement.value is None:
        return f"{named} {judgement.why}"
    value = f"{named} {number(target.metric, judgement.value)}"
    if judgement.verdict == PASS:
        return f"{value} {target.asked}"
    if judgement.verdict == FAIL:
        return f"{value}, not {target.asked}"
    return f"{value} {judgement.why}"


def _whole(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _mend(loads: Sequence[LoadVerdict], duration_s: float | None) -> list[str]:
    """What would make loads conclusive that want turns, if further ones are like those that were."""
    lacking = [
        (load, each)
        for load in loads
        if load.verdict == INCONCLUSIVE and not load.lost
        for each in load.judgements
        if each.verdict == INCONCLUSIVE and each.interval and not all(map(each.target.met, each.interval))
    ]
    if not lacking:
        return []
    close = [load for load, each in lacking if each.enough is None]
    if close:
        return [f"At {close[0].name} it is so close to the target that many more turns would not decide it."]
    times = max(each.enough or 1 for _, each in lacking)
    repeats = max(load.runs * (each.enough or 1) for load, each in lacking)
    if repeats <= MOST_REPEATS or duration_s is None:
        mend = f"the same command again with --repeats {repeats} adds what is missing"
    else:
        mend = f"give --duration {duration_s * times:g}, or more calls"
    return [f"Further turns like these would decide it: {mend}."]


def rows(verdict: LiveVerdict) -> list[dict[str, Any]]:
    """A row of the table for each load and target, as text; what is of the load stands in its first row."""
    return [
        {
            **_of_load(load, first=index == 0),
            "target": str(each.target),
            "value": MISSING if each.value is None else number(each.target.metric, each.value),
            "interval": MISSING if each.interval is None else span(each.target.metric, each.interval),
            "n": f"{each.n:,}",
            "verdict": each.verdict,
            "why": each.why,
        }
        for load in verdict.loads
        for index, each in enumerate(load.judgements)
    ]


def _of_load(load: LoadVerdict, first: bool) -> dict[str, Any]:
    if not first:
        return {"load": "", "on_line": "", "price": "", "lost": []}
    return {
        "load": load.name,
        "on_line": MISSING if load.on_line is None else f"{load.on_line:.1f}",
        "price": "" if load.price_per_minute is None else f"{load.price_per_minute:.3g}",
        "lost": list(load.lost),
    }
