"""Results of interaction sessions from the command line."""

import json
from pathlib import Path

from tests.conftest import Rehearse
from tests.reports import framed


def test_report_and_compare_take_frames(rehearse: Rehearse, tmp_path: Path, unrendered: None) -> None:
    folder = framed.serve(tmp_path / "calls", framed.calls(seeds=[0, 1]))
    status, out, err = rehearse("compare", str(folder), str(folder), "--fail-above", "1")
    assert (status, err) == (0, "") and "speech, % frames" in out and "TTFP" not in out
    status, out, _ = rehearse("compare", str(folder), str(folder), "--metrics", "frame_latency_p90,wall", "--json")
    (metrics, *_) = [cell["metrics"] for cell in json.loads(out)["cells"]]
    assert metrics["wall"]["better"] == "lower" and metrics["frame_latency_p90"]["unit"] == "s"
    assert "'wall'" in rehearse("compare", str(folder), str(folder), "--metrics", "wal")[2]
    assert "latency P99" in rehearse("report", str(folder))[1]
