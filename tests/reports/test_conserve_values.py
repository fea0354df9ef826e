"""Five values of ConServe's cards, computed again from a run's raw events and trace, without the code of any metric."""

from collections import defaultdict

import pytest

from reports.claims.quantities import over_points
from reports.papers.conserve.loads import SLO, both
from reports.papers.conserve.measures import TBT, TPS, TTFT, kept
from reports.papers.conserve.systems import OURS
from reports.runs.measured import Measured
from tests.reports.raw import events, percentile, served

SCALE = 1.1
TTFT_S, TBT_S = (SCALE * limit_s for limit_s in SLO["rate 2"])


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    experiment = both("values", SLO["rate 2"], SCALE, [OURS], seeds=[0], requests=24)
    return served(tmp_path_factory.mktemp("values") / "run", experiment)


class Raw:
    """What the events say of each request: s of the run."""

    def __init__(self, point: Measured) -> None:
        trace = point.record.table("trace").to_dict("records")
        prompts = {row["session"]: row["input_tokens"] for row in trace}
        online = {row["session"] for row in trace if row["request_class"] == "online"}
        asked, came = {}, defaultdict(list)
        for event in events(point):
            if event["kind"] == "turn_end" and event["session"] in online:
                asked[event["session"]] = event["t"]
            elif event["kind"] in ("first_text", "text"):
                came[event["session"]].append((event["t"], event["value"]))
        self.ttft_s = [came[session][0][0] - at for session, at in asked.items()]
        self.gaps_s = [
            later - before
            for session in asked
            for (before, _), (later, _) in zip(came[session], came[session][1:], strict=False)
        ]
        # Open loop: from the first user to the last request.
        begin_s, end_s = min(asked.values()), max(asked.values())
        tokens = 0.0
        for session, texts in came.items():
            if session not in online:
                tokens += sum(count for t, count in texts if begin_s < t <= end_s)
                tokens += prompts[session] * (begin_s < texts[0][0] <= end_s)
        self.offline_tps = tokens / (end_s - begin_s)


def share(values: list[float], limit: float) -> float:
    return sum(round(value, 6) <= limit for value in values) / len(values)


def test_values_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    assert point.value(TTFT) == pytest.approx(percentile(raw.ttft_s, 99), rel=1e-9)
    assert point.value(TBT) == pytest.approx(percentile(raw.gaps_s, 99), rel=1e-9)
    assert point.value(TPS) == pytest.approx(raw.offline_tps, rel=1e-9)
    for which, values, limit_s in (("ttft", raw.ttft_s, TTFT_S), ("tbt", raw.gaps_s, TBT_S)):
        attained = over_points(kept(which, SLO["rate 2"], SCALE), [point])
        assert list(attained.values()) == [pytest.approx(share(values, limit_s))]
    assert raw.offline_tps > 0 and len(raw.gaps_s) > 1000
