"""Ten values of Nova's cards, computed again from a run's raw events, without the code of any metric."""

from collections import Counter, defaultdict
from statistics import correlation

import pytest

from reports.claims.quantities import Quantity, over_points
from reports.papers.nova.common import E2E, E2E_MAX, OURS, TBT, gui
from reports.papers.nova.fig10 import throughput
from reports.papers.nova.fig11 import TTFT, decode_batch
from reports.papers.nova.fig14 import quickens
from reports.papers.nova.table5 import WAIT, processing_s, theory_s
from reports.runs.measured import Measured
from tests.reports.raw import events, mean, served

RATE, REQUESTS = 0.7, 60
ALIKE_S = 1e-9


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    asked = gui("values", [OURS], [RATE], requests=REQUESTS).model_copy(update={"seeds": [0]})
    return served(tmp_path_factory.mktemp("values") / "run", asked)


class Raw:
    """What the events say of each request, by session: s of the run. The first token ends its prefill, which follows
    its vision at once."""

    def __init__(self, point: Measured) -> None:
        at: dict[str, dict[int, float]] = defaultdict(dict)
        self.texts: Counter[int] = Counter()
        decoded: list[float] = []
        for event in events(point):
            kind, session, t = event["kind"], event["session"], event["t"]
            if kind in ("first_text", "text"):
                at["first_text"].setdefault(session, t)
                at["last_text"][session] = t
                self.texts[session] += event["value"]
            elif kind == "token" and session in at["first_token"]:
                decoded.append(t)
            else:
                at["first_token" if kind == "token" else kind][session] = t
        self.at = at
        self.iterations = Counter(decoded)

    def each(self, since: str, until: str) -> list[float]:
        """Return the seconds from one event of a request to another."""
        return [t - self.at[since][session] for session, t in self.at[until].items()]

    def count(self, kind: str, until_s: float) -> int:
        return sum(t <= until_s + ALIKE_S for t in self.at[kind].values())


def ranks(values: list[float]) -> list[float]:
    """From the least up; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def ours(quantity: Quantity, point: Measured) -> float | None:
    return over_points(quantity, [point])[point.seed]


def test_latencies_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    e2e_s = raw.each("turn_end", "last_text")
    spans = {each: raw.at["last_text"][each] - raw.at["first_text"][each] for each in raw.at["turn_end"]}
    lasted_s = max(raw.at["last_text"].values()) - min(raw.at["turn_end"].values())
    assert len(e2e_s) == REQUESTS
    assert ours(E2E, point) == pytest.approx(mean(e2e_s))
    assert ours(E2E_MAX, point) == pytest.approx(max(e2e_s))
    assert ours(TTFT, point) == pytest.approx(mean(raw.each("turn_end", "first_text")))
    assert ours(TBT, point) == pytest.approx(mean([span_s / (raw.texts[each] - 1) for each, span_s in spans.items()]))
    assert ours(throughput, point) == pytest.approx(REQUESTS / lasted_s)


def test_stages_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    services_s = raw.each("start", "first_token")
    squares = mean([service_s**2 for service_s in services_s])
    assert ours(WAIT, point) == pytest.approx(mean(raw.each("arrive", "start")))
    assert ours(processing_s, point) == pytest.approx(mean(services_s))
    assert ours(theory_s, point) == pytest.approx(RATE * squares / 2 / (1 - RATE * mean(services_s)))
    assert ours(decode_batch, point) == pytest.approx(mean([*map(float, raw.iterations.values())]))


def test_the_correlation_follows_from_raw_events(point: Measured) -> None:
    raw, passes = Raw(point), point.record.table("steps").query("stage == 'vision' and requests > 0")
    seconds, pending = [], []
    for at_s, lasted_s in zip(passes["t_s"], passes["dt_s"], strict=True):
        if raw.count("first_token", at_s) > raw.count("finish", at_s):  # somebody decodes
            seconds.append(lasted_s)
            pending.append(raw.count("arrive", at_s) - raw.count("first_token", at_s))
    assert len(seconds) > 30
    assert ours(quickens, point) == pytest.approx(correlation(ranks(seconds), ranks(pending)))
