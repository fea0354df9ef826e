"""From the table of turns to the numbers of one run, each with its n and what is missing from it."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from harness.metrics.metric import Measured, Metric, named, share, statistic
from harness.metrics.turn_taking import COLUMNS
from harness.metrics.turn_taking_definitions import DELAYS, FALSE_ALARMS, STATISTICS, TURN_TAKING_DEFINITIONS

_Columns = Mapping[str, np.ndarray]
_TEXTS = ("said", "event")


def summarise_turn_taking(table: pd.DataFrame) -> dict[str, Metric]:
    """All metrics of `TURN_TAKING_DEFINITIONS` in their order; `table` as of `turn_taking_table`."""
    turns = _columns(table)
    measured = {
        f"{name}_{each}": statistic(_delays(turns, name), each) for name in DELAYS for each in STATISTICS
    } | _rates(turns)
    return named(measured, TURN_TAKING_DEFINITIONS)


def delays(table: pd.DataFrame, name: str) -> np.ndarray:
    """Such a delay of every turn that should have one, s; NaN where it has none."""
    return _delays(_columns(table), name)


def _columns(table: pd.DataFrame) -> _Columns:
    return {name: table[name].to_numpy(str if name in _TEXTS else float) for name in COLUMNS}


def _delays(turns: _Columns, name: str) -> np.ndarray:
    return turns[DELAYS[name][0]][_concerned(turns, name)]


def _concerned(turns: _Columns, name: str) -> np.ndarray:
    """The turns that should have such a delay."""
    if name in ("stop", "stop_server"):
        return (turns["event"] == "interruption") & (turns["happened"] > 0)
    if name == "talk_over":
        return turns["user_speech_s"] > 0
    corrected = (turns["said"][1:] == "correction") & (turns["session"][1:] == turns["session"][:-1])
    ended = ~np.isnan(turns["user_end_s"]) & ~np.append(corrected, False)[: len(turns["said"])]
    if name == "respond":
        return ended & (turns["said"] == "interruption")
    if name == "end_of_turn_delay":
        return ended
    return ended & ~np.isnan(turns["end_of_turn_delay_s"])


def _rates(turns: _Columns) -> dict[str, Measured]:
    event, interrupted, spoke = turns["event"], turns["interrupted"], turns["user_speech_s"] > 0
    speech_s, over_s = (float(turns[name][spoke].sum()) for name in ("user_speech_s", "talk_over_s"))
    recall, n, missing = statistic(interrupted[event == "interruption"], "mean")
    return {
        "talk_over_share": (over_s / speech_s if speech_s else None, int(spoke.sum()), 0),
        "takeover": share(turns["takeover"]),
        "cut_in": share(turns["cut_in"]),
        "false_interruption": statistic(interrupted[np.isin(event, FALSE_ALARMS)], "mean"),
        **{
            f"false_interruption_{kind}": statistic(interrupted[event == kind], "mean")
            for kind in FALSE_ALARMS
        },
        "interruption_recall": (recall, n, missing),
        "interruption_misses": (None if recall is None else float(round(n * (1 - recall))), n, missing),
        "correction_recall": statistic(turns["gave_way"][event == "correction"], "mean"),
        "resumption": share(turns["resumed"]),
    }
