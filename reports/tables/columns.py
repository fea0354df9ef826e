"""Columns of tables, and the format of their numbers."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, inf, isinf
from statistics import mean

from harness.metrics.classes import in_class, split
from harness.metrics.definitions import HEADLINES, Definition
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.reply_length import NEARLY_ALL
from harness.metrics.stats import Spread, across_seeds, share
from harness.metrics.turns import DEFINITIONS, DISTRIBUTIONS
from harness.metrics.vocabulary import OWN_DEFINITIONS, definition
from reports.tables.labels import listed
from workloads.errors import UserError

MISSING = "–"
FLOOR_LATE_S = 0.020
"""P99 of the send delay against the null server above which a note is shown. [chosen] As `send_delay_limit_ms`."""
INFINITE = "∞"
"""The latency of a turn that failed."""
FEW = "*"
"""Behind a percentile of fewer events than it needs."""
_STATISTIC = re.compile(r"(?:P[\d.]+|mean|longest|largest)(?= )", re.IGNORECASE)


@dataclass(frozen=True)
class Column:
    """One metric as shown to readers; `factor` converts the metric's unit to the one shown."""

    metric: str
    heading: str
    unit: str
    factor: float
    digits: int
    first: bool = True
    """True if a reader should see it first."""
    tally: bool = False
    """Something that a run has or has not, shown as k of n runs."""

    @property
    def title(self) -> str:
        """`TTFT P90, ms`."""
        return f"{self.heading}, {self.unit}" if self.unit else self.heading

    def text(self, value: float | None, sign: str = "") -> str:
        """The number without its unit; `sign="+"` for differences."""
        if value is None:
            return MISSING
        if isinf(value):
            return INFINITE
        return f"{self.rounded(value):{sign},.{self.digits}f}".replace("-", "−")

    def said(self, value: float) -> str:
        """The number with its unit, for a sentence: from 10 s on `24.5 s`, and `100 %` without its decimals."""
        if self.unit == "ms" and 10_000 <= abs(self.factor * value) < inf:
            return f"{self.factor * value / 1000:,.1f} s"
        text = self.text(value)
        text = text.rstrip("0").rstrip(".") if "." in text else text
        unit = self.unit.split()[0] if self.unit.startswith("%") else self.unit
        return f"{text} {unit}".strip()

    def rounded(self, value: float) -> float:
        """The number as shown."""
        return round(value * self.factor, self.digits) + 0.0  # no "-0.0"

    def interval(self, low: float, high: float, sign: str = "") -> str:
        return f"{self.text(low, sign)} to {self.text(high, sign)}"

    def over(self, values: Mapping[int, float | None]) -> tuple[str, str]:
        """Return over seeds the median, and lowest to highest; for a tally k of n, and Wilson's interval in %."""
        if not self.tally:
            spread = across_seeds(values)
            return self.text(spread.median), self.range(spread)
        found = share(values)
        if found.median is None or found.interval is None:
            return MISSING, ""
        low, high = (f"{100 * end:.0f}" for end in found.interval)
        return f"{round(found.median * found.n)} of {found.n}", f"{low} to {high} %"

    def range(self, spread: Spread) -> str:
        """Lowest to highest over seeds; empty for fewer than two."""
        if spread.low is None or spread.high is None or spread.n < 2:
            return ""
        return self.interval(spread.low, spread.high)

    def few(self, n: int | None) -> str:
        """The sign of a value over `n` events where these are too few for it, else nothing."""
        return FEW if n is not None and too_few(self.metric, n) else ""


RATIO = Column("", "", "", 1, 3)


def spoken(column: Column) -> str:
    """`P90 TTFT` for the heading `TTFT P90`, as targets are written."""
    return re.sub(r"^(.+) (P[\d.]+)$", r"\2 \1", column.heading)


def fewest(measured: Iterable[tuple[float | None, int]]) -> int | None:
    """Return the events behind a median over runs, given each run's value and n: those of the run with the fewest,
    because a percentile is no better than its weakest run. None if no run has a value."""
    return min((n for value, n in measured if value is not None), default=None)


