"""The licences of the pinned packages, as their installed metadata states them: `python -m tools.licences` writes
docs/licences.md.

Run it in the environment of the tests, which has the packages of requirements/cpu.txt and torch.txt.
"""

import re
from collections.abc import Iterable
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path

from tools.lock import normal, pins

ROOT = Path(__file__).absolute().parents[1]
PAGE = ROOT / "docs" / "licences.md"
LOCKS = ("cpu", "torch")
SHOWN = 60
"""Characters of a licence that is stated in prose. [chosen]"""

HEAD = """# Licences

Rehearsal is under Apache-2.0. Its wheel has none of these packages: pip installs them. They are the packages of
`requirements/cpu.txt` and `requirements/torch.txt`. Each licence is as the package's own metadata states it.
`python -m tools.licences` makes this page.

| package | version | licence |
|---|---|---|
"""


def licence(about: PackageMetadata) -> str:
    """Return the licence of a package in a few words: an SPDX expression, else its classifiers, else the first line of
    the text."""
    facts = about.json
    if stated := facts.get("license_expression"):
        return str(stated)
    classifiers = [each for each in about.get_all("Classifier") or [] if each.startswith("License ::")]
    names = [each.rpartition(" :: ")[2] for each in classifiers if each != "License :: OSI Approved"]
    if names:
        return ", ".join(dict.fromkeys(names))
    lines = [line.strip() for line in str(facts.get("license") or "").splitlines() if re.search(r"\w", line)]
    return lines[0][:SHOWN].replace("|", "/") if lines else "not stated"


def pinned(locks: Iterable[str] = LOCKS) -> dict[str, str]:
    """Return the version of each package of these locks, by its normal name."""
    texts = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in locks]
    return {normal(name): version for text in texts for name, version in pins(text).items()}


def page() -> str:
    """Return the page. PackageNotFoundError for a package that is not installed."""
    return HEAD + "".join(row(name, version) for name, version in sorted(pinned().items()))


def row(name: str, version: str) -> str:
    """Return the line of an installed package."""
    return f"| {name} | {version} | {licence(metadata(name))} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(ROOT)}: {len(pinned())} packages")
