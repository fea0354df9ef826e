"""report.html of a group of figure cards: the claims, then each figure with its points and settings."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.registry import ENGINES
from reports.cards.card import blamed_on
from reports.cards.group import Group, Shown
from reports.claims.grading import BAD, CHOSEN, GOOD, NOT_MEASURED, OUTCOMES, PREDICTED, UNEXPLAINED, facts
from reports.claims.grading import counted as counted_facts
from reports.claims.sensitivity import KEPT, LOST
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import name_systems, named, names, style
from reports.figures.svg import embedded_all
from reports.pages.sections import failures
from reports.pages.templates import write
from reports.replays.constants import constants
from reports.replays.served import deployment_titles, voice_errors
from reports.runs.policies import totals
from reports.runs.provenance import program, time
from reports.tables.labels import counted, seed_list, setting, short
from workloads.atomic_file import cannot_write, own_folder
from workloads.errors import UserError
from workloads.registry import WORKLOADS

WATCHED = (
    "fallback",
    "lru_fallback",
    "preload",
    "evict",
    "reload",
    "break_blocked",
    "dryrun",
    "refused",
    "truncated",
    "stale",
    "tick",
    "alloc_fail",
    "freed_behind_window",
    "pinned_blocks",
    "recovered",
    "recycles",
    "reencoded_tokens",
    "max_len_hits",
    "streaming_queue_peak",
)
"""Prefixes of counters that a reader should see: fallbacks of a policy or the pool, and actions of the KV manager."""

_COLOUR = {**dict.fromkeys((*GOOD, KEPT), "better"), **dict.fromkeys((*BAD, LOST), "worse")}


def write_group_report(group: Group) -> Path:
    """Write report.html and the figures of a results directory of cards, and return the report's path.

    UserError when nothing was measured yet, or the directory cannot be written.
    """
    if not group.points:
        raise UserError(f"{group.folder} has no measured point yet; run `rehearse run {group.name}` first.")
    try:
        return _write(group, _cards(group.cards, own_folder(group.folder / "figures")))
    except OSError as error:
        raise cannot_write(group.folder, error) from None


def _write(group: Group, cards: Sequence[dict[str, Any]]) -> Path:
    runs = [run for card in group.cards for run in card.panels.values() if run.points]
    titles = list(dict.fromkeys(title for run in runs for title in deployment_titles(run)))
    names = list(dict.fromkeys(str(point.params.get("deployment")) for point in group.points))
    shown = [claim for claim in group.claims if claim.outcome != NOT_MEASURED or not claim.needs]
    counts = Counter(fact.outcome for fact in facts(shown) if fact.provenance in (PREDICTED, CHOSEN))
    sensitivity = group.sensitivity
    return write(
        group.folder / "report.html",
        "pages/group.html.j2",
        name=group.name,
        title=_title(group),
        against=group.cards[0].figure.against,
        reference=group.cards[0].figure.reference,
        not_asked=len(group.not_asked),
        sockets=any(run.live for run in runs),
        points=len(group.points),
        seeds=seed_list(sorted({point.seed for point in group.points})),
        failed=sum(point.error is not None for point in group.points),
        counts=[(outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]],
        counted=counted_facts(group.claims),
        caveat=group.caveat,
        facts=facts(shown),
        colours=_COLOUR,
        unexplained=UNEXPLAINED,
        frames=any(run.frames for run in runs),
        tallies=any(claim.tallied for claim in group.claims),
        cards=cards,
        variations=list(dict.fromkeys(name for *_, cells in sensitivity for name in cells)),
        sensitivity=[(claim, cells) for _, claim, cells in sensitivity],
        provenance=[
            {"label": "Deployments", "value": "; ".join(titles)},
            *voice_errors(names),
            *program(group.points),
            {"label": "Time", "value": time(group.points)},
        ],
        **constants((name,) for name in names),
    )


def _title(group: Group) -> str:
    if not group.not_asked:
        return f"Every figure of {group.name}, measured here"
    if len(group.cards) > 1:
        return f"Figures of {group.name}, measured here"
    return group.cards[0].figure.title


def _cards(cards: Sequence[Shown], folder: Path) -> list[dict[str, Any]]:
    with style():
        drawn = [_picture(card, folder) for card in cards]
        svgs = iter(embedded_all([each for each in drawn if isinstance(each, Picture)], folder))
    return [
        _card(card, each, next(svgs), "") if isinstance(each, Picture) else _card(card, None, "", each)
        for card, each in zip(cards, drawn, strict=True)
    ]


def _card(card: Shown, picture: Picture | None, svg: str, left_out: str) -> dict[str, Any]:
    return {
        "name": card.figure.name,
        "title": card.figure.title,
        "picture": picture,
        "svg": svg,
        "left_out": left_out,
        "facts": facts(card.claims),
        "panels": [(name, _words(run.experiment)) for name, run in card.panels.items()],
        "failures": [failure for panel, run in card.panels.items() for failure in failures(run, f"{panel}: ")],
        "counters": _counters(card),
        "points": len(card.points),
        "needs": card.figure.needs,
    }


def _picture(card: Shown, folder: Path) -> Picture | str:
    """Return the picture, or the reason if there is none; empty where nothing is to be said."""
    figure = card.figure
    for suffix in ("svg", "pdf"):  # of an earlier report
        (folder / f"{figure.name}.{suffix}").unlink(missing_ok=True)
    if not card.points or figure.draw is None:
        return ""
    with blamed_on(figure.name, ", draw"):
        drawn = figure.draw(card.panels)
    if isinstance(drawn, LeftOut):
        return drawn.reason
    by = names()
    name_systems(drawn.figure, by)
    return replace(drawn, name=figure.name, title=named(drawn.title, by), caption=named(drawn.caption, by))


def _words(experiment: Any) -> str:
    """Return the experiment of a panel, in words."""
    kind = WORKLOADS.get(experiment.workload)
    workload = f"workload {experiment.workload}" + (f" ({kind.summary})" if kind else "")
    fixed = setting(experiment.set)
    varied = "; ".join(
        f"{name} in {{{', '.join(short(value) for value in values)}}}" for name, values in experiment.grid.items()
    )
    parts = [workload, " against ".join(experiment.engines), fixed, varied, seed_list(experiment.seeds)]
    return "; ".join(filter(None, parts)) + "; all else as by default."


def _counters(card: Shown) -> dict[str, Any]:
    """The watched counters, summed over the card's finished points: a row each, a column for each engine."""
    measured = {point.point.engine for point in card.points if point.error is None}
    engines = [name for name in ENGINES if name in measured] + sorted(measured.difference(ENGINES))
    sums = {name: totals(point for point in card.points if point.point.engine == name) for name in engines}
    counter_names = {name for each in sums.values() for name in each}
    names = sorted(name for name in counter_names if name.rpartition(".")[2].startswith(WATCHED))
    rows = [(name, [f"{each[name]:,}" if name in each else "" for each in sums.values()]) for name in names]
    return {"engines": engines, "rows": rows, "points": counted(len(card.points) - len(card.failed), "point")}
