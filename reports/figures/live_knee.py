"""The knee: what was measured at each number of calls, and the largest that met every target."""

from __future__ import annotations

from collections.abc import Sequence

from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.paper import Published

NAME = "knee"


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    return LeftOut(NAME, "The knee", "no search was made (--find)")
