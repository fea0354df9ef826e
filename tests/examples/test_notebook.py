"""The notebook holds what its cells print: the run in it gives the same numbers everywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("runs the notebook")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "results.ipynb"
RUN = """
import ast, contextlib, io, json, sys
import pandas

pandas.set_option("display.max_columns", 20)  # as where there is no terminal to fit
names, found = {"__name__": "__main__"}, []
for cell in json.load(sys.stdin):
    tree, out = ast.parse(cell), io.StringIO()
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last else None
    found.append([out.getvalue(), None if value is None else repr(value)])
print(json.dumps(found))
"""
"""Cells as a kernel runs them: what is printed, and the value of a last expression."""


def test_its_cells_give_what_they_show(tmp_path: Path):
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    shown = [
        [
            "".join(text for out in cell["outputs"] for text in out.get("text", ())),
            next(("".join(out["data"]["text/plain"]) for out in cell["outputs"] if "execution_count" in out), None),
        ]
        for cell in cells
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(["".join(cell["source"]) for cell in cells]),
        env={**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": str(NOTEBOOK.parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == shown
    assert [text for text, _ in shown if text], "the notebook was kept without what it printed"