def legend(columns: Iterable[Column]) -> str:
    """Return the meaning of the sign for the percentiles among these columns."""
    needs = {
        column.metric.rpartition("_")[2].upper(): least_events(column.metric)
        for column in columns
        if least_events(column.metric) > 1
    }
    told = ", ".join(f"{name} {n}" for name, n in sorted(needs.items()))
    return f"{FEW} of fewer events than the percentile needs ({told}): read it as the slowest of them"


FRAMES = (
    Column("frames_with_speech", "speech", "% frames", 100, 1),
    Column("frame_latency_p50", "latency P50", "ms", 1000, 1, first=False),
    Column("frame_latency_p99", "latency P99", "ms", 1000, 1),
    Column("deadline_misses", "misses", "frames", 1, 0),
    Column("wall", "wall", "runs", 1, 0, tally=True),
    Column("wall_s", "wall at", "s", 1, 0, first=False),
    Column("silent_sessions_end", "silent", "at end", 1, 0),
    Column("pool_plateau", "pool plateau", "%", 100, 1, first=False),
    Column("pool_peak", "pool peak", "%", 100, 1),
    Column("saturation_predicted_s", "full at", "predicted, s", 1, 0, first=False),
    Column("saturation_measured_s", "full at", "measured, s", 1, 0, first=False),
    Column("admitted", "admitted", "sessions", 1, 0, first=False),
    Column("shed", "rejected", "sessions", 1, 0, first=False),
)
"""Headline metrics of interaction sessions: dashboard values, service to users, and causes."""


SESSIONS = (
    Column("session_time_p50", "session P50", "s", 1, 1),
    Column("session_pace_p50", "turns", "1/min", 1, 1, first=False),
)
"""Time of a whole session without speech, such as an agent's task."""
JOBS = (
    Column("job_time_p50", "job P50", "s", 1, 1),
    Column("job_recorded_p50", "recorded P50", "s", 1, 1),
    Column("job_tool_time_mean", "tools", "s, mean", 1, 1, first=False),
    Column("job_model_time_mean", "model", "s, mean", 1, 1, first=False),
)
"""Time of agents' jobs, next to their recorded time."""
CUMULATIVE = Column("continuity_fixed_timeline", "cumulative", "%", 100, 1)
"""vLLM-Omni's definition: the pauses of a reply add up."""
WASTED_AUDIO = Column("wasted_audio_ratio", "wasted audio", "%", 100, 1)
LIVE = (
    Column("send_delay_p99", "send delay P99", "ms", 1000, 2, first=False),
    Column("shed", "rejected", "sessions", 1, 0, first=False),
    Column("failed", "failed", "turns", 1, 0, first=False),
)
"""Metrics over real sockets: the load generator's timing and the server's failures."""
COMPLETED = "completed_rps"
PARTS = (
    Column("end_of_turn_p50", "end of turn P50", "ms", 1000, 0, first=False),
    Column("answer_p50", "answer P50", "ms", 1000, 0, first=False),
)
"""The wait for a server that reports the ends of turns."""
ON_LINE = Column("on_line_mean", "users", "mean", 1, 1, first=False)
CAME = Column("sessions_rps", "arrived", "sessions/s", 1, 2, first=False)
"""Metrics of the load at a live endpoint, in a closed and an open loop."""
LEFT_OUT = ("turns_in_ramp", "turns_in_drain")
"""Turns at a live endpoint that no metric covers, because the load was not the planned one when they were asked."""


