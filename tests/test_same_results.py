import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from tools.same_results import main


def results(folder: Path, point_id: str = "a", value: float = 1.0, meter: float = 2.0, seed: int = 0) -> Path:
    record = folder / "run" / "points" / point_id
    record.mkdir(parents=True)
    asked = {"engine": "liveserve", "seed": seed, "code_hash": point_id}
    (record / "manifest.json").write_text(json.dumps({"point": asked}))
    (record / "run.json").write_text(json.dumps({"counters": {"steps": 3}}))
    row = {"point": point_id, "metrics": {"ttft_p50": value, "power_w": meter}}
    (folder / "run" / "summary.json").write_text(json.dumps([row]))
    pq.write_table(pa.table({"t": [value], "power_w": [meter]}), record / "events.parquet")
    return folder


@pytest.mark.parametrize(
    ("after", "without", "status", "said"),
    [
        ({"point_id": "b"}, [], 0, "1 points, 2 tables and summaries: 0 differ."),
        ({"value": 1.5}, [], 1, "run/points/a/events.parquet has other bytes"),
        ({"meter": 3.0}, [], 1, "run/points/a/metrics and counters have other values"),
        ({"meter": 3.0}, ["power_w"], 0, "2 tables and summaries: 0 differ."),
        ({"seed": 1}, [], 1, "only before: run "),
    ],
)
def test_it_sees_what_differs(tmp_path: Path, capsys, after: dict, without: list[str], status: int, said: str):
    before, changed = results(tmp_path / "before"), results(tmp_path / "after", **after)
    with pytest.raises(typer.Exit) as end:
        main(before, changed, without)
    assert end.value.exit_code == status and said in capsys.readouterr().out
