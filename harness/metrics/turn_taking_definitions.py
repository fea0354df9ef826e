"""The vocabulary of turn-taking; what public benchmarks call the same things stands in docs/turn-taking.md."""

from harness.metrics.definitions import Definition
from workloads.columns.duplex_events import EVENTS, TAKES_FLOOR

REACTION_S = 2.0
"""An agent that falls silent within so much of an event has done so because of it, and one that goes on within so much
has resumed. [chosen]"""
STATISTICS = ("p50", "p95", "mean")
FALSE_ALARMS = tuple(event for event in EVENTS if event not in TAKES_FLOOR)
"""Events at which the agent should go on."""
_ANSWERED = (
    "over turns said to their end, without those that the user takes up again; missing are those after which no reply "
    "began to sound before the user's next turn, or one sounded already"
)
_TOLD = "over answered turns at whose end the server told that it took them for over"
_SERVER = "over those of which the server's own log is at hand"
_STOPPED = "over interruptions at which the reply under way was cut; missing are those at which it was not"
_WITHIN = f"cut, its sound over within {REACTION_S:g} s of the event's begin"

# By name: the column of the table, the meaning, the origin.
DELAYS: dict[str, tuple[str, str, str]] = {
    "end_of_turn_delay": (
        "end_of_turn_delay_s", "time from the end of the user's turn to the first audible sound of a reply", _ANSWERED,
    ),
    "endpointing": ("endpointing_s", "of it, until the server tells that the turn is over; too early below 0", _TOLD),
    "network": ("network_s", "of it, the way there and back, where endpointing leaves it out", _SERVER),
    "server": ("server_s", "of it, from then to the reply's first packet", _TOLD),
    "playout": ("playout_s", "of it, from the first packet to the first audible sound", _TOLD),
    "queue": ("queue_s", "of the server's part, in the queue of the thinker", _SERVER),
    "prefill": ("prefill_s", "of the server's part, from there to the first token", _SERVER),
    "first_packet": ("first_packet_s", "of the server's part, all else", _SERVER),
    "stop": (
        "stop_s", "time from the begin of an interruption to the last sound of the reply that it cut", _STOPPED,
    ),
    "stop_server": ("stop_server_s", "the same to the arrival of that sound from the server", _STOPPED),
    "respond": (
        "end_of_turn_delay_s", "the end-of-turn delay of interrupting words", "over interruptions; missing as there",
    ),
    "talk_over": ("talk_over_s", "time in which the agent sounds while the user speaks to it", "over turns"),
}  # fmt: skip

_RATES: dict[str, Definition] = {
    "talk_over_share": Definition(
        "1", "share of the user's speech to the agent over which the agent sounds", "over all of it", "lower"
    ),
    "takeover": Definition(
        "1",
        "share of turns with a hesitation in which a reply began to sound in the silence or in the rest of the turn",
        "over turns with a hesitation that were said to their end",
        "lower",
    ),
    "cut_in": Definition(
        "1",
        "share of turns without a hesitation during which a reply began to sound",
        "over turns said to their end, without corrections",
        "lower",
    ),
    "false_interruption": Definition(
        "1",
        f"share of sounds that take no floor at which the reply under way was {_WITHIN}",
        "over such sounds in a reply; missing are those that never came, as the reply or the run was over",
        "lower",
    ),
    **{
        f"false_interruption_{event}": Definition(
            "1", f"the same share of {event} alone", "as there", "lower"
        )
        for event in FALSE_ALARMS
    },
    "interruption_recall": Definition(
        "1",
        f"share of interruptions at which the reply under way was {_WITHIN}",
        "over interruptions in a reply; missing are those that never came, as the reply or the run was over",
        "higher",
    ),
    "interruption_misses": Definition(
        "1", "interruptions that the agent talked on over", "as there", "lower"
    ),
    "correction_recall": Definition(
        "1",
        "share of corrections during which no reply began to sound, and one that had begun was "
        f"cut within {REACTION_S:g} s",
        "over corrections that were said",
        "higher",
    ),
    "resumption": Definition(
        "1",
        f"share of false interruptions after which the agent went on within {REACTION_S:g} s",
        "over false interruptions",
        "higher",
    ),
}

TURN_TAKING_DEFINITIONS: dict[str, Definition] = {
    **{
        f"{name}_{statistic}": Definition("s", f"{statistic.capitalize()} of the {meaning}", origin, "lower")
        for name, (_, meaning, origin) in DELAYS.items()
        for statistic in STATISTICS
    },
    **_RATES,
}
"""Every metric of `harness.metrics.turn_taking`, in its order."""
HEADLINE = (
    "end_of_turn_delay_p50", "end_of_turn_delay_p95", "takeover", "cut_in", "false_interruption", "interruption_recall",
    "stop_p50", "stop_p95", "respond_p50", "talk_over_share",
)  # fmt: skip
