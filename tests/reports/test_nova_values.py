"""Ten values of Nova's cards, computed again from a run's raw events, without the code of any metric."""

from typing import Any

import pytest

from reports.claims.quantities import Quantity, over_points
from reports.papers.nova.common import E2E, E2E_MAX, OURS, TBT, gui
from reports.papers.nova.fig10 import throughput
from reports.papers.nova.fig11 import TTFT, decode_batch
from reports.papers.nova.fig14 import quickens
from reports.papers.nova.table5 import WAIT, processing_s, theory_s
from reports.runs.measured import Measured
from tests.reports.raw import events, served

RATE, REQUESTS = 0.7, 60
ALIKE_S = 1e-9


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    asked = gui("values", [OURS], [RATE], requests=REQUESTS).model_copy(update={"seeds": [0]})
    return served(tmp_path_factory.mktemp("values") / "run", asked)


class Raw:
    """What the events say: when things happened to each request, by session, s of the run. The first token ends its
    prefill, which follows its vision at once."""

    def __init__(self, point: Measured) -> None:
        log = events(point)
        texts = log[log["kind"].isin(["first_text", "text"])].groupby("session")
        tokens = log[log["kind"] == "token"]
        others = log[~log["kind"].isin(["first_text", "text", "token"])]
        self.at = others.groupby(["session", "kind"], observed=True)["t"].last().unstack()
        self.at["first_text"], self.at["last_text"] = texts["t"].first(), texts["t"].last()
        self.at["first_token"] = tokens.groupby("session")["t"].first()
        self.at = self.at.dropna(subset="turn_end")
        self.texts = texts["value"].sum()
        self.batches = tokens[tokens["session"].duplicated()].groupby("t").size()

    def each(self, since: str, until: str) -> Any:
        """The seconds from one event of a request to another."""
        return self.at[until] - self.at[since]

    def count(self, kind: str, until_s: float) -> int:
        return int((self.at[kind] <= until_s + ALIKE_S).sum())


def ours(quantity: Quantity, point: Measured) -> float | None:
    return over_points(quantity, [point])[point.seed]


def test_latencies_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    e2e_s = raw.each("turn_end", "last_text")
    tbt_s = raw.each("first_text", "last_text") / (raw.texts - 1)
    lasted_s = raw.at["last_text"].max() - raw.at["turn_end"].min()
    assert len(e2e_s) == REQUESTS
    assert ours(E2E, point) == pytest.approx(e2e_s.mean()) and ours(E2E_MAX, point) == pytest.approx(e2e_s.max())
    assert ours(TTFT, point) == pytest.approx(raw.each("turn_end", "first_text").mean())
    assert ours(TBT, point) == pytest.approx(tbt_s.mean())
    assert ours(throughput, point) == pytest.approx(REQUESTS / lasted_s)


def test_stages_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    service_s = raw.each("start", "first_token")
    theory = RATE * (service_s**2).mean() / 2 / (1 - RATE * service_s.mean())
    assert ours(WAIT, point) == pytest.approx(raw.each("arrive", "start").mean())
    assert ours(processing_s, point) == pytest.approx(service_s.mean())
    assert ours(theory_s, point) == pytest.approx(theory)
    assert ours(decode_batch, point) == pytest.approx(raw.batches.mean())


def test_the_correlation_follows_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    passes: Any = point.record.table("steps").query("stage == 'vision' and requests > 0")
    done, ended, came = (
        passes["t_s"].map(lambda t, kind=kind: raw.count(kind, t)) for kind in ("first_token", "finish", "arrive")
    )
    decoding = done > ended  # somebody decodes
    assert decoding.sum() > 30
    ranks = [values[decoding].rank() for values in (passes["dt_s"], came - done)]
    assert ours(quickens, point) == pytest.approx(ranks[0].corr(ranks[1]))
