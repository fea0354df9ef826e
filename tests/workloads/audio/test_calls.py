"""Workload `metronome` over recordings."""

from pathlib import Path

import numpy as np
import pytest

from tests.workloads.audio.conftest import Record
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace


def first_contents(trace: Trace) -> set[float]:
    columns = trace.columns()
    return set(columns["content"][columns["turn"] == 0].tolist())


def test_a_few_recordings_give_128_different_streams(recordings: Path) -> None:
    params = {"path": str(recordings), "skip_bad": True}
    trace = make_trace("metronome", params, 0)
    assert len(first_contents(trace)) == 128
    assert any(note.startswith("audio: ") and note.endswith("without pause") for note in trace.header.notes)
    made_up = make_trace("metronome", {}, 0)
    assert np.array_equal(trace.columns()["output_tokens"], made_up.columns()["output_tokens"])
    assert not np.array_equal(trace.columns()["content"], made_up.columns()["content"])


def test_contents_follow_the_recordings_and_too_few_are_refused(record: Record) -> None:
    folder = record("a.wav", index=3).parent
    params = {"path": str(folder), "sessions": 10, "duration_s": 10}
    one = make_trace("metronome", params, 0)
    assert make_trace("metronome", params, 0) == one
    record("a.wav", index=4)
    assert not first_contents(one) & first_contents(make_trace("metronome", params, 0))
    with pytest.raises(UserError, match=r"s of recordings give no 5000 different streams; give more"):
        make_trace("metronome", params | {"sessions": 5000, "rate": 5000}, 0)
