"""Useful load: from the points of a run to the highest load that qualifies, with the reason."""

from reports.runs.measured import load_run
from reports.runs.useful import useful_loads
from tests.reports.served import bench, serve


def test_the_load_of_a_closed_loop_is_what_its_callers_complete(tmp_path):
    run = load_run(serve(tmp_path / "run", bench()))
    useful = useful_loads(run)
    assert useful is not None
    assert useful["axes"] == ["p"]
    assert len(useful["rows"]) == len(run.variants) * len(run.values("p"))
    for row in useful["rows"]:
        variant = run.variants[row["variant"]]
        loads = {
            f"{value:.3f}"
            for c in run.values("c")
            for point in run.at(variant, c=c)
            if (value := point.value("completed_rps")) is not None
        }
        assert row["value"] in loads or (row["value"] == "–" and "no load qualifies" in row["reason"])


def test_without_a_varied_load_there_is_nothing_to_say(tmp_path):
    one_load = bench(grid={"p": [0.0]}, set={**bench().set, "c": 4})
    assert useful_loads(load_run(serve(tmp_path / "run", one_load))) is None
