"""report.html: one self-contained file with the run, its results and their basis.

The page refers to nothing outside itself but the logs of failed points and the sound of calls; its pictures are also
files, `figures/NAME.svg`. The same records give the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import Definition
from harness.metrics.vocabulary import definition
from harness.slo.targets import Target, name_of
from reports.cards.card import cards
from reports.claims.published import Published
from reports.figures import headline
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.figures.svg import embedded_all
from reports.pages import sections
from reports.pages.parts import BESIDE_PAPER, parts_of
from reports.pages.templates import write
from reports.runs.answer import find_answer
from reports.runs.measured import Run, load_run
from reports.runs.part import Opening
from reports.runs.provenance import provenance
from reports.runs.side import side_of
from reports.runs.steady import steady_notes
from reports.tables.columns import CLASSES, FEW, Column, asked_columns, families, legend, shown, vocabulary
from workloads.atomic_file import cannot_write, own_folder
from workloads.errors import UserError


def write_report(run_dir: Path, asked: Sequence[str] = ()) -> Path:
    """Write report.html and the figures of a results directory, and return the report's path.

    `asked`: metrics in the tables, instead of the main ones. UserError when the directory holds no results, a damaged
    record, or cannot be written.
    """
    run = load_run(run_dir)
    if not run.points:
        raise UserError(f"{run_dir} has no measured point yet; run the experiment first.")
    try:
        return _write(run, asked)
    except OSError as error:
        raise cannot_write(run_dir, error) from None


def _paper(run: Run) -> Sequence[Published]:
    """Return the paper's numbers on the card of this experiment; none for another deployment than the card's."""
    card = cards().get(run.experiment.name)
    if card is None or run.values("deployment") != [card.experiment.set.get("deployment")]:
        return ()
    return getattr(card.module, "PAPER", ())


def opening(run: Run) -> Opening:
    """Return the begin of a run's report."""
    return next(filter(None, (each(run) for each in parts_of(run).openings)))


def drawn(run: Run) -> Iterator[Picture | LeftOut]:
    """Draw the pictures of a run one by one, the one that shows the answer first."""
    paper, none = _paper(run), LeftOut(headline.NAME, "", "these results have no single answer")
    yield from tuple(opening(run).pictures()) or (none,)
    for draw in parts_of(run).pictures:
        yield draw(run, paper) if draw in BESIDE_PAPER else draw(run)


def _draw(run: Run, folder: Path) -> tuple[list[dict[str, Any]], list[LeftOut], dict[str, Any]]:
    """Draw and save all pictures; returns these, the figures that cannot be drawn, and numbers that pictures show."""
    pictures, left_out, read_off = [], [], {}
    with style():
        for picture in drawn(run):
            for suffix in ("svg", "pdf"):  # of an earlier report, perhaps on other points
                (folder / f"{picture.name}.{suffix}").unlink(missing_ok=True)
            if isinstance(picture, Picture):
                pictures.append(picture)
                read_off.update(picture.read_off)
            elif picture.name != headline.NAME:  # the page says itself that there is no answer
                left_out.append(picture)
        svgs = embedded_all(pictures, folder)
    embedded = [{"picture": picture, "svg": svg} for picture, svg in zip(pictures, svgs, strict=True)]
    return embedded, left_out, read_off


def _write(run: Run, asked: Sequence[str]) -> Path:
    pictures, left_out, read_off = _draw(run, own_folder(run.folder / "figures"))
    side = side_of(run.experiment)
    begin, answer = opening(run), find_answer(run.finished, [*run.experiment.grid])
    main = shown(point.kept for point in run.points)
    columns = asked_columns(asked, main) or main
    meanings, names = vocabulary(main), {column.metric for column in columns}
    results, classes, noticed = sections.headline(run, columns), sections.classes(run), sections.noticed(run)
    return write(
        run.folder / "report.html",
        "pages/template.html.j2",
        title=run.experiment.title or run.experiment.name,
        opening=begin,
        parts=[(section, data) for section in parts_of(run).sections if (data := section.data(run))],
        run=run,
        notes=side.notes(run),
        steady=steady_notes(run),
        device=run.points[0].point.device,
        seeds=run.seeds,
        variants=sections.variants(run),
        axes=[axis for axis, _ in run.cells[0]],
        invalid=sum(point.record.invalid for point in run.points),
        columns=columns,
        few={"columns": legend(columns), "classes": legend(CLASSES)},
        marked={
            "results": _marked(results),
            "classes": _marked(classes),
            "noticed": noticed is not None and _marked(noticed["groups"]),
        },
        first=sections.tiles(run, answer, main) if answer is not None and run.searches is None else None,
        provenance=provenance(run),
        headline=results,
        classes=classes,
        class_columns=CLASSES,
        class_definitions=families(CLASS_DEFINITIONS),
        failures=sections.failures(run),
        comparison=sections.comparison(run, columns),
        pictures=pictures,
        left_out=left_out,
        served=side.deployments(run),
        published=sections.published(run, _paper(run), read_off),
        definitions=_meanings(columns, meanings),
        terms=_terms([*main, *columns], begin.targets, meanings),
        further=families({name: each for name, each in meanings.items() if name not in names}),
        noticed=noticed,
        **side.constants(run),
    )


def _marked(groups: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any value of a table has too few events."""
    return any(FEW in value["median"] for group in groups for row in group["rows"] for value in row["values"])


def _meanings(columns: Sequence[Column], meanings: Mapping[str, Definition]) -> list[tuple[str, Definition]]:
    """Return the meanings of the table's columns, grouped by family."""
    headings = {column.metric: column.heading for column in columns}
    by_family = families({name: meanings.get(name) or definition(name) for name in headings})
    return [(", ".join(headings[name] for name in names), each) for names, each in by_family]


def _terms(
    columns: Iterable[Column], asked: Iterable[Target], meanings: Mapping[str, Definition]
) -> list[tuple[str, str, Definition]]:
    """Return metric, name and meaning of each column and target, for the question marks."""
    names = {target.metric: name_of(target.metric) for target in asked}
    names |= {column.metric: column.heading for column in columns}
    return [(metric, name, meanings.get(metric) or definition(metric)) for metric, name in names.items()]
