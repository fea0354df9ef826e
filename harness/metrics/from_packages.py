"""Metrics of other packages on a kind of workload that exists, such as the service of each client of `turns`.

An entry point of the group `rehearsal.metrics` names a `PackageMetrics`. They are made when a record is read, as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.metrics.definitions import OWN_DEFINITIONS, Definition
from workloads.errors import UserError
from workloads.plugins import entry_points, fault, load

if TYPE_CHECKING:
    import pandas as pd

    from harness.metrics.metric import Metric, Result
    from harness.metrics.rates import Span

GROUP = "rehearsal.metrics"
OF_TRACE = ("input_tokens", "output_tokens")
"""Columns of the trace that such metrics have with each request."""


@dataclass(frozen=True)
class RunTables:
    """A run, as metrics of packages read it.

    `requests`: the request table, a row for each turn that began in the whole run, with `OF_TRACE`;
    `harness.request_tables.steady_window.counted` returns the rows of the steady window. `events`: rows of the log, of
    the kinds that the metrics read. `span`: the time that rates are over, s; None where it has no length.
    """

    requests: pd.DataFrame
    events: pd.DataFrame
    span: Span | None


@dataclass(frozen=True)
class PackageMetrics:
    """Metrics of a package for runs of one kind of workload.

    `definitions`: by name. `measure` returns a value with its n and the number of missing observations, or the values
    of a quantity; `CLASS.metric` has the definition of `metric`, and what a run has not is left out. `reads`: kinds of
    events (`harness.events.log`).
    """

    kind: str
    definitions: Mapping[str, Definition]
    measure: Callable[[RunTables], Mapping[str, Result]]
    reads: tuple[str, ...] = ()


@cache
def package_metrics() -> dict[str, PackageMetrics]:
    """Return the metrics of all packages by the name of their entry point, and make their definitions known. UserError
    where two metrics have one name."""
    found: dict[str, PackageMetrics] = {entry.name: load(entry) for entry in entry_points(group=GROUP)}
    for package, metrics in found.items():
        for name, meaning in metrics.definitions.items():
            if OWN_DEFINITIONS.setdefault(name, meaning) is not meaning:
                raise UserError(f"two metrics are called {name}, one of {package} of {GROUP}; rename it.")
    return found


def keeping(events: Any, kinds: Iterable[str], kept: list[pd.DataFrame]) -> Any:
    """Return a log to be read once, whole or in pieces. Its rows of these kinds go to `kept` as they are read."""

    def keep(piece: pd.DataFrame) -> pd.DataFrame:
        kept.append(piece.loc[piece["kind"].isin([*kinds]).to_numpy()])
        return piece

    return keep(events) if hasattr(events, "columns") else map(keep, events)


def of_packages(
    packages: Mapping[str, PackageMetrics],
    requests: pd.DataFrame,
    turns: pd.DataFrame,
    events: pd.DataFrame,
    span: Span | None,
) -> dict[str, Metric]:
    """Return the metrics of these packages. `turns`: the columns of the trace, the others as of `RunTables`. UserError,
    which names the package, where its code fails or a metric has no definition."""
    from harness.metrics.metric import by_class
    from harness.request_tables.request_table import typed

    key = ["session", "turn"]
    made: dict[str, Metric] = {}
    run = RunTables(typed(requests).merge(turns[[*key, *OF_TRACE]], on=key, how="left"), events, span)
    for package, metrics in packages.items():
        try:
            made |= by_class(metrics.measure(run), metrics.definitions)
        except Exception as error:
            raise UserError(f"{package} of {GROUP} fails at a run: {fault(error)}; correct it.") from error
    return made
