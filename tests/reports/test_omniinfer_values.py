"""Six values of OmniInfer's tables, computed again from a run's raw events, without the code of any metric."""

import pytest

from reports.papers.omniinfer.cluster import cluster, qpm, steady
from reports.papers.omniinfer.table2 import ALL
from reports.runs.measured import Measured
from tests.reports.raw import events, mean, percentile, served

IN_FLIGHT, NODES = 32, 10


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    asked = cluster("6p8_1d32", IN_FLIGHT, **ALL)
    brief = asked.model_copy(update={"seeds": [0], "set": asked.set | {"output_mean": 100, "requests": 160}})
    return served(tmp_path_factory.mktemp("values") / "run", brief)


def test_values_follow_from_raw_events(point: Measured) -> None:
    came: dict[int, float] = {}
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    tokens: dict[int, float] = {}
    for event in events(point):
        session, at_s = event["session"], event["t"]
        if event["kind"] == "turn_end":
            came[session] = at_s
        elif event["kind"] in ("first_text", "text"):
            first.setdefault(session, at_s)
            last[session] = at_s
            tokens[session] = tokens.get(session, 0) + event["value"]
    # From the end of as many requests as are in flight to the first end after the last one has come.
    ends = sorted(last.values())
    begin_s = ends[IN_FLIGHT - 1]
    end_s = next(at_s for at_s in ends if at_s > max(came.values()))
    inside = [session for session, at_s in came.items() if begin_s <= at_s <= end_s]
    per_s = sum(begin_s < at_s <= end_s for at_s in ends) / (end_s - begin_s)
    early = [each for each in inside if came[each] <= begin_s + (end_s - begin_s) / 3]
    assert len(inside) > 60 and len(early) > 20
    ours = steady(point)
    assert ours is not None
    assert qpm(point) == pytest.approx(60 * per_s * 2 / NODES)
    assert ours.ttft_mean_s == pytest.approx(mean([first[each] - came[each] for each in inside]))
    assert ours.tpot_mean_s == pytest.approx(mean([(last[each] - first[each]) / (tokens[each] - 1) for each in early]))
    assert ours.e2e_mean_s == pytest.approx(mean([last[each] - came[each] for each in early]))
    assert ours.e2e_p99_s == pytest.approx(percentile([last[each] - came[each] for each in early], 99))
    assert ours.output_tps == pytest.approx(per_s * mean([tokens[each] for each in inside]))
