"""What whole live runs share."""

import pytest

from harness.live.run import measure_live as live_measure

FLOOR = {"send_delay_p99_s": 0.001, "bias_p50_s": 0.0001, "bias_p99_s": 0.0002}


@pytest.fixture
def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The floor is not measured, for which test_quality has tests."""
    monkeypatch.setattr(live_measure, "cached_floor", lambda *_: FLOOR)
