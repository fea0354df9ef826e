"""MkDocs hook: pages that are made from the code, so that they cannot say anything else than it does."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.cards import labelled
from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import Definition
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS
from harness.metrics.turns import DEFINITIONS
from reports.tables.columns import families

ROOT = Path(__file__).parent.parent
FROM_LISTS = {
    "engines": ("Engines and their parameters", "What `rehearse list engines NAME` shows of each."),
    "workloads": ("Workloads and their parameters", "What `rehearse list workloads NAME` shows of each."),
    "deployments": (
        "Deployments",
        "Which model on which GPUs, and in how many replicas: `--set deployment=NAME`.",
    ),
    "cards": ("Cards", "Benches and published figures, each measured by `rehearse run NAME`."),
}
VOCABULARIES: tuple[tuple[str, str, Mapping[str, Definition]], ...] = (
    (
        "Of turns",
        "A stage by another name has metrics of its use as well: `busy_NAME`, `decode_batch_NAME_mean` and `_peak`.",
        DEFINITIONS,
    ),
    (
        "Of turn-taking",
        "Calls on an open microphone; see [Turn-taking](../turn-taking.md).",
        TURN_TAKING_DEFINITIONS,
    ),
    ("Of frames", "Calls that never pause.", FRAME_DEFINITIONS),
    ("Of each class of requests", "Named `CLASS.metric`, such as `online.ttft_p90`.", CLASS_DEFINITIONS),
    ("Of live runs", "Besides, over real sockets.", LIVE_DEFINITIONS),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the tutorials, which stand beside their code."""
    pages = {"reference/metrics.md": _metrics()}
    pages |= {f"reference/{kind}.md": _listed(kind, *words) for kind, words in FROM_LISTS.items()}
    for example in ("edf_policy", "my_system"):
        text = (ROOT / "examples" / example / "README.md").read_text()
        pages[f"tutorials/{example}.md"] = _without_links(text)
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Name the cells of tables, for where a phone shows a row as a card."""
    return labelled(html)


def _metrics() -> str:
    parts = [
        "# Metrics\n\nTheir names in `summary.json` and in `rehearse compare --metrics`, in the units that stand "
        "there. A value that could not be measured is missing, never 0; failures stay in the denominator."
    ]
    for title, note, vocabulary in VOCABULARIES:
        rows = (
            (
                " ".join(f"`{name}`" for name in names),
                each.unit,
                f"{each.definition}; {each.origin}",
                each.better or "–",
            )
            for names, each in families(vocabulary)
        )
        parts += [f"## {title}", note, _table(("metric", "unit", "meaning", "better"), rows)]
    return "\n\n".join(parts)


def _listed(kind: str, title: str, note: str) -> str:
    command = [sys.executable, "-c", "from reports.cli import main; main()", "list", kind, "--json"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    entries: list[dict[str, Any]] = json.loads(printed)
    parts = [f"# {title}", note]
    if "parameters" not in entries[0]:
        rows = ((f"`{entry['name']}`", entry["summary"]) for entry in entries)
        return "\n\n".join([*parts, _table(("name", "what it is"), rows)])
    for entry in entries:
        rows = (
            (
                f"`{p['name']}`",
                "required" if p["required"] else f"`{p['default']}`",
                p["group"],
                p["description"],
            )
            for p in entry["parameters"]
        )
        parts += [
            f"## {entry['name']}",
            entry["summary"],
            _table(("parameter", "default", "of", "meaning"), rows),
        ]
    return "\n\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _without_links(text: str) -> str:
    """Links of a README lead to files beside it, which are not part of the site."""
    return re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", text)
