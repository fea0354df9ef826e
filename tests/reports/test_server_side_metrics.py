import json
from math import inf

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.scraped_histogram import observed
from reports.live.server_side import Both, both_sides, texts

BOUNDS = (0.1, 0.2, 0.5)


def scrape(polls: dict[float, list[float]], name: str = "vllm:time_to_first_token_seconds") -> pd.DataFrame:
    """Answers of a server that had observed `polls` values (s) by each time, over two engines."""
    rows: list[tuple[float, str, str, float]] = []
    for t, values in polls.items():
        for engine in range(2):
            mine = values[engine::2]
            for bound in (*BOUNDS, inf):
                label = json.dumps({"engine": str(engine), "le": "+Inf" if bound == inf else f"{bound}"})
                rows.append((t, f"{name}_bucket", label, float(sum(value <= bound for value in mine))))
            rows.append((t, f"{name}_sum", json.dumps({"engine": str(engine)}), sum(mine)))
    return pd.DataFrame(rows, columns=["t_s", "name", "labels", "value"])


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 2.0), min_size=1, max_size=40), st.floats(0.01, 0.99))
def test_the_bucket_holds_the_quantile(values: list[float], q: float) -> None:
    found = observed(scrape({0.0: [], 5.0: values}), "vllm:time_to_first_token_seconds")
    assert found is not None and found.n == len(values)
    assert found.mean == pytest.approx(np.mean(values))
    low, high = found.bucket(q) or (inf, -inf)
    at = sorted(values)[max(0, int(np.ceil(q * len(values) - 1e-9)) - 1)]
    assert low < at <= high
    assert low <= (found.quantile(q) or 0.0) <= min(high, BOUNDS[-1])


def test_only_what_was_observed_in_between_counts() -> None:
    before, during = [0.05] * 4, [0.15, 0.3]
    table = scrape({0.0: before, 1.0: [*before, *during], 2.0: [*before, *during, 0.4]})
    found = observed(table, "vllm:time_to_first_token_seconds", 0.0, 1.0)
    assert found is not None and (found.n, found.first_s, found.last_s) == (2, 0.0, 1.0)
    assert found.mean == pytest.approx(0.225)


@pytest.mark.parametrize(
    ("polls", "name"),
    [
        ({0.0: [0.1, 0.1], 1.0: [0.1]}, "vllm:time_to_first_token_seconds"),  # began anew
        ({0.0: [0.1]}, "vllm:time_to_first_token_seconds"),  # answered once
        ({0.0: [], 1.0: []}, "another"),
    ],
)
def test_a_server_may_tell_nothing(polls: dict[float, list[float]], name: str) -> None:
    assert observed(scrape(polls), name) is None


def requests(turn_start_s: float = 1.0) -> pd.DataFrame:
    plain = {"session": [0, 1, 2], "turn": 0, "status": ["completed", "completed", "failed"]}
    plain |= {"turn_start_s": turn_start_s, "turn_end_s": 1.0}
    plain |= {"ttft_s": [0.152, 0.162, 9.0], "send_delay_s": [0.002, np.nan, 0.0]}
    return pd.DataFrame(plain | {"generated_entry": pd.array([3, 1, pd.NA], "Int64")})


def test_clients_count_from_their_send() -> None:
    events = pd.DataFrame({"t": [], "kind": [], "session": [], "turn": []})
    [both] = both_sides(scrape({0.0: [], 1.0: [0.14, 0.15]}), requests(), events)
    assert (both.name, both.client_n, both.server_n, both.within) == ("ttft", 2, 2, (0.1, 0.2))
    assert both.client_p50_s == pytest.approx(0.156) and both.server_mean_s == pytest.approx(0.145)
    spoken = both_sides(scrape({0.0: [], 1.0: [0.14]}), requests(turn_start_s=0.0), events)
    assert spoken == [], "vllm counts from each piece of sound"


@pytest.mark.parametrize(
    ("client_s", "said"), [(0.0015, "within its bucket"), (0.01, "within its bucket"), (0.012, "+139.5 %")]
)
def test_no_difference_is_known_within_the_bucket(client_s: float, said: str) -> None:
    both = Both("itl", 1234, client_s, 0.00168, 1234, 0.00501, 0.00168, (0.0, 0.01))
    assert texts(both)[4] == said and texts(both)[-1] == "1,234"


def test_times_between_tokens() -> None:
    messages = [(1.1, "first_text", 0), (1.3, "text", 0), (1.2, "first_text", 1), (1.6, "text", 1), (5.0, "audio", 0)]
    events = pd.DataFrame(messages, columns=["t", "kind", "session"]).assign(turn=0)
    gaps = scrape({0.0: [], 1.0: [0.2, 0.4]}, "vllm:inter_token_latency_seconds")
    means = scrape({0.0: [], 1.0: [0.1]}, "vllm:request_time_per_output_token_seconds")
    each, reply = both_sides(pd.concat([gaps, means]), requests(), events)
    assert (each.name, each.client_n, reply.name) == ("itl", 2, "tpot")
    assert each.client_p50_s == pytest.approx(0.3)
    assert reply.client_p50_s == pytest.approx(0.1), "three tokens in two messages, and a reply of one has none"
