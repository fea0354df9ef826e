from pathlib import Path
from typing import Any

import pytest

from engines.devices.profile import Profile, save_profile
from reports.pages.html import write_report
from reports.pages.profile_page import tables
from tests.calibration.test_profile_file import FACTS, STAGE
from tests.reports.served import bench, serve


def profile(**changes: Any) -> Profile:
    reaction = {"shape": "1 decode at 256 tokens", "step_s": 0.004, "layer_s": 0.0007, "median_s": 0.0005}
    reaction |= {"p90_s": 0.0009, "interrupted": 30, "ran_out": 10}
    return Profile.model_validate({**FACTS, "stages": {"thinker": {**STAGE, "reaction": [reaction]}}, **changes})


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
