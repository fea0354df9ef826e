"""The papers to cite, as CITATION.cff has them (citation-file-format.github.io, version 1.2.0)."""

from dataclasses import dataclass
from typing import Any

import yaml

TITLE = "Rehearsal: benchmark and workload replay for real-time LLM serving"
DEVELOPERS = "The Rehearsal developers"


@dataclass(frozen=True)
class Citation:
    """A paper: its authors as "family, given", in the paper's order; `arxiv`: its number there, where it has one."""

    title: str
    authors: tuple[str, ...]
    year: int
    arxiv: str | None = None

    @property
    def names(self) -> str:
        """The authors as they are read out."""
        return ", ".join(" ".join(reversed(name.split(", "))) for name in self.authors)

    @property
    def reference(self) -> dict[str, Any]:
        """Returns the citation as an entry of `references`."""
        people = [
            dict(zip(("family-names", "given-names"), name.split(", "), strict=True)) for name in self.authors
        ]
        where = {"url": f"https://arxiv.org/abs/{self.arxiv}"} if self.arxiv else {}
        return {"type": "article", "title": self.title, "authors": people, "year": self.year, **where}


def cff(version: str, papers: tuple[Citation, ...], commit: str | None = None) -> str:
    """The file's text: this program, and the papers whose systems it measures."""
    found = {
        "cff-version": "1.2.0",
        "message": "If you use these measurements, please cite the program and the paper whose system it measured.",
        "type": "software",
        "title": TITLE,
        "authors": [{"name": DEVELOPERS}],
        "version": version,
        **({"commit": commit} if commit else {}),
        "license": "Apache-2.0",
        "references": [paper.reference for paper in papers],
    }
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120)
