"""Columns of tables, and the format of their numbers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isinf
from statistics import mean

import harness.kinds  # noqa: F401  (metrics of other packages are known once their kinds are)
from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import HEADLINES, Definition
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.metric_name import in_class, parsed, quantile_of
from harness.metrics.reply_length import NEARLY_ALL
from harness.metrics.stats import Spread, across_seeds, share
from harness.metrics.turns import DEFINITIONS
from harness.metrics.vocabulary import KNOWN, OWN_DEFINITIONS, definition, metric_named
from reports.tables.labels import listed
from workloads.errors import UserError

MISSING = "–"
FLOOR_LATE_S = 0.020
"""P99 of the send delay against the null server above which a note is shown. [chosen] As `send_delay_limit_ms`."""
INFINITE = "∞"
"""The latency of a turn that failed."""
FEW = "*"
"""Behind a percentile of fewer events than it needs."""
_STATISTIC = re.compile(r"(?:P[\d.]+|mean|largest)(?= )", re.IGNORECASE)


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

    def with_unit(self, value: float) -> str:
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
        spread = share(values)
        if spread.median is None or spread.interval is None:
            return MISSING, ""
        low, high = (f"{100 * end:.0f}" for end in spread.interval)
        return f"{round(spread.median * spread.n)} of {spread.n}", f"{low} to {high} %"

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
        parsed(column.metric).statistic.upper(): least_events(column.metric)
        for column in columns
        if least_events(column.metric) > 1
    }
    minima = ", ".join(f"{name} {n}" for name, n in sorted(needs.items()))
    return f"{FEW} of fewer events than the percentile needs ({minima}): read it as the slowest of them"


def column_for(metric: str) -> Column:
    """Return the column of any metric. A name that is not a metric is a time in s, read off a picture."""
    try:
        meaning = definition(metric)
    except KeyError:
        return Column(metric, metric.replace("_", " "), "s", 1, 1)
    name = parsed(metric)
    column = _column(str(name._replace(request_class="")), meaning)
    if not name.request_class:
        return column
    return replace(column, metric=metric, heading=f"{name.request_class}: {column.heading}", first=False)


def _column(metric: str, meaning: Definition) -> Column:
    words = [meaning.heading, meaning.statistic] if meaning.heading else metric.split("_")
    heading = " ".join(word.upper() if quantile_of(word) else word for word in words if word)
    unit, factor, digits = meaning.column
    return Column(metric, heading, unit, factor, digits, tally=unit == "runs")


def _columns(names: str, later: str = "", definitions: Mapping[str, Definition] = KNOWN) -> tuple[Column, ...]:
    """Return the columns of these metrics; of some of them, `later`, a reader should not see first."""
    return tuple(replace(_column(each, definitions[each]), first=each not in later.split()) for each in names.split())


FRAMES = _columns(
    "frames_with_speech frame_latency_p50 frame_latency_p99 deadline_misses wall wall_s silent_sessions_end "
    "pool_plateau pool_peak saturation_predicted_s saturation_measured_s admitted shed",
    later="frame_latency_p50 wall_s pool_plateau saturation_predicted_s saturation_measured_s admitted shed",
)
"""Headline metrics of interaction sessions: dashboard values, service to users, and causes."""
SESSIONS = (column_for("session_time_p50"), replace(column_for("session_pace_p50"), heading="turns", first=False))
"""Time of a whole session without speech, such as an agent's task."""
JOBS = (
    *_columns("job_time_p50 job_recorded_p50"),
    replace(column_for("job_tool_time_mean"), heading="tools", unit="s, mean", first=False),
    replace(column_for("job_model_time_mean"), heading="model", unit="s, mean", first=False),
)
"""Time of agents' jobs, next to their recorded time."""
(CUMULATIVE,) = _columns("continuity_fixed_timeline")
"""vLLM-Omni's definition: the pauses of a reply add up."""
(WASTED_AUDIO,) = _columns("wasted_audio_ratio")
RTP_LOSS = _columns("rtp_loss", later="rtp_loss")
LIVE = _, SHED, _ = _columns("send_delay_p99 shed failed", later="send_delay_p99 shed failed")
"""Metrics over real sockets: the load generator's timing and the server's failures."""
COMPLETED = "completed_rps"
PARTS = _columns("end_of_turn_p50 answer_p50", later="end_of_turn_p50 answer_p50")
"""The wait for a server that reports the ends of turns."""
CACHED = _columns("cached_prompt_share prefix_cache_hits", later="cached_prompt_share prefix_cache_hits")
"""Share of the prompts that the server's cache held: by its replies, or else by its counters."""
TEXT = _columns("ttft_p50 ttft_p90 text_tps completed_rps reply_tokens_mean", later="ttft_p50 reply_tokens_mean")
"""Headline metrics of text at a live endpoint. `reports.live.latencies` has the percentiles of all its latencies."""
ON_LINE, CAME = _columns("on_line_mean sessions_rps", later="on_line_mean sessions_rps")
"""Metrics of the load at a live endpoint, in a closed and an open loop."""
_OVER_RUN = "audio_ttfp_whole_p90 ttft_whole_p90 continuity_whole completed_rps_whole"
OVER_RUN = _columns(_OVER_RUN, later=_OVER_RUN)
"""Metrics over the whole run, next to those of the steady window; a live run's table has no room for them."""
_OF_TEXT = ("ttft_whole_p90", "completed_rps_whole")
"""The ones that runs without speech have."""
LEFT_OUT = ("turns_in_ramp", "turns_in_drain")
"""Turns that no percentile, share or rate covers, because the load was not the planned one when they were asked."""


