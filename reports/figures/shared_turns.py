"""Turns that every variant served from the same trace, so that one can be looked at under each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.metrics.playback import Playback
from reports.measured import Measured, Run, Variant


@dataclass(frozen=True, eq=False)
class SharedTurn:
    """One turn of the trace with its row of the request table under every variant."""

    seed: int
    session: int
    turn: int
    points: Mapping[Variant, Measured]
    rows: Mapping[Variant, pd.Series]

    @property
    def name(self) -> str:
        return f"session {self.session}, turn {self.turn}"

    def events(self, variant: Variant, turns: int = 1) -> pd.DataFrame:
        """The event log of this turn, or of it and those after it."""
        log = self.points[variant].events(self.session)
        return log[(log["turn"] >= self.turn) & (log["turn"] < self.turn + turns)]

    def playback(self, variant: Variant) -> list[tuple[float, float]]:
        return playback(self.events(variant))


def shared_turns(run: Run, where: Mapping[str, Any], status: str) -> list[SharedTurn]:
    """The spoken turns at these parameters that ended with `status` under every variant, seed by seed."""
    found = []
    for seed in run.seeds:
        points = {
            variant: point
            for variant in run.variants
            for point in run.at(variant, **where)
            if point.seed == seed and point.error is None
        }
        if len(points) < len(run.variants) or len({point.point.trace_hash for point in points.values()}) > 1:
            continue
        tables = {}
        for variant, point in points.items():
            table = point.requests
            kept = table["spoken"] & (table["status"] == status) & (table["audio_s"] > 0)
            tables[variant] = table[kept].set_index(["session", "turn"], drop=False)
        common = pd.MultiIndex.from_tuples(
            sorted(set.intersection(*(set(table.index) for table in tables.values())))
        )
        for session, turn in common:
            rows = {variant: table.loc[(session, turn)] for variant, table in tables.items()}
            found.append(SharedTurn(seed, int(session), int(turn), points, rows))
    return found


def playback(log: pd.DataFrame) -> list[tuple[float, float]]:
    """When one reply was heard: (begin, end) of each stretch without a pause, in s on the log's clock.

    The last stretch ends with the audio, or with the barge-in.
    """
    player = Playback()
    stretches: list[list[float]] = []
    packets = log[(log["kind"] == "audio") & (log["value"] > 0)]
    for t, audio_s in zip(packets["t"], packets["value"], strict=True):
        gap_s = player.arrive(float(t), float(audio_s))
        if gap_s > 0 or not stretches:
            stretches.append([float(t), player.end_s])
        stretches[-1][1] = player.end_s
    cut_s = float(log.loc[log["kind"] == "barge_in", "t"].min())
    return [(begin, min(end, cut_s) if cut_s == cut_s else end) for begin, end in stretches]
