"""Five values of ConServe's cards, computed again from a run's raw events and trace, without the code of any metric."""

from typing import Any

import pandas as pd
import pytest

from reports.claims.quantities import over_points
from reports.papers.conserve.loads import SLO, both
from reports.papers.conserve.measures import TBT, TPS, TTFT, kept
from reports.papers.conserve.systems import OURS
from reports.runs.measured import Measured
from tests.reports.raw import events, served

SCALE = 1.1
TTFT_S, TBT_S = (SCALE * limit_s for limit_s in SLO["rate 2"])


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    experiment = both("values", SLO["rate 2"], SCALE, [OURS], seeds=[0], requests=24)
    return served(tmp_path_factory.mktemp("values") / "run", experiment)


class Raw:
    """What the events say of each request: s of the run."""

    def __init__(self, point: Measured) -> None:
        log = events(point)
        trace: Any = point.record.table("trace").set_index("session")
        online = trace.index[trace["request_class"] == "online"]
        texts = log[log["kind"].isin(["first_text", "text"])]
        theirs = texts[texts["session"].isin(online)].groupby("session")["t"]
        asked = log[(log["kind"] == "turn_end") & log["session"].isin(online)].set_index("session")["t"]
        self.ttft_s, self.gaps_s = theirs.first() - asked, theirs.diff().dropna()
        # Open loop: from the first user to the last request.
        offline = texts[~texts["session"].isin(online) & (texts["t"] <= asked.max())]
        begun = offline.groupby("session")["t"].first().loc[lambda t: t > asked.min()].index
        tokens = offline.query("t > @asked.min()")["value"].sum() + trace["input_tokens"].loc[begun].sum()
        self.offline_tps = tokens / (asked.max() - asked.min())


def share(values: pd.Series, limit: float) -> float:
    return (values.round(6) <= limit).mean()


def test_values_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    assert point.value(TTFT) == pytest.approx(raw.ttft_s.quantile(0.99), rel=1e-9)
    assert point.value(TBT) == pytest.approx(raw.gaps_s.quantile(0.99), rel=1e-9)
    assert point.value(TPS) == pytest.approx(raw.offline_tps, rel=1e-9)
    for which, values, limit_s in (("ttft", raw.ttft_s, TTFT_S), ("tbt", raw.gaps_s, TBT_S)):
        attained = over_points(kept(which, SLO["rate 2"], SCALE), [point])
        assert list(attained.values()) == [pytest.approx(share(values, limit_s))]
    assert raw.offline_tps > 0 and len(raw.gaps_s) > 1000
