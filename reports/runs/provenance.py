"""The provenance of a run, read from its records."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from reports.runs.measured import Measured, Run
from reports.runs.side import side_of
from reports.tables.labels import counted, seed_list, short
from workloads.devices import DEVICES
from workloads.registry import WORKLOADS

Fact = dict[str, Any]
"""One fact: label, value and perhaps more: a list of [name, value, meaning] to unfold."""


def provenance(run: Run) -> list[Fact]:
    """Everything that is needed to run it again, in the order in which a reader asks."""
    return [
        *side_of(run.experiment).served(run),
        *_workload(run),
        {"label": "Grid", "value": _grid(run)},
        {"label": "Points", "value": _points(run)},
        _traces(run.points),
        *program(run.points),
        {"label": "Time", "value": time(run.points)},
    ]


def fact(label: str, parts: Iterable[str]) -> list[Fact]:
    """Return a fact of these parts; none without any."""
    value = "; ".join(parts)
    return [{"label": label, "value": value}] if value else []


def _workload(run: Run) -> list[Fact]:
    point = run.points[0].point
    kind = WORKLOADS.get(point.workload)
    fields = kind.Params.model_fields if kind else {}
    more = explained(values(run, point.workload_params, run.points), fields)
    value = named(point.workload, kind.summary if kind else None)
    others = values(run, {**point.client_params, **point.server_params}, run.points)
    text = ", ".join(f"{name} = {value}" for name, value in others.items())
    return [{"label": "Workload", "value": value, "more": more}, {"label": "Clients and server", "value": text}]


def device(run: Run) -> Fact:
    """Return the device of the run."""
    name = run.points[0].point.device
    return {"label": "Device", "value": named(name, DEVICES.get(name))}


def values(run: Run, params: Mapping[str, Any], points: Iterable[Measured]) -> dict[str, str]:
    """Each parameter's values over the points, in the order in which they were run; not what a named file held."""
    points = list(points)
    return {
        name: ", ".join(dict.fromkeys("default" if value is None else short(value) for value in values))
        for name in params
        if name != "model_facts"
        for values in [[point.params.get(name) for point in points]]
    }


def explained(values: Mapping[str, str], fields: Mapping[str, Any]) -> list[list[str]]:
    return [[name, value, (fields[name].description or "") if name in fields else ""] for name, value in values.items()]


def named(name: str, summary: str | None) -> str:
    return f"{name}: {summary}" if summary else name


def _grid(run: Run) -> str:
    axes = [f"{name} in {{{', '.join(map(short, values))}}}" for name, values in run.experiment.grid.items()]
    return " × ".join([counted(len(run.variants), "variant"), *axes, seed_list(run.seeds)])


def _points(run: Run) -> str:
    failed = len(run.failed)
    text = f"{len(run.points) - failed} of {len(run.points)} finished"
    return f"{text}, {failed} failed (see below)" if failed else text


def _traces(points: Iterable[Measured]) -> Fact:
    """Return whether all variants served the same users; one hash for each cell and seed."""
    points = list(points)
    served: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for point in points:
        served[(point.cell, point.seed)].add(point.point.trace_hash)
    traces = {hash: where for where, hashes in served.items() for hash in hashes}
    mixed = sum(len(hashes) > 1 for hashes in served.values())
    text = f"{counted(len(traces), 'trace')}; "
    text += (
        f"in {counted(mixed, 'cell')} the variants served different traces and are not comparable"
        if mixed
        else "every variant served the same ones"
    )
    synthetic = {note for note in _notes(points) if note.startswith("synthetic speech")}
    text += "".join(f"; {note}" for note in sorted(synthetic))
    more = [
        [hash[:16], f"seed {seed}", ", ".join(f"{axis} = {short(value)}" for axis, value in cell)]
        for hash, (cell, seed) in traces.items()
    ]
    return {"label": "Traces", "value": text, "more": more}


def _notes(points: Iterable[Measured]) -> set[str]:
    """Return the generators' notes on their traces; failed points may have left none."""
    traces = {point.point.trace_hash: point for point in points if point.error is None}
    return {note for point in traces.values() for note in point.record.trace().header.notes}


def program(points: Iterable[Measured]) -> list[Fact]:
    """Revisions, packages and machines behind these points."""
    manifests = [point.record.manifest for point in points]
    codes = {point.point.code_hash[:16] for point in points}
    revisions = {_revision(manifest.get("revision")) for manifest in manifests}
    packages = {
        ", ".join(f"{name} {version}" for name, version in manifest["packages"].items()) for manifest in manifests
    }
    machines = {_machine(manifest["machine"]) for manifest in manifests}
    return [
        {"label": "Program", "value": "; ".join(sorted(revisions)) + f"; code hash {', '.join(sorted(codes))}"},
        {"label": "Packages", "value": "; ".join(sorted(packages))},
        {"label": "Machine", "value": "; ".join(sorted(machines))},
        *_order([manifest for manifest in manifests if "order" in manifest]),
    ]


def _order(manifests: list[Mapping[str, Any]]) -> list[Fact]:
    """Return the order of the points, and the load of the machine as each began."""
    if not manifests:
        return []  # of an older version
    seeds = sorted({manifest["order_seed"] for manifest in manifests} - {None})
    in_order = any(manifest["order_seed"] is None for manifest in manifests)
    ways = ["as listed"] * in_order + [f"shuffled with {seed_list(seeds)}"] * bool(seeds)
    loads = [manifest["load_average"][0] for manifest in manifests]
    text = f"{' and '.join(ways)}; load average {min(loads):.1f} to {max(loads):.1f} as points began"
    return [{"label": "Run order", "value": text}]


def _revision(revision: Mapping[str, Any] | None) -> str:
    if revision is None:
        return "not a checkout"
    changed = f" with changes (SHA-256 {revision['diff_sha256'][:16]})" if revision["dirty"] else ""
    return f"commit {revision['commit'][:12]}{changed}"


def _machine(machine: Mapping[str, Any]) -> str:
    memory = machine["memory_bytes"] / 2**30
    return f"{machine['cpu']}, {counted(machine['cores'], 'core')}, {memory:.0f} GiB, Python {machine['python']}"


def time(points: Iterable[Measured]) -> str:
    """Return the time of the measurement, the time served, and the time taken."""
    manifests = [point.record.manifest for point in points]
    costs = [manifest["cost"] for manifest in manifests if "cost" in manifest]
    begun = min(datetime.fromisoformat(manifest["started"]) for manifest in manifests)
    ended = max(datetime.fromisoformat(manifest["finished"]) for manifest in manifests)
    text = f"{begun:%Y-%m-%d %H:%M} to {ended:%H:%M} UTC"
    if costs:
        wall_s, simulated_s = (sum(cost[name] for cost in costs) for name in ("wall_s", "simulated_s"))
        served = f"{simulated_s / 3600:.1f} h" if simulated_s >= 3600 else f"{simulated_s / 60:.1f} min"
        text += f"; {served} of serving in {wall_s:.0f} s of the workers' wall time"
    return text
