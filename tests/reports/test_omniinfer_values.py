"""Six values of OmniInfer's tables, computed again from a run's raw events, without the code of any metric."""

from typing import Any

import pandas as pd
import pytest

from reports.papers.omniinfer.cluster import cluster, qpm, steady
from reports.papers.omniinfer.table2 import ALL
from reports.runs.measured import Measured
from tests.reports.raw import events, served

IN_FLIGHT, NODES = 32, 10


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    asked = cluster("6p8_1d32", IN_FLIGHT, **ALL)
    brief = asked.model_copy(update={"seeds": [0], "set": asked.set | {"output_mean": 100, "requests": 160}})
    return served(tmp_path_factory.mktemp("values") / "run", brief)


def test_values_follow_from_raw_events(point: Measured) -> None:
    log = events(point)
    texts = log[log["kind"].isin(["first_text", "text"])].groupby("session")
    requests: Any = pd.DataFrame(
        {"first": texts["t"].first(), "last": texts["t"].last(), "tokens": texts["value"].sum()}
    )
    requests["came"] = log[log["kind"] == "turn_end"].set_index("session")["t"]
    # From the end of as many requests as are in flight to the first end after the last one has come.
    ends = requests["last"].sort_values()
    begin_s, end_s = ends.iloc[IN_FLIGHT - 1], ends[ends > requests["came"].max()].min()
    inside = requests[requests["came"].between(begin_s, end_s)]
    early = inside[inside["came"] <= begin_s + (end_s - begin_s) / 3]
    assert len(inside) > 60 and len(early) > 20
    per_s = ((ends > begin_s) & (ends <= end_s)).sum() / (end_s - begin_s)
    tpot_s, e2e_s = (early["last"] - early["first"]) / (early["tokens"] - 1), early["last"] - early["came"]
    ours = steady(point)
    assert ours is not None
    assert qpm(point) == pytest.approx(60 * per_s * 2 / NODES)
    assert ours.ttft_mean_s == pytest.approx((inside["first"] - inside["came"]).mean())
    assert ours.tpot_mean_s == pytest.approx(tpot_s.mean())
    assert (ours.e2e_mean_s, ours.e2e_p99_s) == pytest.approx((e2e_s.mean(), e2e_s.quantile(0.99)))
    assert ours.output_tps == pytest.approx(per_s * inside["tokens"].mean())
