"""The files that evaluators of an artifact ask for: claims, commands, minutes, machine and expected numbers.

All of it is read from a finished run of the paper's cards: nothing is promised that this machine did not do. The run is
exact in virtual time, so another machine's measurements are held against it with `diff`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2

from reports.cards.group import Group, Shown
from reports.claims.citation import cff
from reports.claims.claim import as_rows, by_verdict
from reports.runs.measured import Measured
from reports.tables.plain_tables import csv_of
from workloads.atomic_file import cannot_write, replacing
from workloads.errors import UserError
from workloads.optional import DISTRIBUTION

KICK_MINUTES = 4.0
"""[chosen] Core minutes that the quick trial of an artifact may take. With the installation it fits into a visit of ten
minutes."""


@dataclass(frozen=True)
class Part:
    """One card: its number of points and the core minutes that they took, shared points included."""

    shown: Shown
    minutes: float

    @property
    def name(self) -> str:
        return self.shown.figure.name


def parts(group: Group) -> list[Part]:
    """The cards that were measured, in their order."""
    return [Part(card, minutes(card.points)) for card in group.cards if card.panels]


def minutes(points: Sequence[Measured]) -> float:
    """Minutes of one core that these points took."""
    return sum(point.record.manifest["cost"]["wall_s"] for point in points) / 60


def kick(found: Sequence[Part]) -> list[Part]:
    """The cheapest cards with claims, as many as fit into `KICK_MINUTES`, one at least."""
    chosen: list[Part] = []
    with_claims = [part for part in found if part.shown.claims]
    for part in sorted(with_claims, key=lambda part: (part.minutes, part.name)):
        if chosen and sum(each.minutes for each in chosen) + part.minutes > KICK_MINUTES:
            break
        chosen.append(part)
    return chosen


def write_artifact(group: Group, out: Path) -> list[Path]:
    """Write the appendix, both scripts, their expected results and CITATION.cff, and return the paths.

    UserError if the run has other settings than the cards, was stopped or has failed points, and if the folder cannot
    be written.
    """
    unfit = _unfit(group)
    if unfit:
        raise UserError(
            f"{group.folder} {unfit}; `rehearse run {group.name}` measures what an artifact is made of."
        )
    found = parts(group)
    first = kick(found)
    names = [part.name for part in first]
    claims = group.claims
    texts = {
        "README.md": _appendix(group, found, first),
        "expected.csv": csv_of(as_rows(claims)),
        "expected_kick.csv": csv_of(as_rows([claim for claim in claims if claim.card in names])),
        "kick_the_tyres.sh": _script(group.name, names, "artifact-kick", "expected_kick.csv"),
        "reproduce.sh": _script(group.name, [group.name], f"artifact-{group.name}", "expected.csv"),
        "CITATION.cff": cff(version(DISTRIBUTION), _papers(group), _commit(group)),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with replacing(out / name) as file:
                file.write(text.encode())
            (out / name).chmod(0o755 if name.endswith(".sh") else 0o644)
    except OSError as error:
        raise cannot_write(out, error) from None
    return [out / name for name in texts]


def _unfit(group: Group) -> str:
    failed = sum(point.error is not None for point in group.points)
    if group.caveat:
        return "was measured with other settings than the cards have"
    if failed:
        return f"has {failed} points that failed"
    if not group.points:
        return "holds no measured point"
    return ""


def _appendix(group: Group, found: Sequence[Part], first: Sequence[Part]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(str(__package__), "."),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|")
    manifests = [point.record.manifest for point in group.points]
    stored = (path for point in group.points for path in point.record.folder.iterdir())
    return environment.get_template("artifact.md.j2").render(
        name=group.name,
        papers=_papers(group),
        parts=found,
        first=first,
        kick_minutes=_minutes(sum(part.minutes for part in first)),
        minutes=_minutes,
        points=len(group.points),
        seeds=len({point.seed for point in group.points}),
        whole=_minutes(minutes(group.points)),
        machines=_different([manifest["machine"] for manifest in manifests]),
        packages=_different([manifest["packages"] for manifest in manifests]),
        commit=_commit(group),
        megabytes=math.ceil(sum(path.stat().st_size for path in stored if path.is_file()) / 1e6),
        verdicts=by_verdict(group.claims),
        not_asked=[figure.name for figure in group.not_asked],
        lacking=[card.figure for card in group.cards if card.figure.needs],
    )


def _script(group: str, cards: Sequence[str], out: str, expected: str) -> str:
    runs = "".join(f'rehearse run {card} --out "$out"\n' for card in cards)
    return f"""#!/bin/sh
# Measures, and compares every claim with its expected value: it ends with "as expected", or with the differences.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${{1:-results/{out}}}
{runs}rehearse claims {group} --results "$out" --csv > "$out/claims.csv"
diff "$here/{expected}" "$out/claims.csv"
echo "as expected"
"""


def _papers(group: Group) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(card.figure.citation for card in group.cards if card.figure.citation))


def _commit(group: Group) -> str | None:
    """Return the commit that all points were measured at; None if there is none or several."""
    commits = {(point.record.manifest.get("revision") or {}).get("commit") for point in group.points}
    return commits.pop() if len(commits) == 1 else None


def _different(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for index, each in enumerate(found) if each not in found[:index]]


def _minutes(value: float) -> str:
    """Rounded up to whole minutes, or "under a minute"."""
    return f"{math.ceil(value)} min" if value > 1 else "under a minute"
