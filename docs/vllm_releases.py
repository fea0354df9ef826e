"""The table of the card `vllm-releases` in docs/vllm-releases.md, from what a full run measured.

rehearse run vllm-releases
python -m docs.vllm_releases results/vllm
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from reports.cards.group import load_group
from reports.papers.vllm.releases import table

PAGE = Path(__file__).with_name("vllm-releases.md")
_BLOCK = re.compile(r"(<!-- releases -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, results: Path) -> str:
    """A page with its table as a results directory has it. UserError where that holds other cards."""
    (card,) = (each for each in load_group(results).cards if each.figure.name == "vllm-releases")
    head, *lines = table(card.panels)
    rows = [head, ["---", "---", *["---:"] * (len(head) - 2)], *lines]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return _BLOCK.sub(lambda block: f"{block[1]}{text}\n{block[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), Path(sys.argv[1])))
