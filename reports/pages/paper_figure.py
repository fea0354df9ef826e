"""One figure of a results directory as a paper needs it: at the width of its column, with the paper's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from harness.records.results import COLLECTION
from reports.cards.group import load_group
from reports.figures.column import fit, small_text
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import name_systems, style
from reports.figures.style import names as names_in_papers
from reports.figures.svg import save
from reports.pages.html import drawn
from reports.runs.measured import load_run
from workloads.atomic_file import cannot_write, own_folder
from workloads.errors import UserError, unknown


def write_figure(run_dir: Path, name: str, width_in: float | None, title: bool, names: Mapping[str, str]) -> list[Path]:
    """Write DIR/figures/paper/NAME.svg and .pdf and return their paths.

    `width_in`: width in inches; None keeps the report's. `names`: a name in the results -> its name in the paper.
    UserError for an unknown name, and for a figure that these results cannot fill.
    """
    folder = run_dir / "figures" / "paper"
    is_group = (run_dir / COLLECTION).is_file()
    with style(), small_text(width_in):
        picture = _find(name, _of_group(run_dir, name) if is_group else drawn(load_run(run_dir)))
        name_systems(picture.figure, {**names_in_papers(), **names} if is_group else names)
        if width_in is not None:
            fit(picture.figure, width_in)
        if not title:
            picture.figure.suptitle("").set_in_layout(False)
        try:
            own_folder(own_folder(folder.parent) / folder.name)
            save(picture, folder)
        except OSError as error:
            raise cannot_write(folder, error) from None
    return [folder / f"{name}.{suffix}" for suffix in ("svg", "pdf")]


def _of_group(run_dir: Path, name: str) -> Iterable[Picture | LeftOut]:
    """Yield the picture of one card of a paper, or why there is none; of the other cards only their names."""
    for card in load_group(run_dir).cards:
        figure = card.figure
        if figure.name != name or figure.draw is None or not card.points:
            yield LeftOut(figure.name, figure.title, "it has no picture, or none of its points is measured")
        else:
            yield replace(figure.draw(card.panels), name=name)


def _find(name: str, pictures: Iterable[Picture | LeftOut]) -> Picture:
    names = []
    for picture in pictures:
        if isinstance(picture, Picture) and picture.name == name:
            return picture
        if picture.name == name:
            raise UserError(f"figure {name} cannot be drawn: {picture.reason}.")  # type: ignore[union-attr]
        names.append(picture.name)
    raise unknown("figure", name, names)
