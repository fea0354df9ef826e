"""Turn taking: the numbers of one run, from its table of turns (`harness.request_tables.turn_taking_table`)."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd

from harness.metrics.definitions import Definition, share_of, statistics
from harness.metrics.metric import Measured, Metric, metrics_of, share, statistic
from harness.request_tables.turn_taking_table import COLUMNS, REACTION_S
from workloads.columns.duplex_events import EVENTS, TAKES_FLOOR

FALSE_ALARMS = tuple(event for event in EVENTS if event not in TAKES_FLOOR)
"""Events at which the agent should go on."""
_ANSWERED = (
    "over turns said to their end, without turns that the user takes up again; infinite where no reply began to sound "
    "before the user's next turn, missing where one sounds at the turn's end"
)
_REPORTED = "over answered turns whose end the server reported"
_SERVER = "over turns with the server's own log"
_STOPPED = "over interruptions of a reply under way; infinite where it was not cut"
_WITHIN = f"cut, its sound over within {REACTION_S:g} s of the event's begin"

# By name: the column of the table, the meaning, the origin.
DELAYS: dict[str, tuple[str, str, str]] = {
    "end_of_turn_delay": (
        "end_of_turn_delay_s", "time from the end of the user's turn to the first audible sound of a reply", _ANSWERED,
    ),
    "endpointing": (
        "endpointing_s", "part of the end-of-turn delay until the server reports the end; below 0 if early", _REPORTED,
    ),
    "network": ("network_s", "part of the end-of-turn delay on the network, unless endpointing includes it", _SERVER),
    "server": ("server_s", "part of the end-of-turn delay from there to the reply's first packet", _REPORTED),
    "playout": ("playout_s", "part of the end-of-turn delay from there to the first audible sound", _REPORTED),
    "queue": ("queue_s", "part of the server's time in the thinker's queue", _SERVER),
    "prefill": ("prefill_s", "part of the server's time from there to the first token", _SERVER),
    "first_packet": ("first_packet_s", "remaining part of the server's time, to the first packet", _SERVER),
    "stop": (
        "stop_s", "time from the begin of an interruption to the last sound of the reply that it cut", _STOPPED,
    ),
    "stop_server": ("stop_server_s", "time from the begin of an interruption to the arrival of that sound", _STOPPED),
    "stop_report": (
        "stop_report_s", "time from the begin of an interruption to the server's message that cuts the reply", _STOPPED,
    ),
    "respond": (
        "end_of_turn_delay_s", "end-of-turn delay of interrupting words",
        "over interruptions; infinite and missing as there",
    ),
    "talk_over": ("talk_over_s", "time in which the agent sounds while the user speaks to it", "over turns"),
}  # fmt: skip

_Columns = Mapping[str, np.ndarray]
_TEXTS = ("said", "event")


def summarise_turn_taking(table: pd.DataFrame) -> dict[str, Metric]:
    """Return all metrics of `TURN_TAKING_DEFINITIONS` in their order; `table` as of `turn_taking_table`."""
    return metrics_of(_columns(table), TURN_TAKING_DEFINITIONS, [_every_delay, _rates])


def _every_delay(turns: _Columns) -> dict[str, np.ndarray]:
    return {name: _delays(turns, name) for name in DELAYS}


def delays(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return such a delay of every turn that should have one, s: infinite where the agent never answered or stopped,
    NaN where the turn has none for another reason."""
    return _delays(_columns(table), name)


def _columns(table: pd.DataFrame) -> _Columns:
    return {name: table[name].to_numpy(str if name in _TEXTS else float) for name in COLUMNS}


def _delays(turns: _Columns, name: str) -> np.ndarray:
    return turns[DELAYS[name][0]][_concerned(turns, name)]


def _concerned(turns: _Columns, name: str) -> np.ndarray:
    if name in ("stop", "stop_server", "stop_report"):
        return (turns["event"] == "interruption") & (turns["happened"] > 0)
    if name == "talk_over":
        return turns["user_speech_s"] > 0
    corrected = (turns["said"][1:] == "correction") & (turns["session"][1:] == turns["session"][:-1])
    ended = ~np.isnan(turns["user_end_s"]) & ~np.append(corrected, False)[: len(turns["said"])]
    if name == "respond":
        return ended & (turns["said"] == "interruption")
    if name == "end_of_turn_delay":
        return ended
    return ended & np.isfinite(turns["end_of_turn_delay_s"])


def _rates(turns: _Columns) -> dict[str, Measured]:
    event, interrupted, spoke = turns["event"], turns["interrupted"], turns["user_speech_s"] > 0
    speech_s, over_s = (float(turns[name][spoke].sum()) for name in ("user_speech_s", "talk_over_s"))
    recall, n, missing = statistic(interrupted[event == "interruption"], "mean")
    return {
        "talk_over_share": (over_s / speech_s if speech_s else None, int(spoke.sum()), 0),
        "takeover": share(turns["takeover"]),
        "cut_in": share(turns["cut_in"]),
        "false_interruption": statistic(interrupted[np.isin(event, FALSE_ALARMS)], "mean"),
        **{f"false_interruption_{kind}": statistic(interrupted[event == kind], "mean") for kind in FALSE_ALARMS},
        "interruption_recall": (recall, n, missing),
        "interruption_misses": (None if recall is None else float(round(n * (1 - recall))), n, missing),
        "correction_recall": statistic(turns["gave_way"][event == "correction"], "mean"),
        "resumption": share(turns["resumed"]),
    }


_share = partial(share_of, shown="", digits=2)
_SHARES: dict[str, Definition] = {
    "talk_over_share": _share(
        "share of the user's speech to the agent over which the agent sounds", "over all of it", "lower"),
    "takeover": _share(
        "share of turns with a hesitation in which a reply began to sound in the silence or in the rest of the "
        "turn",
        "over turns with a hesitation that were said to their end", "lower"),
    "cut_in": _share(
        "share of turns without a hesitation during which a reply began to sound",
        "over turns said to their end, without corrections", "lower"),
    "false_interruption": _share(
        f"share of sounds that take no floor at which the reply under way was {_WITHIN}",
        "over such sounds in a reply; missing are events that never came, as the reply or the run was over", "lower"),
    **{
        f"false_interruption_{event}": _share(f"the same share of {event} alone", "as there", "lower")
        for event in FALSE_ALARMS
    },
    "interruption_recall": _share(
        f"share of interruptions at which the reply under way was {_WITHIN}",
        "over interruptions in a reply; missing are events that never came, as the reply or the run was over",
        "higher"),
    "interruption_misses": Definition("1", "interruptions that the agent talked on over", "as there", "lower"),
    "correction_recall": _share(
        "share of corrections during which no reply began to sound, and one that had begun was cut within "
        f"{REACTION_S:g} s",
        "over corrections that were said", "higher"),
    "resumption": _share(
        f"share of false interruptions after which the agent went on within {REACTION_S:g} s",
        "over false interruptions", "higher"),
}  # fmt: skip

TURN_TAKING_DEFINITIONS: dict[str, Definition] = {
    **statistics(
        ("p50", "p95", "mean"),
        {
            name: Definition("s", f"of the {meaning}", origin, "lower", digits=0)
            for name, (_, meaning, origin) in DELAYS.items()
        },
    ),
    **_SHARES,
}
"""Every metric of `summarise_turn_taking`, in its order."""