def live_notes(loads: Mapping[str, Sequence[Mapping[str, float | None]]]) -> list[str]:
    """Return the notes that a reader of a live run's numbers needs, in sentences. `loads`: the metrics of each one's
    runs."""

    def known(name: str) -> dict[str, list[float]]:
        return {
            load: found
            for load, runs in loads.items()
            if (found := [v for run in runs if (v := run.get(name)) is not None])
        }

    notes = []
    stated = known("tokens_stated")
    if any(min(each) < 1 for each in stated.values()):
        parts = [f"{load}{100 * min(each):.0f} %" for load, each in stated.items()]
        notes.append(
            "Times between tokens count messages, one token each, where the server states no token counts; it states "
            f"them for {', '.join(parts)} of the replies."
        )
    tokens, asked, short = (known(f"reply_tokens_{each}") for each in ("mean", "asked", "short"))
    parts = [
        f"{load}{mean(each):.3g} of the {mean(asked[load]):.3g} tokens asked"
        for load, each in tokens.items()
        if sum(short.get(load, ()))
    ]
    if parts:
        notes.append(
            f"Replies are shorter than asked: {', '.join(parts)}, on average. --set ignore_eos=true asks vLLM for all."
        )
    at_once = {load: sum(each) for load, each in known("replies_at_once").items()}
    whole = {load: sum(each) for load, each in known("completed").items()}
    if parts := [
        load for load, count in at_once.items() if count and count >= NEARLY_ALL * whole.get(load, inf)
    ]:
        where = f" ({', '.join(load.removesuffix(': ') for load in parts)})" if any(parts) else ""
        notes.append(
            f"The time to the first output equals the time to the last one{where}: something between us and the server "
            "collects the stream, or the server does not stream."
        )
    late = [
        f"{load}{1e3 * max(each):.0f} ms"
        for load, each in known("floor_send_delay_p99").items()
        if max(each) > FLOOR_LATE_S
    ]
    if late:
        notes.append(
            f"The load generator was late against the null server already (P99 of its send delay: {', '.join(late)}): "
            "this machine was busy before the run began."
        )
    repeated = "Requests that were sent again, because the server had just closed the kept connection: {}."
    early = (
        "Replies that began before the caller had finished, so they have no TTFP: {}. --workload duplex measures "
        "overlapping speech."
    )
    for name, note in (("requests_repeated", repeated), ("early_replies", early)):
        parts = [f"{load}{sum(each):.0f}" for load, each in known(name).items() if sum(each)]
        notes += [note.format(", ".join(parts))] if parts else []
    return notes


CLASSES = (
    Column("ttft_p50", "TTFT P50", "ms", 1000, 0, first=False),
    Column("ttft_p90", "TTFT P90", "ms", 1000, 0, first=False),
    Column("ttft_p99", "TTFT P99", "ms", 1000, 0),
    Column("ttft_in_deadline", "TTFT", "% in time", 100, 1),
    Column("tbt_p50", "TBT P50", "ms", 1000, 1, first=False),
    Column("tbt_p99", "TBT P99", "ms", 1000, 1),
    Column("tbt_in_deadline", "TBT", "% in time", 100, 1),
    Column("tbt_p99_in_deadline", "TBT P99", "% in time", 100, 1, first=False),
    Column("deadlines_met", "all met", "%", 100, 1, first=False),
    Column("goodput_rps", "goodput", "1/s", 1, 3),
    Column("output_tps", "output", "tokens/s", 1, 1),
    Column("completed", "completed", "requests", 1, 0, first=False),
)
"""Columns for each class of requests. A terminal shows only the `first` ones."""


def shown(points: Iterable[Mapping[str, float | None]]) -> list[Column]:
    """The columns for points with these metrics: of a kind with its own, of frames, of spoken replies, or of text; and
    of sockets."""
    known = {name for metrics in points for name, value in metrics.items() if value is not None}
    for headline in HEADLINES.values():
        if any(name in known and name in OWN_DEFINITIONS for name in headline):
            return [column_for(name, columns(spoken=False)) for name in headline if name in known]
    live = list(LIVE) if "send_delay_p99" in known else []
    if "frames_with_speech" in known:
        own = [column for column in FRAMES if column.metric in known]
        return [*own, *(column for column in live if column not in own and column.metric in known)]
    spoken = "audio_ttfp_p50" in known or "continuity" in known
    turns = columns(spoken)
    if "job_time_p50" in known:
        turns += JOBS
    elif "session_time_p50" in known and not spoken:
        turns += SESSIONS
    if not live:
        return turns
    # A foreign server does not always say what it generated; what it sent is known.
    waste = [] if "wasted_token_ratio" in known else [WASTED_AUDIO]
    hidden = {"effective_rps", *({"wasted_token_ratio"} - known)}
    own = [
        replace(column, unit="turns/s") if column.metric == COMPLETED else column  # other than what came
        for column in turns
        if column.metric not in hidden
    ]
    load = [column for column in (ON_LINE, CAME) if column.metric in known]
    own[2:2] = [column for column in PARTS if column.metric in known]
    return [*load, *own, *(column for column in waste if column.metric in known), *live]


