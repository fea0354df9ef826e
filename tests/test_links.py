"""No link of a page is dead: in a checkout, on a code host, on the built site."""

import posixpath
import re
import subprocess
import unicodedata
from collections.abc import Collection
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from docs.generated import FROM_LISTS, TUTORIALS, on_page_markdown

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/*.md"))
)
SITE = {
    *(page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")),
    *(f"reference/{name}.md" for name in FROM_LISTS),
    *(f"tutorials/{name}.md" for name in TUTORIALS),
    *(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "images").iterdir()),
}
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


@cache
def headings(page: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the anchors of a page on a code host, and on the site."""
    found = [line.strip("# ") for line in text_of(page).splitlines() if re.match(r"#{1,6} ", line)]
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each).replace("`", "") for each in found]
    hosted = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    ascii_titles = [unicodedata.normalize("NFKD", each).encode("ascii", "ignore").decode() for each in titles]
    built = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", each).strip().lower()) for each in ascii_titles}
    return frozenset(hosted), frozenset(built)


def dead(page: str) -> list[str]:
    """Return the dead links of a page, each with the place where it is dead."""
    found = broken(page, links(text_of(page)), tracked(), "", "in the repository", "on a code host")
    if page.startswith("docs/"):
        found += broken(page, links(on_page_markdown(text_of(page))), SITE, "docs/", "on the site", "on the site")
    return found


def broken(
    page: str, links: list[str], there: Collection[str], root: str, of_files: str, of_headings: str
) -> list[str]:
    """Return what is wrong with links between the files `there`, which are below `root`."""
    found = []
    for link in links:
        path, _, anchor = link.partition("#")
        place = PurePosixPath(page.removeprefix(root))
        target = posixpath.normpath(place.parent / path if path else place)
        if target not in there:
            found.append(f"{link}: not {of_files}")
        elif anchor and anchor not in headings(root + target)[1 if root else 0]:
            found.append(f"{link}: no such heading {of_headings}")
    return found


def links(text: str) -> list[str]:
    """Return the links of a page to places in the repository."""
    found = [link or image for link, image in LINK.findall(text)]
    return [each for each in found if not re.match(r"[a-z]+:", each)]


@pytest.mark.parametrize("page", PAGES)
def test_no_link_is_dead(page: str) -> None:
    assert not dead(page)


def test_a_dead_link_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "# A\n[x](style.md#nowhere) [y](Style.md) [z](../Makefile) [t](../examples/edf_policy/README.md)\n"
    monkeypatch.setitem(globals(), "text_of", lambda page: words)
    headings.cache_clear()
    found = dead("docs/index.md")
    headings.cache_clear()
    assert [each.partition(": ")[2] for each in found] == [
        "no such heading on a code host",
        "not in the repository",
        "no such heading on the site",
        "not on the site",
        "not on the site",
    ]


def test_the_metrics_page_is_what_the_code_generates() -> None:
    from docs.generated import METRICS, metrics

    assert METRICS.read_text() == metrics(), "run `python -m docs.generated`"
