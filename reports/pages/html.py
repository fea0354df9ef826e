"""report.html: one self-contained file with the run, its results and their basis.

The page refers to nothing outside itself but the logs of failed points and the sound of calls; its pictures are also
files, `figures/NAME.svg` and `.pdf`. The same records give the same bytes.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import Definition
from harness.metrics.vocabulary import definition
from harness.slo.search import Searches, Step
from harness.slo.targets import Target, name_of, number
from reports.cards.card import cards
from reports.claims.published import Published
from reports.figures import (
    admission,
    call_timeline,
    curves,
    dashboard,
    generation,
    gpu,
    headline,
    judged,
    latency,
    live_scrape,
    live_send_delay,
    live_time,
    pool,
    search,
    timeline,
    turn_taking,
    wait,
)
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.figures.svg import embedded
from reports.live import find, server_side
from reports.live.live_record import live_section
from reports.live.live_verdict import live_verdict, rows, targets
from reports.pages import sections
from reports.pages.facts import FITTED, facts
from reports.pages.provenance import deployment_titles, deployments, provenance
from reports.pages.templates import write
from reports.runs import policies
from reports.runs.answer import Answer, find_answer
from reports.runs.measured import Run, load_run
from reports.runs.useful import useful_loads
from reports.tables.columns import (
    CLASSES,
    FEW,
    MISSING,
    Column,
    asked_columns,
    families,
    legend,
    shown,
    vocabulary,
)
from workloads.atomic_file import cannot_write, own_folder
from workloads.errors import UserError

Draw = Callable[..., Picture | LeftOut]

BESIDE_PAPER: tuple[Draw, ...] = (latency.draw, curves.continuity, curves.wasted_tokens)
"""Pictures that have the published numbers of a card, too."""
PICTURES: tuple[Draw, ...] = (
    latency.draw,
    curves.throughput,
    curves.continuity,
    curves.wasted_tokens,
    generation.draw,
    timeline.draw,
    gpu.draw,
)
DUPLEX_PICTURES: tuple[Draw, ...] = (
    turn_taking.draw,
    turn_taking.trade,
    call_timeline.draw,
    latency.draw,
    curves.throughput,
    curves.continuity,
    curves.wasted_tokens,
    gpu.draw,
)
"""Pictures of calls on an open microphone, whose server logs by reply."""
FRAME_PICTURES: tuple[Draw, ...] = (dashboard.draw, pool.draw, admission.draw, gpu.draw)
"""Pictures of runs of interaction sessions."""
LIVE_PICTURES: tuple[Draw, ...] = (
    search.draw,
    live_time.draw,
    wait.draw,
    live_send_delay.draw,
    live_scrape.draw,
)
"""Additional pictures of runs over real sockets."""


def write_report(run_dir: Path, asked: Sequence[str] = ()) -> Path:
    """Write report.html and the figures of a results directory, and return the report's path.

    `asked`: metrics in the tables, instead of the main ones. UserError when the directory holds no results, a damaged
    record, or cannot be written.
    """
    run = load_run(run_dir)
    if not run.points:
        raise UserError(f"{run_dir} has no measured point yet; run the experiment first.")
    paper = _paper(run)
    answer = _answer(run)
    try:
        pictures, left_out, read_off = _draw(run, own_folder(run_dir / "figures"))
        return _write(run, answer, paper, pictures, left_out, read_off, asked)
    except OSError as error:
        raise cannot_write(run_dir, error) from None


def _paper(run: Run) -> Sequence[Published]:
    """Return the paper's numbers on the card of this experiment; none for another deployment than the card's."""
    card = cards().get(run.experiment.name)
    if card is None or run.values("deployment") != [card.experiment.set.get("deployment")]:
        return ()
    return getattr(card.module, "PAPER", ())


def drawn(run: Run) -> Iterator[Picture | LeftOut]:
    """Draw the pictures of a run one by one, the one that shows the answer first."""
    searched, paper = find.load_search(run) is not None, _paper(run)
    verdict = None if searched else live_verdict(run)
    if verdict is not None:
        yield judged.draw(verdict)
        yield judged.others(verdict)
    else:
        answer = None if searched else _answer(run)  # a search has its own sentence and picture
        first = None if answer is None else headline.draw(run, answer)
        yield first or LeftOut(headline.NAME, "", "these results have no single answer")
    kinds = [
        (search.draw,) if searched and not run.live else (),
        LIVE_PICTURES if run.live else (),
        FRAME_PICTURES if run.frames else DUPLEX_PICTURES if run.duplex else PICTURES,
    ]
    for draw in itertools.chain(*kinds):
        yield draw(run, paper) if draw in BESIDE_PAPER else draw(run)


def _answer(run: Run) -> Answer | None:
    return find_answer(run.finished, [*run.experiment.grid])


def _draw(run: Run, folder: Path) -> tuple[list[dict[str, Any]], list[LeftOut], dict[str, Any]]:
    """Draw and save all pictures; returns these, the figures that cannot be drawn, and numbers that pictures show."""
    pictures, left_out, read_off = [], [], {}
    with style():
        for picture in drawn(run):
            if isinstance(picture, Picture):
                pictures.append({"picture": picture, "svg": embedded(picture, folder)})
                read_off.update(picture.read_off)
                continue
            for suffix in ("svg", "pdf"):  # of an earlier report on other points
                (folder / f"{picture.name}.{suffix}").unlink(missing_ok=True)
            if picture.name != headline.NAME:  # the page says itself that there is no answer
                left_out.append(picture)
    return pictures, left_out, read_off


def _write(
    run: Run,
    answer: Answer | None,
    paper: Sequence[Published],
    pictures: Sequence[dict[str, Any]],
    left_out: Sequence[LeftOut],
    read_off: dict[str, Any],
    asked: Sequence[str],
) -> Path:
    searches = find.load_search(run)
    main = shown(point.kept for point in run.points)
    columns = asked_columns(asked, main) or main
    known, names = vocabulary(main), {column.metric for column in columns}
    results, classes, noticed = sections.headline(run, columns), sections.classes(run), sections.noticed(run)
    constants = list(dict.fromkeys(fact for each in deployments(run) for fact in facts(*each)))
    return write(
        run.folder / "report.html",
        "pages/template.html.j2",
        title=run.experiment.title or run.experiment.name,
        answer=_sentence(answer, searches),
        beyond_sessions=run.beyond_sessions,
        verdict=_verdict(run),
        name=run.experiment.name,
        device=run.points[0].point.device,
        seeds=run.seeds,
        variants=sections.variants(run),
        axes=[axis for axis, _ in run.cells[0]],
        frames=run.frames,
        live=live_section(run),
        capacity=_capacity(searches),
        search=_search(run, searches),
        columns=columns,
        few={"columns": legend(columns), "classes": legend(CLASSES)},
        marked={
            "results": _marked(results),
            "classes": _marked(classes),
            "noticed": noticed is not None and _marked(noticed["groups"]),
        },
        first=sections.tiles(run, answer, main) if answer is not None and searches is None else None,
        provenance=provenance(run),
        headline=results,
        classes=classes,
        class_columns=CLASSES,
        class_definitions=families(CLASS_DEFINITIONS),
        failures=sections.failures(run),
        comparison=sections.comparison(run, columns),
        counters=policies.counters(run),
        useful=useful_loads(run),
        pictures=pictures,
        sounds=sections.sounds(run),
        left_out=left_out,
        served=deployment_titles(run),
        published=sections.published(run, paper, read_off),
        definitions=_meanings(columns, known),
        terms=_terms([*main, *columns], targets(run), known),
        further=families({name: each for name, each in known.items() if name not in names}),
        noticed=noticed,
        server_side=server_side.section(run) if run.live else None,
        fitted=[fact for fact in constants if fact.kind == FITTED],
        chosen=[fact for fact in constants if fact.kind != FITTED],
    )


def sentence(run: Run) -> str | None:
    """Return the first sentence of a run's report: its verdict or its answer. None where nothing has finished."""
    verdict = live_verdict(run)
    return _sentence(_answer(run), find.load_search(run)) if verdict is None else verdict.sentence


