"""Parts of ConServe's figures and captions."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.request_tables.request_table import FAILED
from reports.claims.quantities import Measure, Setting
from reports.figures.forms import Draw, Plot, behind, figure, lines
from reports.figures.style import Look, engine_looks
from reports.papers.conserve.loads import at
from reports.papers.conserve.measures import TBT, TPS, TTFT, tokens
from reports.papers.conserve.systems import CO_SERVERS, DISTSERVE, NAMES, ONLINE_ONLY, OURS
from reports.runs.measured import Measured

SYSTEMS = (ONLINE_ONLY, *CO_SERVERS, DISTSERVE)
STYLE: Mapping[str, Look] = {NAMES[engine]: look for engine, look in engine_looks(*SYSTEMS).items()}
METRICS = (
    (TTFT, "P99 TTFT of online requests, s"),
    (TBT, "P99 TBT of online requests, ms"),
    (TPS, "offline tokens, 1000/s"),
)


def compared(metric: str, settings: Mapping[str, Mapping[Any, Setting]]) -> dict[str, Mapping[Any, Setting | Measure]]:
    """A metric of each system, by its name, at these settings; without the throughput of a batch that Online-Only does
    not have."""
    return {
        NAMES[engine]: {x: tokens(each) if metric == TPS else each for x, each in by_x.items()}
        for engine, by_x in settings.items()
        if (metric, engine) != (TPS, ONLINE_ONLY)
    }


def drawn(title: str, axis: str, loads: Mapping[str, Mapping[Any, str]], caption: str, log: bool = False) -> Draw:
    """P99 TTFT, P99 TBT and offline tokens/s over `axis`, a row for each of `loads`: title -> the load's name for
    each value of the axis."""

    def plot(row: str, metric: str, label: str) -> Plot:
        names = loads[row]
        settings = {e: {x: at(name, e) for x, name in names.items()} for e in SYSTEMS}
        label = f"{row}\n{label}" if row and metric == TTFT else label
        ticks: dict[str, Any] = {"doubling": [*names]} if log else {"xticks": [*names]}
        return lines(metric, compared(metric, settings), style=STYLE, xlabel=axis, ylabel=label, **ticks)

    names = [name for by_x in loads.values() for name in by_x.values()]
    used = behind([at(name, engine) for engine in SYSTEMS for name in names])
    plots = [plot(row, *metric) for row in loads for metric in METRICS]
    return figure(title, *plots, columns=3, points=used, caption=lambda panels: f"{caption} {run_notes(used(panels))}")


def run_notes(points: Sequence[Measured]) -> str:
    """Return for captions how often ConServe took documents out of running steps, and the systems with failed online
    requests."""
    finished = [point for point in points if point.error is None]
    left = [point.record.counters.get("thinker.interrupted", 0) for point in finished if point.point.engine == OURS]
    sentences = []
    if left:
        often = f"{min(left)} to {max(left)} times a run" if max(left) else "in no run, so these runs do not test it"
        sentences.append(f"ConServe took documents out of a running step {often}.")
    failed = {NAMES[engine]: count for engine in NAMES if (count := _failed(finished, engine))}
    if failed:
        sentences.append(f"Online requests that failed: {', '.join(f'{n} of {name}' for name, n in failed.items())}.")
    return " ".join(sentences)


def _failed(points: Sequence[Measured], engine: str) -> int:
    tables = [point.requests for point in points if point.point.engine == engine]
    return sum(len(rows[rows["request_class"].eq("online") & rows["status"].eq(FAILED)]) for rows in tables)
