"""What a reader sees of a profile: the residual picture, the tables, and its origin and error in a run's report."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engines.devices.profile import Profile, save_profile
from reports.figures.style import style
from reports.pages import profile_page
from reports.pages.html import write_report
from reports.pages.profile_page import tables
from tests.calibration.test_profile_file import FACTS, STAGE
from tests.reports.served import bench, serve


def profile(**changes: Any) -> Profile:
    reaction = {"shape": "1 decode at 256 tokens", "step_s": 0.004, "layer_s": 0.0007, "median_s": 0.0005}
    reaction |= {"p90_s": 0.0009, "interrupted": 30, "ran_out": 10}
    return Profile.model_validate({**FACTS, "stages": {"thinker": {**STAGE, "reaction": [reaction]}}, **changes})


def samples(disturbed: int = 0) -> pd.DataFrame:
    """100 cells of four steps; the conserve form is 10 % too slow everywhere, the segmented one exact."""
    cell, kept = np.repeat(np.arange(100), 4), np.arange(400) >= disturbed
    tokens = cell % 50 + 1
    true_s = 1e-3 * (tokens + 1)
    sizes = {"tokens": tokens, "visible": 10 * (cell + 1), "prefill_tokens": np.where(cell % 2, tokens - 1, 0)}
    times = {"measured_s": np.where(kept, true_s, 5 * true_s), "conserve_s": 1.1 * true_s, "segmented_s": true_s}
    when = {"at_s": np.random.default_rng(1).permutation(400) * 0.01, "canary_s": 1e-3}
    return pd.DataFrame({"stage": "thinker", "cell": cell, **sizes, **times, "kept": kept, **when})


def test_the_picture_shows_each_form_beside_its_error():
    with style():
        picture = profile_page.residuals(profile(), "thinker", samples(disturbed=3))
    conserve, segmented, *_ = picture.figure.axes
    assert "4.0 %, P90 9.0 %" in conserve.get_title("left") and "in use" in segmented.get_title("left")
    off, exact = (
        np.concatenate([np.asarray(line.get_ydata()) for line in axes.lines[:2]]) for axes in (conserve, segmented)
    )
    assert len(off) == 100 and off == pytest.approx(10)  # the disturbed steps of cell 0 are not in its median
    assert exact == pytest.approx(0, abs=1e-9)
    for words in ("Some CPU", "2026-01-31", "300 steps"):
        assert words in picture.caption


def test_the_tables_hold_both_forms_the_drift_and_the_reaction():
    forms, machine, reaction = tables(profile())
    assert [row[0] for row in forms.rows] == ["conserve", "segmented (in use)"]
    assert forms.rows[1][2:4] == ("2.0 %", "5.0 %")
    assert ("canary kernel, median", "1 ms") in machine.rows
    assert reaction.rows == [("1 decode at 256 tokens", "4 ms", "0.7 ms", "0.5 ms", "0.9 ms", "30 of 40")]


@pytest.mark.usefixtures("unrendered")
def test_a_report_quotes_origin_date_and_error(tmp_path: Path):
    path = tmp_path / "p.yaml"
    save_profile(profile(model="speech_tiny"), path)
    settings = {"deployment": "speech_tiny", "sessions": 6, "turns": 2}
    folder = serve(tmp_path / "run", bench(set=settings, profile=str(path)))
    page = " ".join(write_report(folder).read_text().split())
    for words in ("Step times", "speech_tiny on cpu (Some CPU, 2 cores), 2026-01-31", "2.0 % (P90 5.0 %)"):
        assert words in page
