from pathlib import Path

import pytest

from reports.pages.html import write_report
from reports.tables.columns import CLASSES, class_names
from tests.reports.page import Page, terminal
from tests.reports.served import bench, serve

pytestmark = pytest.mark.usefixtures("unrendered")

# The scripted liveserve answers after 0.2 s, in time; the baseline after 0.3 s.
SETTINGS = {"requests": 6, "documents": 2, "ttft_deadline_s": 0.25}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = bench(workload="co_serving", set=SETTINGS, grid={"rate": [1.0, 2.0]}, seeds=[0, 1])
    return serve(tmp_path_factory.mktemp("classes") / "run", experiment)


def test_the_terminal_has_a_row_for_each_class(folder: Path) -> None:
    lines = terminal(folder, 160)
    start = next(index for index, line in enumerate(lines) if "by class of request" in line)
    rows = [line.split() for line in lines[start:] if {"online", "batch"} & set(line.split())]
    assert [("online" in row) for row in rows] == [True, False] * 4
    assert rows[0][:6] == ["liveserve", "1.0", "online", "6", "200*", "100.0"]  # n, P99 TTFT in ms, % in time
    assert rows[1][:4] == ["batch", "2", "200*", "–"]
    by_engine = {row[0]: row for row in rows if "online" in row}
    assert by_engine["vllm_omni"][4:6] == ["300*", "0.0"]


def test_the_report_has_a_table_of_classes(folder: Path) -> None:
    header, *rows = Page(write_report(folder).read_text()).section("By class of request")
    assert header == ["rate", "engine", "class", *(f"{c.heading} | {c.unit}" for c in CLASSES)]
    assert [row[2] for row in rows] == ["online", "batch"] * 4
    assert [row[1] for row in rows[:4]] == ["vllm_omni", "", "liveserve", ""]
    in_time = header.index("TTFT | % in time")
    assert [row[in_time].split()[0] for row in rows[:4]] == ["0.0", "–", "100.0", "–"]


def test_the_most_urgent_class_comes_first_and_points_without_one_name_none() -> None:
    points = [{"b.priority": 3.0, "a.priority": 10.0, "a.completed": 1.0}, {"c.priority": None}, {"completed": 1.0}]
    assert class_names(points) == ["b", "a"]
