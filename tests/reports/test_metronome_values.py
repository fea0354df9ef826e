"""Eleven values of Metronome's cards, computed again from raw events and steps, without the code of any metric."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.papers.metronome.calls import BASELINE, calls
from reports.papers.metronome.fig7 import oldest_call
from reports.papers.metronome.measures import speech_after_wall
from reports.runs.measured import Measured
from tests.reports.raw import events, served

FRAME_S, SLOW_S = 2.0, 0.95 * 1.6


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    small = {"sessions": 12, "rate": 2.0, "kv_pool_blocks": 500, "duration_s": 80.0, "window": 4096}
    folder = tmp_path_factory.mktemp("values") / "run"
    return served(folder, calls("values", [BASELINE], seeds=[1], admission="aimd", cap_start=8, slow_start=1, **small))


class Raw:
    """What the events say: times (s of the run) and values of each frame by session and turn, and of sessions."""

    def __init__(self, point: Measured) -> None:
        log = events(point)
        by_kind = dict([*log.groupby("kind", observed=True)])
        self.due, self.fed, self.out = (
            by_kind[kind].set_index(["session", "turn"]) for kind in ("turn_end", "fed", "frame_out")
        )
        self.admitted, self.asked = by_kind["admitted"].set_index("session")["t"], len(by_kind["session_start"])
        self.refused_s = log.query("kind == 'alloc_fail' and value == 0")["t"].min()
        self.end_s = log["t"].max()
        self.fed_s = self.fed["t"].loc[self.out.index]
        self.latency_s = self.out["t"] - self.fed_s

    def wall_s(self) -> float:
        """The first slow Step of the first of the 10 s from which on every median is at the longest wait."""
        ten = self.fed_s // 10
        medians = self.latency_s.groupby(ten).median().reindex(range(int(ten.max()) + 1))
        first = medians.index[~(medians >= SLOW_S)].max() + 1
        return self.fed_s[(ten >= first) & (self.latency_s >= SLOW_S)].min()


def test_latencies_and_speech_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    later = raw.latency_s[raw.latency_s.index.get_level_values("turn") > 0]
    judged = raw.out.loc[raw.out.index.intersection(raw.due.query("turn >= 2").index)]
    after = raw.due["t"].loc[judged.index] >= raw.wall_s()
    assert point.value("wall_s") == pytest.approx(raw.wall_s())
    assert point.value("frame_latency_p50") == pytest.approx(later.quantile(0.5))
    second_half = later[raw.fed_s.loc[later.index] >= raw.end_s / 2]
    assert point.value("steady_latency_p99") == pytest.approx(second_half.quantile(0.99))
    assert point.value("frames_with_speech") == pytest.approx((judged["value"] > 0).mean())
    assert speech_after_wall(point) == pytest.approx((judged["value"][after] > 0).mean())
    assert point.value("deadline_misses") == (raw.latency_s > FRAME_S).sum() == 0


def test_pool_and_admission_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    steps: Any = point.record.table("steps")
    used = pd.Series((steps["kv_used"] / steps["kv_blocks"]).to_numpy(), steps["t_s"] + steps["dt_s"]).sort_index()
    seconds = np.arange(int(raw.due["t"].max()) + 1)
    shares = np.array([used.loc[:second].iloc[-1] if (used.index <= second).any() else 0.0 for second in seconds])
    early = (seconds >= 10) & (seconds <= 60) & (shares < 0.6)
    slope, at_0 = np.polyfit(seconds[early], shares[early], 1)
    assert point.value("pool_peak") == pytest.approx(shares.max())
    assert point.value("saturation_measured_s") == pytest.approx(min([raw.refused_s, *seconds[shares >= 0.995]]))
    assert point.value("saturation_predicted_s") == pytest.approx((1 - at_0) / slope)
    assert point.value("admitted") == len(raw.admitted) < raw.asked
    oldest = (table.loc[raw.admitted.idxmin()] for table in (raw.fed, raw.out))
    tokens = sum(rows["value"][rows["t"] <= raw.admitted.max()].sum() for rows in oldest)
    assert oldest_call(point) == pytest.approx(tokens / 4096)
