"""The table of disturbed commands: a row is good only if its end has the same bytes, and nothing of it is left."""

from pathlib import Path

import pytest

from tests.selftest.commands import Command
from tests.selftest.kills import Case, Table, at, finished, inside, kill

AT_ONCE = ("at once", lambda started: True)


def test_a_row_is_good_only_with_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command("list", lambda out: ["list", "devices"], prints=True)
    table = Table(tmp_path, {"list": command})
    case = Case("kill -9", AT_ONCE, "list", at(AT_ONCE, kill))
    table.row(case)
    assert (table.good, table.rows) == (1, 1)
    assert "| kill -9 | at once | list | -9 | nothing | 0 | 1 of 1 the same |" in capsys.readouterr().out
    table.whole["list"].result["what it prints"] += b"x"
    table.row(case)
    assert (table.good, table.rows) == (1, 2)
    assert "0 of 1 the same; differs: what it prints" in capsys.readouterr().out


def test_only_what_a_finished_point_holds_has_to_stay(tmp_path: Path) -> None:
    names = ("points/a/summary.json", "night/bench/points/b/log.txt", "points/.tmp-c-1/x", "points/d.failed/x")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert [finished(name) for name in (*names, "summary.json")] == [True, True, False, False, False]
    assert inside(tmp_path) == "2 finished, 1 failed, 1 begun, summary.json"
