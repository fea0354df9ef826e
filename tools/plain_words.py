"""Find words and constructions that docs/style.md refuses, in pages and in the texts that a user sees.

    python -m tools.plain_words [FILE ...]

Each finding is one line: file:line, the words, and what to write instead. The exit status is 1 if there is one. Pages,
YAML files and templates are read without their code. In Python, strings with a space are read: help, errors, captions,
reasons of claims, and docstrings.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).absolute().parents[1]
STYLE = ROOT / "docs" / "style.md"
PACKAGES = ("rehearsal", "workloads", "harness", "engines", "reports")

EXCEPTIONS: tuple[str, ...] = ()
"""Files and folders that are not read, as beginnings of paths. It stays empty: rewrite the text."""

RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), fix)
    for pattern, fix in (
        (r"\bslip\b", "say send delay"),
        (r"\bbeside\b", "say next to, with, compared with, or besides"),
        (r"\bmend(s|ed|ing)?\b", "say fix"),
        (r"\b(is|are|was|were|(?<!cannot )be|been|being) told\b|\btold (of|by|in)\b", "say reported, or who sends it"),
        (r"\b(?<!not )so many\b(?! that)", "give the number, or say that many, as many or this number of"),
        (r"\bwhat is left\b", "say the rest, or what remains and name it"),
        (r"\bthose (with|that|who|whose|which|without|in which|under way)\b", "repeat the noun"),
        (r"\b(of|in|to|for|by|with|from) whom\b|\bwhom\b", "make it two sentences"),
        (r"\bof which\b", "make it two sentences"),
        (r"\ba wrong word\b", "say usage error"),
        (r"\bagents? that looks?\b", "say GUI agent"),
        (r"\bpeople who type\b", "say chat users"),
        (r"\b(callers|users|sessions|calls) on line\b", "say concurrent callers, or connected"),
        (r"\bdocuments that nobody waits for\b", "say batch jobs"),
        (r"\bholds? (everybody|so many)\b", "say blocks all requests, or can handle N calls"),
        (r"\bhow many calls (it|a server|one) holds\b", "say how many concurrent calls it can handle"),
        (r"\bwhat becomes of\b|\bwhat became of\b", "say the result, or the outcome"),
    )
)
CELL = re.compile(r"\|\s*here\s*(?=\|)", re.IGNORECASE)
CODE = re.compile(r"`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->")


def findings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield offset, words and fix of each refused construction; a phrase may run over the end of a line."""
    flat = text.replace("\n", " ")
    for pattern, fix in RULES:
        for found in pattern.finditer(flat):
            yield found.start(), found.group(), fix
    for found in CELL.finditer(text):
        yield found.start(), "| here |", "name the column by what it holds, such as measured or ours"


def in_page(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, words and fix of each finding in Markdown, outside code, links' targets and comments."""
    text = re.sub(r"^(```|~~~).*?^\1", _blank, text, flags=re.MULTILINE | re.DOTALL)
    text = CODE.sub(_blank, text)
    for offset, words, fix in findings(text):
        yield text.count("\n", 0, offset) + 1, words, fix


def in_program(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, words and fix of each finding in the string literals of a module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value:  # a name or a key has none
            for _, words, fix in findings(CODE.sub(_blank, node.value)):
                yield node.lineno, words, fix


def files(given: Iterable[str]) -> Iterator[Path]:
    """Yield the files that were given, or every page, module, YAML file and template."""
    if given:
        yield from (Path(each).absolute() for each in given)
        return
    yield from sorted(ROOT.glob("*.md"))
    for folder in ("docs", "examples", *PACKAGES):
        kinds = ("*.md", "*.yaml", "*.yml", "*.j2", *(["*.py"] if folder in PACKAGES else []))
        yield from sorted(path for kind in kinds for path in (ROOT / folder).rglob(kind))


def main(given: list[str]) -> int:
    """Print every finding; 1 if there is one."""
    status = 0
    for path in files(given):
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
        if path == STYLE or name.startswith(EXCEPTIONS):
            continue
        text = path.read_text()
        found = in_program(text) if path.suffix == ".py" else in_page(text)
        for line, words, fix in sorted(found):
            print(f"{name}:{line}: “{words}”: {fix}")
            status = 1
    return status


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "·", found.group())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