def class_names(points: Iterable[Mapping[str, float | None]]) -> list[str]:
    """The classes for which points have metrics, the most urgent first."""
    urgency: dict[str, float] = {}
    for metrics in points:
        for name, value in metrics.items():
            of_class = split(name)
            if of_class and of_class[1] == "priority" and value is not None:
                urgency[of_class[0]] = min(value, urgency.get(of_class[0], value))
    return sorted(urgency, key=lambda name: (urgency[name], name))


def of_class(name: str, columns: Sequence[Column] = CLASSES) -> list[Column]:
    """Columns of a class."""
    return [replace(column, metric=in_class(name, column.metric)) for column in columns]


def vocabulary(columns: Sequence[Column]) -> Mapping[str, Definition]:
    """The metrics of the runs that these columns are for."""
    own = FRAME_DEFINITIONS if columns[0].metric in FRAME_DEFINITIONS else DEFINITIONS
    if any(column.metric in OWN_DEFINITIONS for column in columns):
        own = OWN_DEFINITIONS | DEFINITIONS
    return {**(LIVE_DEFINITIONS if LIVE[0] in columns else {}), **own}


def columns(spoken: bool) -> list[Column]:
    """The headline metrics of turns; a run without spoken replies is judged by its first text token."""
    first, name = ("audio_ttfp", "TTFP") if spoken else ("ttft", "TTFT")
    shared = [
        Column("wasted_token_ratio", "wasted tokens", "%", 100, 1),
        Column(COMPLETED, "completed", "1/s", 1, 3),
    ]
    return [
        Column(f"{first}_p50", f"{name} P50", "ms", 1000, 0, first=False),
        Column(f"{first}_p90", f"{name} P90", "ms", 1000, 0),
        *([Column("continuity", "continuity", "%", 100, 1), CUMULATIVE] if spoken else []),
        *shared,
        *([Column("effective_rps", "effective", "1/s", 1, 3)] if spoken else []),
    ]


def column_for(quantity: str, shown: Sequence[Column]) -> Column:
    """Return the column of any metric: its own, another statistic's, or one by its unit. A name that is not a metric
    is a time in s, read off a picture."""
    family, _, statistic = quantity.rpartition("_")
    for column in shown:
        if column.metric == quantity:
            return column
    for column in shown:
        if family and statistic[1:].isdigit() and column.metric.rpartition("_")[0] == family:
            heading = f"{column.heading.split()[0]} {statistic.upper()}"
            return replace(column, metric=quantity, heading=heading)
    own = split(quantity)
    if own:
        column = next((column for column in CLASSES if column.metric == own[1]), None) or column_for(
            own[1], ()
        )
        return replace(column, metric=quantity, heading=f"{own[0]}: {column.heading}", first=False)
    vocabularies = (DEFINITIONS, FRAME_DEFINITIONS, LIVE_DEFINITIONS, OWN_DEFINITIONS)
    if not any(quantity in known for known in vocabularies):
        return Column(quantity, quantity.replace("_", " "), "s", 1, 1)
    another = quantity in OWN_DEFINITIONS  # its family may be any word, and not a short name in capitals
    heading = quantity.replace("_", " ")
    if statistic[1:].isdigit():
        heading = f"{family.replace('_', ' ') if another else family.upper()} {statistic.upper()}"
    unit, factor, digits = {
        "s": ("ms", 1000, 0 if another else 1),
        "1/s": ("1/s", 1, 3),
        "1": ("", 1, 2),
    }.get(definition(quantity).unit, (definition(quantity).unit, 1, 0))
    return Column(quantity, heading, unit, factor, digits)


