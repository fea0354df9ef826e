"""The tables of LiveServe's testbeds, from the results of a run of its cards.

    python -m docs.testbed results/liveserve [--json]

The first table has the testbeds on which the baseline meets most of the paper's numbers, the second the numbers that
none meets alone or together, the third LiveServe's gains on the chosen testbeds. `--json`: all of it as data.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from reports.cards.group import load_group
from reports.papers.liveserve import testbed, testbed_set


def main(folder: Path, as_json: bool) -> str:
    panels = {card.figure.name: card.panels for card in load_group(folder).cards}
    grid, chosen = panels.get("liveserve-testbed", {}), panels.get("liveserve-testbed-set", {})
    if as_json:
        rows = {"testbed": testbed.as_rows(grid), "testbed-set": testbed_set.as_rows(chosen)}
        return json.dumps(rows, indent=1, default=list)
    tables = [testbed.as_markdown(grid) if grid else "", testbed_set.as_markdown(chosen) if chosen else ""]
    return "\n".join(filter(None, tables))


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), "--json" in sys.argv[2:]))