def live_notes(loads: Mapping[str, Sequence[Mapping[str, float | None]]]) -> list[str]:
    """Return the notes that a reader of a live run's numbers needs, in sentences. `loads`: the metrics of each one's
    runs."""

    def by_load(name: str) -> dict[str, list[float]]:
        return {
            load: values
            for load, runs in loads.items()
            if (values := [v for run in runs if (v := run.get(name)) is not None])
        }

    notes = []
    stated = by_load("tokens_stated")
    if any(min(each) < 1 for each in stated.values()):
        parts = [f"{load}{100 * min(each):.0f} %" for load, each in stated.items()]
        notes.append(
            "Times between tokens count messages, one token each, where the server states no token counts; it states "
            f"them for {', '.join(parts)} of the replies."
        )
    tokens, asked, short = (by_load(f"reply_tokens_{each}") for each in ("mean", "asked", "short"))
    parts = [
        f"{load}{mean(each):.3g} of the {mean(asked[load]):.3g} tokens asked"
        for load, each in tokens.items()
        if sum(short.get(load, ()))
    ]
    if parts:
        notes.append(
            f"Replies are shorter than asked: {', '.join(parts)}, on average. --set ignore_eos=true asks vLLM for all."
        )
    at_once = {load: sum(each) for load, each in by_load("replies_at_once").items()}
    whole = {load: sum(each) for load, each in by_load("completed").items()}
    if parts := [load for load, count in at_once.items() if count and count >= NEARLY_ALL * whole.get(load, inf)]:
        where = f" ({', '.join(load.removesuffix(': ') for load in parts)})" if any(parts) else ""
        notes.append(
            f"The time to the first output equals the time to the last one{where}: something between us and the server "
            "collects the stream, or the server does not stream."
        )
    late = [
        f"{load}{1e3 * max(each):.0f} ms"
        for load, each in by_load("floor_send_delay_p99").items()
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
        parts = [f"{load}{sum(each):.0f}" for load, each in by_load(name).items() if sum(each)]
        notes += [note.format(", ".join(parts))] if parts else []
    return notes


CLASSES = _columns(
    "ttft_p50 ttft_p90 ttft_p99 ttft_in_deadline tbt_p50 tbt_p99 tbt_in_deadline tbt_p99_in_deadline deadlines_met "
    "goodput_rps output_tps completed",
    later="ttft_p50 ttft_p90 tbt_p50 tbt_p99_in_deadline deadlines_met completed",
    definitions=CLASS_DEFINITIONS,
)
"""Columns for each class of requests. A terminal shows only the `first` ones."""


def shown(points: Iterable[Mapping[str, float | None]]) -> list[Column]:
    """The columns for points with these metrics: of a kind with its own, of frames, of spoken replies, or of text; and
    of sockets."""
    names = {name for metrics in points for name, value in metrics.items() if value is not None}
    for headline in HEADLINES.values():
        if any(name in names and name in OWN_DEFINITIONS for name in headline):
            return [column_for(name) for name in headline if name in names]
    live = list(LIVE) if "send_delay_p99" in names else []
    if "frames_with_speech" in names:
        frames = [column for column in FRAMES if column.metric in names]
        return [*frames, *(column for column in live if column not in frames and column.metric in names)]
    spoken = "audio_ttfp_p50" in names or "continuity" in names
    turns = [*TEXT] if live and not spoken else columns(spoken)
    if "shed" in names and not live:
        turns.append(SHED)
    if "job_time_p50" in names:
        turns += JOBS
    elif "session_time_p50" in names and not spoken and not live:
        turns += SESSIONS
    if not live:
        return turns
    # A foreign server does not always say what it generated; what it sent is known.
    waste = [] if "wasted_token_ratio" in names else [WASTED_AUDIO]
    hidden = {"effective_rps", *({"wasted_token_ratio"} - names), *(each.metric for each in OVER_RUN)}
    visible = [
        replace(column, unit="turns/s") if column.metric == COMPLETED else column  # other than what came
        for column in turns
        if column.metric not in hidden
    ]
    load = [column for column in (ON_LINE, CAME) if column.metric in names]
    visible += [column for column in CACHED if column.metric in names][:1]
    visible[2:2] = [column for column in PARTS if column.metric in names]
    return [*load, *visible, *(column for column in (*waste, *RTP_LOSS) if column.metric in names), *live]


def class_names(points: Iterable[Mapping[str, float | None]]) -> list[str]:
    """The classes for which points have metrics, the most urgent first."""
    urgency: dict[str, float] = {}
    for metrics in points:
        for name, value in metrics.items():
            quantity, _, request_class = parsed(name)
            if request_class and quantity == "priority" and value is not None:
                urgency[request_class] = min(value, urgency.get(request_class, value))
    return sorted(urgency, key=lambda name: (urgency[name], name))


def of_class(name: str, columns: Sequence[Column] = CLASSES) -> list[Column]:
    """Columns of a class."""
    return [replace(column, metric=in_class(name, column.metric)) for column in columns]


def vocabulary(columns: Sequence[Column]) -> Mapping[str, Definition]:
    """The metrics of the runs that these columns are for."""
    definitions = FRAME_DEFINITIONS if columns[0].metric in FRAME_DEFINITIONS else DEFINITIONS
    if any(column.metric in OWN_DEFINITIONS for column in columns):
        definitions = OWN_DEFINITIONS | DEFINITIONS
    return {**(LIVE_DEFINITIONS if LIVE[0] in columns else {}), **definitions}


def columns(spoken: bool) -> list[Column]:
    """The headline metrics of turns; a run without spoken replies is judged by its first text token."""
    if not spoken:
        shown_first = _columns("ttft_p50 ttft_p90 wasted_token_ratio completed_rps", later="ttft_p50")
        return [*shown_first, *(each for each in OVER_RUN if each.metric in _OF_TEXT)]
    names = "audio_ttfp_p50 audio_ttfp_p90 continuity continuity_fixed_timeline wasted_token_ratio completed_rps"
    shown_first = _columns(f"{names} effective_rps", later="audio_ttfp_p50")
    return [*shown_first, *(each for each in OVER_RUN if not each.metric.startswith("ttft"))]


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse metrics such as `ttfp_p95,p99.9,continuity`; a percentile alone stays as it is, because each kind of run
    waits for something else. UserError for an unknown metric."""
    names = [name for name in re.split(r"[,\s]+", text) if name]
    if not names:
        raise UserError(f"--columns {text!r} names no metric; write for example --columns p50,p95,p99,continuity.")
    return tuple(dict.fromkeys(metric_named(name, "--columns", bare=True) for name in names))


def metric_names(asked: Sequence[str], main: Sequence[Column]) -> list[str]:
    """Return the requested metrics by their full names in a run with these main columns. UserError for a
    percentile that such a run does not have."""
    waits = (parsed(column.metric).family for column in main if least_events(column.metric) > 1)
    family = next(waits, "ttft")
    return [metric_named(f"{family}_{name}", "--columns") if quantile_of(name) else name for name in asked]


def asked_columns(asked: Sequence[str], main: Sequence[Column]) -> list[Column]:
    """A column for each metric that was asked for."""
    by_metric = {column.metric: column for column in main}
    return [by_metric.get(name) or column_for(name) for name in metric_names(asked, main)]


def least_events(metric: str) -> int:
    """Return the number of events from which a percentile is not just the slowest event; 1 for other metrics.

    Of n events, n × (1 − q) are expected beyond the q-quantile. With less than one there, the percentile is a number
    between the two largest, as its rank from 0, (n − 1) × q (Hyndman and Fan 1996, type 7, NumPy's default), is above
    n − 2: it is the slowest event's, and not a share's. So P50 needs 2 events, P90 10, P95 20, P99 100.
    """
    q = parsed(metric).quantile
    return 1 if q is None else ceil(1 / (1 - q))


def too_few(metric: str, n: int) -> bool:
    """Return whether a value of the metric over `n` events has fewer than it needs; False for n = 0, which has no
    value."""
    return 0 < n < least_events(metric)


def families(vocabulary: Mapping[str, Definition]) -> list[tuple[list[str], Definition]]:
    """Group metrics that differ only in their statistic: P50, P90 and mean of the same quantity. Returns the names of
    each family, in the order of the vocabulary, with one definition for all its statistics."""
    members: dict[tuple[str, Definition], dict[str, str]] = {}
    for name, each in vocabulary.items():
        match = _STATISTIC.match(each.definition)
        stem = parsed(name).family if match else name
        rest = replace(each, definition=each.definition[match.end() if match else 0 :], statistic="")
        members.setdefault((stem, rest), {})[name] = match[0] if match else ""
    return [
        ([*names], replace(each, definition=f"{_listed([*names.values()])}{each.definition}"))
        for (_, each), names in members.items()
    ]


def _listed(statistics: list[str]) -> str:
    """`P50, P90 and mean`; the word of the first stays as it is."""
    first, *others = statistics
    others = [word if word[0] == "P" else word.lower() for word in others]
    return listed([first, *others])
