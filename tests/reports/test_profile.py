"""What a reader sees of a profile: the residual picture, the tables, and its origin and error in a run's report."""

from pathlib import Path

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

REACTION = {
    "shape": "1 decode at 256 tokens",
    "step_s": 0.004,
    "layer_s": 0.0007,
    "median_s": 0.0005,
    "p90_s": 0.0009,
    "interrupted": 30,
    "ran_out": 10,
}


def profile(**changes) -> Profile:
    return Profile.model_validate({**FACTS, "stages": {"thinker": {**STAGE, "reaction": [REACTION]}}, **changes})


def samples(disturbed: int = 0) -> pd.DataFrame:
    """100 cells of four steps; the conserve form is 10 % too slow everywhere, the segmented one exact."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"cell": np.repeat(np.arange(100), 4)})
    table.insert(0, "stage", "thinker")
    table["tokens"] = table["cell"] % 50 + 1
    table["visible"] = 10 * (table["cell"] + 1)
    table["prefill_tokens"] = np.where(table["cell"] % 2, table["tokens"] - 1, 0)
    table["measured_s"] = 1e-3 * (table["tokens"] + 1)
    table["conserve_s"] = 1.1 * table["measured_s"]
    table["segmented_s"] = table["measured_s"]
    table["kept"] = np.arange(400) >= disturbed
    table.loc[~table["kept"], "measured_s"] *= 5
    table["at_s"] = rng.permutation(400) * 0.01
    table["canary_s"] = 1e-3
    return table


def test_the_picture_shows_each_form_beside_its_error():
    with style():
        picture = profile_page.residuals(profile(), "thinker", samples(disturbed=3))
    conserve, segmented, *_ = picture.figure.axes
    assert "4.0 %, P90 9.0 %" in conserve.get_title("left") and "in use" in segmented.get_title("left")
    shown = np.concatenate([line.get_ydata() for line in conserve.lines[:2]])
    # The disturbed steps of cell 0 are not in its median
    assert len(shown) == 100 and shown == pytest.approx(10)
    assert np.concatenate([line.get_ydata() for line in segmented.lines[:2]]) == pytest.approx(0, abs=1e-9)
    assert "Some CPU" in picture.caption and "2026-01-31" in picture.caption and "300 steps" in picture.caption


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
