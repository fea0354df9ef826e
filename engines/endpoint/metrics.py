"""A server's Prometheus metrics, read from its stats and its sockets on each request."""

import asyncio
from collections import deque
from collections.abc import Iterator
from time import monotonic

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engines.endpoint.entrance import Entrance
from engines.endpoint.server_stats import Histogram, ServerStats

LAG_PERIOD_S = 0.01
"""[chosen] a loop that is held up for longer than this is always seen, at a thousandth of a core."""

LAG_KEPT_S, LAG_SHOWN_S = 10.0, 2.0
"""Seconds for which lag is kept, and seconds over which the largest is shown: [chosen] short, to find its cause; the
histogram is for longer times."""

LAG_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""[chosen] upper bounds of histogram buckets, s."""


class LoopLag:
    """The delay with which the loop runs its timers: the time for which something has blocked it. Must be made inside
    the loop. `slower`: real seconds in a second of its time, in which lags are."""

    def __init__(self, slower: float = 1.0) -> None:
        self._slower = slower
        self.histogram = Histogram(LAG_S)
        self._recent: deque[tuple[float, float]] = deque()
        self._loop = asyncio.get_running_loop()
        self._origin = self._real_s()
        self._due_s = 0.0
        self._again(self._loop.time())

    def largest_s(self, window_s: float) -> float:
        """Return the largest lag in the last `window_s`, which is at most `LAG_KEPT_S`."""
        since_s = self._real_s() - self._origin - window_s
        return next((lag_s for at_s, lag_s in self._recent if at_s >= since_s), 0.0)

    def _again(self, now: float) -> None:
        self._due_s = now + LAG_PERIOD_S
        self._timer = self._loop.call_at(self._due_s, self._rung)

    def _rung(self) -> None:
        # Model time is behind real time when the loop is; the closest that they have been tells their difference.
        self._origin = min(self._origin, self._real_s() - self._loop.time())
        now = self._real_s() - self._origin
        lag_s = max(0.0, now - self._due_s)
        self.histogram.add(lag_s)
        recent = self._recent
        while recent and recent[-1][1] <= lag_s:  # a later, larger one hides it: the first is the largest
            recent.pop()
        recent.append((now, lag_s))
        while recent[0][0] < now - LAG_KEPT_S:
            recent.popleft()
        self._again(max(self._loop.time(), self._due_s))

    def _real_s(self) -> float:
        return monotonic() / self._slower

    def stop(self) -> None:
        self._timer.cancel()


class Metrics(Collector):
    """The metrics that `/metrics` shows. Times in s, sizes in bytes; names begin with `rehearsal_`."""

    def __init__(self, stats: ServerStats, lag: LoopLag) -> None:
        self._stats = stats
        self._lag = lag
        self._server: Entrance
        self._registry = CollectorRegistry()
        ProcessCollector(namespace="rehearsal", registry=self._registry)
        self._registered = False

    def render(self, server: Entrance) -> tuple[bytes, str]:
        """Return the text of `/metrics` and its content type."""
        self._server = server
        if not self._registered:
            self._registry.register(self)
            self._registered = True
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        stats, server = self._stats, self._server
        yield _gauge("sessions_open", "Concurrent sessions.", server.sessions)
        yield _gauge("sockets_open", "Connections, those included that are closing.", server.sockets)
        yield _gauge("replies_under_way", "Replies that a stage works on.", stats.replies)
        yield _counter("sessions", "Sessions begun.", server.begun)
        yield _counters("refused", "Connections refused.", "reason", server.refused)
        yield _counters("closed", "Sessions ended, by close code; 1006: there was none.", "code", server.closed)
        yield _counters("turns", "Replies ended.", "status", stats.turns)
        yield _histogram("ttfp_seconds", "From commit to the first audio sent.", stats.ttfp_s)
        yield _histogram("playback_gap_seconds", "Silences in spoken replies, as audio was late.", stats.gap_s)
        longest = "The longest such silence of each complete spoken reply, 0 where there was none."
        yield _histogram("longest_playback_gap_seconds", longest, stats.longest_gap_s)
        first = "Of replies in text, from the request to the first tokens sent."
        yield _histogram("time_to_first_token_seconds", first, stats.ttft_s)
        yield _histogram("inter_token_latency_seconds", "From tokens sent to the next.", stats.token_s)
        yield _histogram("frame_seconds", "From a complete frame to its answer sent.", stats.frame_s)
        yield _counter("audio_sent_seconds", "Seconds of audio sent.", stats.audio_sent_s)
        yield _counters("tokens", "Production tokens.", "stage", stats.tokens)
        yield _counters("wasted_tokens", "Produced and never heard.", "stage", stats.wasted)
        used = GaugeMetricFamily("rehearsal_kv_used_ratio", "KV blocks in use.", labels=("stage", "replica"))
        for (stage, replica), pool in stats.pools.items():
            used.add_metric((stage, str(replica)), pool.used / pool.blocks)
        yield used
        steps = HistogramMetricFamily("rehearsal_step_seconds", "Engine steps.", labels=("stage",))
        for stage, histogram in stats.step_s.items():
            steps.add_metric((stage,), _buckets(histogram), histogram.sum)
        yield steps
        queued = server.queued_bytes
        yield _gauge("queue_bytes", "Bytes that clients have yet to take, all together.", sum(queued))
        yield _gauge("queue_most_bytes", "The same of the client with most.", max(queued, default=0))
        yield _histogram("loop_lag_seconds", "How late the loop runs its timers.", self._lag.histogram)
        yield _gauge("loop_lag_most_seconds", f"The largest in {LAG_SHOWN_S:g} s.", self._lag.largest_s(LAG_SHOWN_S))


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"rehearsal_{name}", what, value=value)


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(f"rehearsal_{name}", what, value=value)


def _counters(name: str, what: str, label: str, counts: "dict[str, int] | dict[int, int]") -> Metric:
    family = CounterMetricFamily(f"rehearsal_{name}", what, labels=(label,))
    for value, count in counts.items():
        family.add_metric((str(value),), count)
    return family


def _histogram(name: str, what: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(f"rehearsal_{name}", what, buckets=_buckets(histogram), sum_value=histogram.sum)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus wants them."""
    so_far, buckets = 0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return buckets