PERCENTILE = re.compile(r"p(\d{2})")
"""A percentile without a metric, which means the first wait of users."""


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse metrics such as `ttfp_p95,p99,continuity`; `ttfp` is short for `audio_ttfp`, and a percentile alone stays
    as it is, because each kind of run waits for something else. UserError for an unknown metric."""
    names = [name for name in re.split(r"[,\s]+", text) if name]
    if not names:
        raise UserError(
            f"--columns {text!r} names no metric; write for example --columns p50,p95,p99,continuity."
        )
    return tuple(dict.fromkeys(metric_named(name, "--columns") for name in names))


def metric_named(name: str, option: str, bare: bool = True) -> str:
    """One of them; `bare`: a percentile by itself, too. UserError as there."""
    own = f"audio_{name}" if name.startswith("ttfp_p") or name == "ttfp_mean" else name
    percentiles = [statistic for statistic in DISTRIBUTIONS["ttft"].statistics if statistic[0] == "p"]
    if bare and own in percentiles:
        return own
    try:
        definition(own)
    except KeyError:
        known = [*DEFINITIONS, *FRAME_DEFINITIONS, *LIVE_DEFINITIONS, *OWN_DEFINITIONS]
        known = [each.removeprefix("audio_") if each.startswith("audio_ttfp") else each for each in known]
        family = name.rpartition("_")[0] or name
        near = [each for each in known if each.rpartition("_")[0] in (name, family)]
        near = (
            near
            or difflib.get_close_matches(name, known)
            or (["ttfp_" + name] if name in percentiles else [])
        )
        told = f"near it are {', '.join(map(repr, dict.fromkeys(near)))}" if near else "--json has every name"
        alone = f", and {', '.join(percentiles)} by themselves are of what users wait for first"
        raise UserError(f"{option}: unknown metric {name!r}; {told}{alone if bare else ''}.") from None
    return own


def metric_names(asked: Sequence[str], main: Sequence[Column]) -> list[str]:
    """Return the requested metrics by their full names in a run with these main columns. UserError for a
    percentile that such a run does not have."""
    waits = (column.metric.rpartition("_")[0] for column in main if least_events(column.metric) > 1)
    family = next(waits, "ttft")
    names = [f"{family}_{name}" if PERCENTILE.fullmatch(name) else name for name in asked]
    for name, own in zip(asked, names, strict=True):
        if own != name and own not in (known := vocabulary(main)):
            has = ", ".join(
                each.removeprefix(f"{family}_") for each in known if each.startswith(f"{family}_p")
            )
            raise UserError(f"{name} of {family} is not measured; choose from: {has}.")
    return names


def asked_columns(asked: Sequence[str], main: Sequence[Column]) -> list[Column]:
    """A column for each metric that was asked for."""
    return [column_for(name, main) for name in metric_names(asked, main)]


_PERCENTILE = re.compile(r"_p(\d{2,3})$")


def least_events(metric: str) -> int:
    """Return the number of events from which a percentile is not just the slowest event; 1 for other metrics.

    Of n events, n × (1 − q) are expected beyond the q-quantile. With less than one there, the percentile is a number
    between the two largest, as its rank from 0, (n − 1) × q (Hyndman and Fan 1996, type 7, NumPy's default), is above
    n − 2: it is the slowest event's, and not a share's. So P50 needs 2 events, P90 10, P95 20, P99 100. `NAME_p999`
    is P99.9.
    """
    found = _PERCENTILE.search(metric)
    if found is None:
        return 1
    beyond = 1 - Fraction(int(found[1]), 10 ** len(found[1]))
    return ceil(1 / beyond)


def too_few(metric: str, n: int) -> bool:
    """Return whether a value of the metric over `n` events has fewer than it needs; False for n = 0, which has no
    value."""
    return 0 < n < least_events(metric)


def families(vocabulary: Mapping[str, Definition]) -> list[tuple[list[str], Definition]]:
    """Group metrics that differ only in their statistic: P50, P90 and mean of the same quantity. Returns the names of
    each family, in the order of the vocabulary, with one definition for all its statistics."""
    found: dict[tuple[str, Definition], dict[str, str]] = {}
    for name, each in vocabulary.items():
        said = _STATISTIC.match(each.definition)
        stem = name.rpartition("_")[0] if said else name
        rest = each.definition[said.end() if said else 0 :]
        found.setdefault((stem, replace(each, definition=rest)), {})[name] = said[0] if said else ""
    return [
        ([*names], replace(each, definition=f"{_listed([*names.values()])}{each.definition}"))
        for (_, each), names in found.items()
    ]


def _listed(statistics: list[str]) -> str:
    """`P50, P90 and mean`; the word of the first stays as it is."""
    first, *others = statistics
    others = [word if word[0] == "P" else word.lower() for word in others]
    return listed([first, *others])
