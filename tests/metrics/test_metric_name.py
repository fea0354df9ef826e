"""Names of metrics, taken apart and put together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import HEADLINES
from harness.metrics.metric_name import MetricName, in_class, parsed, quantile_of
from harness.metrics.vocabulary import KNOWN, definition, metric_named
from workloads.errors import UserError

percentiles = st.decimals("0.001", "99.999", places=3).map(lambda number: f"p{number.normalize():f}")
quantities = st.sampled_from(["ttft", "audio_ttfp", "continuity_250ms", "tbt_p99_in_deadline", "on_line", "e2e"])
classes = st.sampled_from(["", "online", "batch-2", "x_p50", "p99"])


@given(st.builds(MetricName, quantities, st.sampled_from(["", "mean", "max"]) | percentiles, classes))
def test_a_name_is_what_its_parts_say(name: MetricName) -> None:
    assert parsed(str(name)) == name and parsed(name.family) == name._replace(statistic="")


@given(percentiles)
def test_any_percentile_of_values_is_a_metric(percentile: str) -> None:
    quantile = quantile_of(percentile)
    assert quantile is not None and float(quantile * 100) == float(percentile[1:])
    for quantity in ("ttft", "frame_latency", "send_delay", "end_of_turn_delay", "online.itl"):
        found = definition(f"{quantity}_{percentile}")
        assert found.definition.startswith(f"P{percentile[1:]} o" if quantity != "frame_latency" else "P")
        assert found.unit == "s" and found.better == "lower"


def test_every_metric_has_a_name_a_unit_a_definition_and_an_origin() -> None:
    of_classes = {in_class("a", name): meaning for name, meaning in CLASS_DEFINITIONS.items()}
    for name, meaning in (KNOWN | of_classes).items():
        assert str(parsed(name)) == name
        assert definition(name) is meaning
        assert meaning.unit in {"s", "1", "1/s", "1/min", "token", "block", "block*s"}, name
        assert meaning.definition and meaning.origin, name
        assert meaning.better in ("lower", "higher", None), name
        assert meaning.unit != "s" or meaning.column[0].split(", ")[-1] in ("s", "ms"), name


def test_the_headlines_of_every_kind_are_known() -> None:
    assert [name for names in HEADLINES.values() for name in names if name not in KNOWN] == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ttft_p999", "ttft_p99.9"),
        ("ttfp_p0", "ttfp_p99"),
        ("online.ttft_p100", "online.ttft_p99"),
        ("ttft_p95.0", "ttft_p99"),
        ("p999", "ttfp_p99.9"),
    ],
)
def test_a_wrong_percentile_is_refused_with_a_right_name(wrong: str, right: str) -> None:
    with pytest.raises(
        UserError, match=rf"^--slo: '{wrong}' is no metric with a percentile .* write for example {right}\.$"
    ):
        metric_named(wrong, "--slo")
    assert metric_named(right, "--slo").endswith(right)


@pytest.mark.parametrize(
    "name", ["continuity_p99", "server_lag_p50", "e2e_mean", "online.e2e_p50", "online.continuity"]
)
def test_a_metric_without_single_values_has_no_percentile(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown metric '{name}'"):
        metric_named(name, "--slo")
