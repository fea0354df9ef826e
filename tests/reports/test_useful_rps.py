"""Which offered load is the useful one, and why."""

from reports.runs.useful import useful_rps


def points(loads: dict[float, list[float | None]]) -> dict[float, dict[int, float | None]]:
    return {load: dict(enumerate(seeds)) for load, seeds in loads.items()}


def test_the_highest_load_that_keeps_95_percent():
    result = useful_rps(points({1.0: [1.0] * 3, 2.0: [0.96, 0.95, 0.94], 4.0: [0.9, 0.96, 0.94]}))
    assert result.value == 2.0
    assert result.reason == "highest of 3 loads with a median continuity of at least 95%"


def test_none_with_the_reason_of_every_load():
    result = useful_rps(points({1.0: [1.0, 1.0], 2.0: [0.5] * 3, 3.0: [1.0, 1.0, None]}))
    assert result.value is None
    assert "1 rps: not judged, 2 of 3 seeds" in result.reason
    assert "2 rps: median continuity 50.0%" in result.reason
    assert "3 rps: continuity unknown for 1 of 3 seeds" in result.reason


def test_too_few_seeds_are_no_verdict_on_a_load():
    for seeds, ran in ((1, "one seed of each was"), (2, "at most 2 seeds of each were")):
        result = useful_rps(points({1.0: [1.0] * seeds, 2.0: [0.5] * seeds}))
        assert result.value is None
        assert result.reason == f"not judged: a load takes 3 seeds, and {ran} run"


def test_a_lower_load_that_fails_is_named():
    result = useful_rps(points({1.0: [0.5] * 3, 2.0: [1.0] * 3}))
    assert result.value == 2.0 and "although lower loads do not qualify: 1 rps" in result.reason


def test_no_load():
    assert useful_rps({}).reason == "no load was measured"
