"""Eleven values of Metronome's cards, computed again from raw events and steps, without the code of any metric."""

import numpy as np
import pytest

from reports.papers.metronome.calls import BASELINE, calls
from reports.papers.metronome.fig7 import oldest_call
from reports.papers.metronome.measures import speech_after_wall
from reports.runs.measured import Measured
from tests.reports.raw import events, mean, percentile, served

FRAME_S, LONGEST_S = 2.0, 1.6
Frame = tuple[int, int]


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    small = {"sessions": 12, "rate": 2.0, "kv_pool_blocks": 500, "duration_s": 80.0, "window": 4096}
    folder = tmp_path_factory.mktemp("values") / "run"
    return served(folder, calls("values", [BASELINE], seeds=[1], admission="aimd", cap_start=8, slow_start=1, **small))


class Raw:
    """What the events say of each frame: s of the run, and tokens."""

    def __init__(self, point: Measured) -> None:
        self.due, self.fed, self.out, self.said = {}, {}, {}, {}
        self.asked, self.admitted, self.prompt, self.refused = 0, {}, {}, []
        for event in events(point):
            kind, at_s, frame = event["kind"], event["t"], (event["session"], event["turn"])
            if kind == "turn_end":
                self.due[frame] = at_s
            elif kind == "fed":
                self.fed[frame], self.prompt[frame] = at_s, event["value"]
            elif kind == "frame_out":
                self.out[frame], self.said[frame] = at_s, event["value"]
            elif kind == "session_start":
                self.asked += 1
            elif kind == "admitted":
                self.admitted[event["session"]] = at_s
            elif kind == "alloc_fail" and event["value"] == 0:
                self.refused.append(at_s)
            self.end_s = at_s
        self.latency = {frame: at_s - self.fed[frame] for frame, at_s in self.out.items()}

    def wall_s(self) -> float:
        """The first slow Step of the first of the 10 s from which on every median is at the longest wait."""
        last = max(int(self.fed[frame] // 10) for frame in self.out)
        by_ten: list[list[tuple[float, float]]] = [[] for _ in range(last + 1)]
        for frame, latency_s in self.latency.items():
            by_ten[int(self.fed[frame] // 10)].append((self.fed[frame], latency_s))
        slow = [len(ten) > 0 and percentile([s for _, s in ten], 50) >= 0.95 * LONGEST_S for ten in by_ten]
        first = max(number for number, each in enumerate(slow) if not each) + 1
        return min(at_s for ten in by_ten[first:] for at_s, s in ten if s >= 0.95 * LONGEST_S)


def occupied(point: Measured, until_s: float) -> list[float]:
    """The share of blocks in use at 0, 1, 2, ... s."""
    steps = point.record.table("steps").to_dict("records")
    ends = [(step["t_s"] + step["dt_s"], step["kv_used"] / step["kv_blocks"]) for step in steps]
    return [
        next((used for end_s, used in reversed(ends) if end_s <= second), 0.0) for second in range(int(until_s) + 1)
    ]


def test_latencies_and_speech_follow_from_raw_events(point: Measured) -> None:
    raw, wall_s = Raw(point), point.value("wall_s")
    later = [latency_s for (_, turn), latency_s in raw.latency.items() if turn > 0]
    second_half = [
        latency_s for frame, latency_s in raw.latency.items() if frame[1] > 0 and raw.fed[frame] >= raw.end_s / 2
    ]
    judged = [frame for frame in raw.due if frame[1] >= 2 and frame in raw.out]
    assert wall_s == pytest.approx(raw.wall_s())
    assert point.value("frame_latency_p50") == pytest.approx(percentile(later, 50))
    assert point.value("steady_latency_p99") == pytest.approx(percentile(second_half, 99))
    assert point.value("frames_with_speech") == pytest.approx(mean([raw.said[each] > 0 for each in judged]))
    assert speech_after_wall(point) == pytest.approx(
        mean([raw.said[each] > 0 for each in judged if raw.due[each] >= raw.wall_s()])
    )
    assert point.value("deadline_misses") == sum(s > FRAME_S for s in raw.latency.values()) == 0


def test_pool_and_admission_follow_from_raw_events(point: Measured) -> None:
    raw = Raw(point)
    shares = occupied(point, max(raw.due.values()))
    early = [second for second in range(10, 61) if shares[second] < 0.6]
    slope, at_0 = np.polyfit(early, [shares[second] for second in early], 1)
    full_s = min(raw.refused + [second for second, share in enumerate(shares) if share >= 0.995])
    assert point.value("pool_peak") == pytest.approx(max(shares))
    assert point.value("saturation_measured_s") == pytest.approx(full_s)
    assert point.value("saturation_predicted_s") == pytest.approx((1 - at_0) / slope)
    assert point.value("admitted") == len(raw.admitted) < raw.asked
    oldest, last_s = min(raw.admitted, key=raw.admitted.__getitem__), max(raw.admitted.values())
    tokens = sum(value for frame, value in raw.prompt.items() if frame[0] == oldest and raw.fed[frame] <= last_s)
    tokens += sum(value for frame, value in raw.said.items() if frame[0] == oldest and raw.out[frame] <= last_s)
    assert oldest_call(point) == pytest.approx(tokens / 4096)
