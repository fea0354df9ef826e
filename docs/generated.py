"""MkDocs hook: pages that are made from the code. `python -m docs.generated` writes docs/reference/metrics.md.

The tutorials are the README files of examples/. Pages link to those, which works in a checkout; the hook turns such a
link into one to the tutorial's page on the site.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.cards import labelled
from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import Definition
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS
from harness.metrics.turns import DEFINITIONS, REJECTED_DEFINITIONS
from reports.tables.columns import families

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
FROM_LISTS = {
    "engines": ("Engines and their parameters", "What `rehearse list engines NAME` shows of each."),
    "workloads": ("Workloads and their parameters", "What `rehearse list workloads NAME` shows of each."),
    "deployments": ("Deployments", "Model, GPUs and number of replicas: `--set deployment=NAME`."),
    "cards": ("Cards", "Benches and published figures, each measured by `rehearse run NAME`."),
}
TUTORIALS = ("edf_policy", "my_system", "vtc")
TO_EXAMPLE = re.compile(rf"\]\(\.\./examples/({'|'.join(TUTORIALS)})/README\.md")
METRICS = ROOT / "docs" / "reference" / "metrics.md"
_STAGES = "Stages with other names have `busy_NAME`, `decode_batch_NAME_mean` and `decode_batch_NAME_peak`."
_CALLS = "Calls on an open microphone; see [Turn-taking](../turn-taking.md)."
VOCABULARIES: tuple[tuple[str, str, Mapping[str, Definition]], ...] = (
    ("Turns", _STAGES, DEFINITIONS | REJECTED_DEFINITIONS),
    ("Turn-taking", _CALLS, TURN_TAKING_DEFINITIONS),
    ("Frames", "Calls that never pause.", FRAME_DEFINITIONS),
    ("Each class of requests", "Named `CLASS.metric`, such as `online.ttft_p90`.", CLASS_DEFINITIONS),
    ("Live runs", "In addition, for runs over real sockets.", LIVE_DEFINITIONS),
)


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the generated pages and the tutorials."""
    from mkdocs.structure.files import File

    pages = {f"reference/{kind}.md": _listed(kind, *words) for kind, words in FROM_LISTS.items()}
    for example in TUTORIALS:
        text = (ROOT / "examples" / example / "README.md").read_text()
        pages[f"tutorials/{example}.md"] = _without_links(text)
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to an example's README to its tutorial."""
    return TO_EXAMPLE.sub(r"](tutorials/\1.md", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Name the cells of tables, for where a phone shows a row as a card."""
    return labelled(html)


def metrics() -> str:
    """Return the page of all metrics, as `rehearse list metrics` has them, one row per family."""
    parts = [
        "# Metrics\n\nMade by `python -m docs.generated`; `rehearse list metrics` prints the same in a terminal. "
        "A value that could not be measured is missing, never 0. Failures stay in the denominator."
    ]
    for title, note, vocabulary in VOCABULARIES:
        rows = []
        for names, each in families(vocabulary):
            metric, meaning = " ".join(f"`{name}`" for name in names), f"{each.definition}; {each.origin}"
            rows.append((metric, each.unit, meaning, each.better or "–"))
        parts += [f"## {title}", note, _table(("metric", "unit", "meaning", "better"), rows)]
    return "\n\n".join(parts) + "\n"


def _listed(kind: str, title: str, note: str) -> str:
    command = [sys.executable, "-c", "from reports.cli import main; main()", "list", kind, "--json"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    entries: list[dict[str, Any]] = json.loads(printed)
    parts = [f"# {title}", note]
    if "parameters" not in entries[0]:
        rows = ((f"`{entry['name']}`", entry["summary"]) for entry in entries)
        return "\n\n".join([*parts, _table(("name", "what it is"), rows)])
    for entry in entries:
        rows = []
        for p in entry["parameters"]:
            default = "required" if p["required"] else f"`{p['default']}`"
            rows.append((f"`{p['name']}`", default, p["group"], p["description"]))
        table = _table(("parameter", "default", "of", "meaning"), rows)
        parts += [f"## {entry['name']}", entry["summary"], table]
    return "\n\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _without_links(text: str) -> str:
    """Links of a README lead to files beside it, which are not part of the site."""
    return re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", text)


if __name__ == "__main__":
    METRICS.parent.mkdir(exist_ok=True)
    METRICS.write_text(metrics())
