"""Energy: J is W times s, says what it rests on, and is missing where nobody says."""

from pathlib import Path

import pandas as pd
import pytest

from engines.server import ServerParams, resolve
from harness.request_tables.live_window import Window
from reports.cost.energy import (
    AT_MOST,
    GIVEN,
    MEASURED,
    Energy,
    busy_power,
    energy,
    energy_note,
    kernel_j,
    power,
)
from reports.pages.html import write_report
from tests.reports import served
from tests.reports.page import Page
from tools.kernel_power import drawn

pytestmark = pytest.mark.usefixtures("unrendered")

B200 = resolve(ServerParams(deployment="qwen3_omni_2gpu", gpu="b200"))


class Stepped:
    """A record of steps alone: (stage, begins, takes, tokens of prompts)."""

    def __init__(self, *rows: tuple[str, float, float, int]) -> None:
        names = ["stage", "t_s", "dt_s", "prefill_tokens"]
        self.steps = pd.DataFrame(rows, columns=names).assign(replica=0)

    def table(self, name: str, **options: object) -> pd.DataFrame:
        assert name == "steps"
        return self.steps


def test_joules_are_watts_times_seconds_and_say_on_what_they_rest() -> None:
    assert energy("h100", 10.0, None, None) == Energy(AT_MOST, 7000, 7000)
    assert energy("b200", 10.0, 1234.0, None) == Energy(MEASURED, 1234, 10_000)
    assert energy("h100", 10.0, None, 400) == Energy(GIVEN, 4000, 7000)
    assert energy("b200", 10.0, 1234.0, 400) == Energy(GIVEN, 4000, 10_000)  # a user knows better
    texts = [Energy(basis, 1234.5, 10_000).text for basis in (AT_MOST, MEASURED, GIVEN)]
    assert texts == ["≤ 1,234", "1,234 to 10,000", "1,234"]


def test_missing_is_missing() -> None:
    assert energy("cpu_core", 10.0, None, None) == Energy(None, None, None)
    assert energy("h100", None, None, None) == Energy(AT_MOST, None, None)
    assert energy("b200", 10.0, None, None).j is None  # never the data sheet's under the other label
    assert Energy(MEASURED, None, 10_000).text == "–"


def test_notes_tell_the_bases_that_occur_once_each() -> None:
    assert energy_note([None]) == []
    (note,) = energy_note([AT_MOST, None, AT_MOST])
    assert AT_MOST in note and len(energy_note([MEASURED, GIVEN])) == 2


def test_busy_seconds_are_at_the_power_of_what_a_step_does() -> None:
    at = busy_power()["b200"]
    record = Stepped(("thinker", 1.0, 0.5, 20), ("thinker", 2.0, 1.0, 0), ("talker", 2.0, 1.0, 0))
    found = kernel_j(record, B200, Window(0.0, 10.0))  # type: ignore[arg-type]
    assert found == pytest.approx(0.5 * at.prompt + 2 * 1.0 * at.decode)
    clipped = kernel_j(record, B200, Window(1.25, 2.5))  # type: ignore[arg-type]
    assert clipped == pytest.approx(0.25 * at.prompt + 2 * 0.5 * at.decode)
    assert kernel_j(record, B200, Window(20.0, 30.0)) == 0  # type: ignore[arg-type]


def test_stages_that_wait_for_each_other_on_one_gpu_count_once() -> None:
    at = busy_power()["b200"]
    record = Stepped(("talker", 0.0, 3.0, 0), ("vocoder", 1.0, 1.0, 4), ("vocoder", 2.5, 1.5, 4))
    found = kernel_j(record, B200, Window(0.0, 10.0))  # type: ignore[arg-type]
    assert found == pytest.approx(2.5 * at.prompt + 1.5 * at.decode)


def test_without_measured_power_or_a_known_gpu_there_are_no_busy_joules() -> None:
    h200 = resolve(ServerParams(deployment="qwen3_omni_2gpu"))
    assert kernel_j(Stepped(("thinker", 0, 1, 0)), h200, Window(0, 1)) is None  # type: ignore[arg-type]
    assert kernel_j(Stepped(), B200, Window(0, 1)) is None  # type: ignore[arg-type]
    assert kernel_j(Stepped(("nobody", 0, 1, 0)), B200, Window(0, 1)) is None  # type: ignore[arg-type]


def test_measured_power_is_below_the_limit_and_prompts_draw_more() -> None:
    assert busy_power().keys() <= power().keys()
    for gpu, busy in busy_power().items():
        assert 0 < busy.decode < busy.prompt < power()[gpu]


def test_power_is_read_by_what_a_step_does(tmp_path: Path) -> None:
    for kind, name, rows in (
        ("attention", "context_attention", {"power": [700.0]}),
        ("attention", "generation_attention", {"power": [300.0, 400.0]}),
        ("moe", "moe", {"power": [500.0, 600.0, 900.0], "num_tokens": [1, 256, 320]}),
    ):
        folder = tmp_path / kind / "vllm" / "0.22.0"
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_parquet(folder / f"{name}_perf.parquet")
    found = {key: list(watts) for key, watts in drawn(tmp_path).items()}
    assert found == {
        ("prompt", "attention"): [700],
        ("prompt", "experts"): [900],
        ("decode", "attention"): [300, 400],
        ("decode", "experts"): [500, 600],
    }


def test_the_report_of_a_run_has_energy_with_its_label(tmp_path: Path) -> None:
    changes = {"grid": {"c": [8]}, "seeds": [0]}
    text = write_report(served.serve(tmp_path / "run", served.bench(**changes))).read_text()
    head, *rows = Page(text).section("Energy")
    assert head == ["c", "engine", "GPUs", "J | a turn", "J | a minute"] and len(rows) == 2
    # The scripted servers log no sessions, so nobody was on line for a minute.
    assert all(row[2] == "2 × h200" and row[3].startswith("≤ ") and row[4] == "–" for row in rows)
    assert (
        "J ≤ (data sheet, at most): every GPU at its power limit all the time." in text
        and "J a to b" not in text
    )
