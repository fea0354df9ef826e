"""Counters of the proxy, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest

from engines.core.lifecycle import Lifecycle, Phase
from harness.proxy.backends import Backend, Pool

OUTCOMES = ("answered", "refused", "retried", "failed", "left")
"""answered: to its end; refused: with an error status; retried: lost or refused before anything of it was seen, and
tried elsewhere; failed: lost after its answer had begun, or with nowhere else to go; left: its client went."""


class Counters:
    """Counters per server, by outcome; every outcome is present from the beginning, with 0."""

    def __init__(self, pool: Pool) -> None:
        self._registry = CollectorRegistry()
        name, server = "rehearsal_proxy", ["server"]
        self._requests = Counter(
            f"{name}_requests", "Requests sent to a server, by outcome", [*server, "outcome"],
            registry=self._registry,
        )  # fmt: skip
        self._turned_away = Counter(
            f"{name}_turned_away", "Requests for which no server was alive", registry=self._registry
        )
        self._seconds = Summary(
            f"{name}_phase_seconds", "Time that requests spent in a phase", ["phase"], registry=self._registry
        )
        waiting = Gauge(f"{name}_waiting", "Requests that no server may take yet", registry=self._registry)
        waiting.set_function(lambda: pool.waiting)
        in_flight = Gauge(
            f"{name}_in_flight", "Requests and sessions there now", server, registry=self._registry
        )
        alive = Gauge(f"{name}_alive", "Whether it answers", server, registry=self._registry)
        for each in pool.backends:
            in_flight.labels(each.url).set_function(lambda each=each: each.in_flight)
            alive.labels(each.url).set_function(lambda each=each: each.alive)
            for outcome in OUTCOMES:
                self._requests.labels(each.url, outcome)

    def count(self, backend: Backend, outcome: str) -> None:
        assert outcome in OUTCOMES
        self._requests.labels(backend.url, outcome).inc()

    def turned_away(self) -> None:
        self._turned_away.inc()

    def lived(self, life: Lifecycle) -> None:
        """Count the phases that a finished request has left."""
        for phase in Phase:
            seconds = life.seconds(phase)
            if seconds is not None:
                self._seconds.labels(phase.name.lower()).observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)
