"""The parts of a run's report. The module that makes a part declares it, and `reports.pages.parts` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.slo.targets import Target
from reports.runs.measured import Run

if TYPE_CHECKING:
    from reports.figures.picture import LeftOut, Picture


@dataclass(frozen=True)
class Opening:
    """The begin of a report: a sentence, and the pictures that show it.

    `word`: PASS, FAIL or INCONCLUSIVE; empty without targets. `template`: a file below `reports` that shows `data`; the
    page has it instead of the sentence. `targets`: their metrics are explained on the page.
    """

    sentence: str
    pictures: Callable[[], Iterable[Picture | LeftOut]] = tuple
    word: str = ""
    template: str = ""
    data: Any = None
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Section:
    """A section of a report. A run for which `data` returns nothing does not have it.

    `template`: a file below `reports` that shows the result as `data`. `before`: its place on the page, see
    `pages/template.html.j2`. `link`: its id, and its name in the page's list of sections.
    """

    template: str
    data: Callable[[Run], Any]
    before: str
    link: tuple[str, str] | None = None
