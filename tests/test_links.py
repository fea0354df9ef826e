"""No link of a page is dead in a checkout or on a code host. `make docs` checks the links of the built site."""

import posixpath
import re
import subprocess
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/*.md"))
)
LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")


@cache
def text_of(page: str) -> str:
    """Return the page without code."""
    text = re.sub(r"^([> ]*)```.*?^\1```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: code.group().replace("](", "] ("), text)


@cache
def tracked() -> frozenset[str]:
    """Return the files and folders of the repository, by their exact case."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return frozenset(listed) | {str(parent) for each in listed for parent in PurePosixPath(each).parents}


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings on a code host."""
    found = [line.strip("# ") for line in text_of(page).splitlines() if re.match(r"#{1,6} ", line)]
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each).replace("`", "") for each in found]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead(page: str) -> list[str]:
    """Return the dead links of a page to places in the repository, each with the reason."""
    found = []
    for named in [link or image for link, image in LINK.findall(text_of(page))]:
        path, _, anchor = named.partition("#")
        target = posixpath.normpath(PurePosixPath(page).parent / path if path else page)
        if re.match(r"[a-z]+:", named):
            continue
        if target not in tracked():
            found.append(f"{named}: no such file")
        elif anchor and anchor not in anchors(target):
            found.append(f"{named}: no such heading")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_no_link_is_dead(page: str) -> None:
    assert not dead(page)


def test_a_dead_link_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "# A title\n[x](style.md#nowhere) [y](Style.md) [z](style.md#a-title) [t](https://a.b/c)\n"
    monkeypatch.setitem(globals(), "text_of", lambda page: words)
    assert dead("docs/index.md") == ["style.md#nowhere: no such heading", "Style.md: no such file"]


def test_the_metrics_page_is_what_the_code_generates() -> None:
    from docs.generated import METRICS, metrics

    assert METRICS.read_text() == metrics(), "run `python -m docs.generated`"