def _verdict(run: Run) -> dict[str, Any] | None:
    """The verdict on a live run, with the table that it rests on."""
    verdict = live_verdict(run)
    return None if verdict is None else {"found": verdict, "rows": rows(verdict)}


def _marked(groups: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any value of a table has too few events."""
    return any(FEW in value["median"] for group in groups for row in group["rows"] for value in row["values"])


def _sentence(answer: Answer | None, searches: Searches | None) -> str | None:
    if searches is not None:
        return f"It {searches.searched[0].answer}" if searches.question.counts else find.answer(searches)
    return None if answer is None else answer.sentence


def _capacity(searches: Searches | None) -> dict[str, Any] | None:
    """Return the result of a search at an endpoint, as a table."""
    if searches is None or not searches.question.counts:
        return None
    one, question = searches.searched[0], searches.question
    rows = [
        (step, [_over_repeats(step, index, target) for index, target in enumerate(question.targets)])
        for step in one.steps
    ]
    return {"counts": question.counts, "headings": list(map(str, question.targets)), "rows": rows}


def _over_repeats(step: Step, index: int, target: Target) -> tuple[str, str]:
    """A target's median and its range."""
    known = sorted(value for repeat in step.repeats if (value := repeat.values[index]) is not None)
    if not known:
        return MISSING, ""
    low, middle, high = (number(target.metric, value) for value in (known[0], median(known), known[-1]))
    return middle, f"{low} to {high}" if len(known) > 1 else ""


def _search(run: Run, searches: Searches | None) -> dict[str, Any] | None:
    """Return the result of a search in virtual time and its cost, as a table and sentences."""
    if searches is None or searches.question.counts:
        return None
    over = searches.question.over
    rows = [find.row(searches, one, run.folder) for one in searches.searched]
    return {
        "over": over,
        "targets": find.asked(searches),
        "axes": [name for name in run.experiment.grid if name not in (over, "gpu")],
        "rows": rows,
        "find": find,
        "seeds": len(searches.question.seeds),
    }


def _meanings(columns: Sequence[Column], known: Mapping[str, Definition]) -> list[tuple[str, Definition]]:
    """Return the meanings of the table's columns, grouped by family."""
    headings = {column.metric: column.heading for column in columns}
    found = families({name: known.get(name) or definition(name) for name in headings})
    return [(", ".join(headings[name] for name in names), each) for names, each in found]


def _terms(
    columns: Iterable[Column], asked: Iterable[Target], known: Mapping[str, Definition]
) -> list[tuple[str, str, Definition]]:
    """Return metric, name and meaning of each column and target, for the question marks."""
    names = {target.metric: name_of(target.metric) for target in asked}
    names |= {column.metric: column.heading for column in columns}
    return [(metric, name, known.get(metric) or definition(metric)) for metric, name in names.items()]
