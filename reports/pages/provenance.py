"""The provenance of a run, read from its records, and the known errors of such predictions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from engines.deployments import Deployment, load_deployment
from engines.devices.kernels.grids import Kernels
from engines.devices.profile import Profile
from engines.devices.step_file import as_step_file
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from harness.measured_runs.measured_run import LATENCIES
from reports.calibration.fidelity import quoted
from reports.runs.measured import Measured, Run
from reports.tables.labels import counted, seed_list, short
from workloads.devices import DEVICES
from workloads.errors import UserError
from workloads.files.yaml_file import shipped_yaml
from workloads.registry import WORKLOADS

Fact = dict[str, Any]
"""One fact: label, value and perhaps more: a list of [name, value, meaning] to unfold."""


def provenance(run: Run) -> list[Fact]:
    """Everything that is needed to run it again, in the order in which a reader asks."""
    first = run.points[0]
    return [
        *_engines(run),
        *_served(run),
        {"label": "Device", "value": _named(first.point.device, DEVICES.get(first.point.device))},
        *_step_times(run),
        *_known_errors(run),
        *quoted(run),
        *_workload(run),
        {"label": "Grid", "value": _grid(run)},
        {"label": "Points", "value": _points(run)},
        _traces(run.points),
        *program(run.points),
        {"label": "Time", "value": time(run.points)},
    ]


def _fact(label: str, said: Iterable[str]) -> list[Fact]:
    """Return a fact of these parts; none without any."""
    value = "; ".join(said)
    return [{"label": label, "value": value}] if value else []


def _served(run: Run) -> list[Fact]:
    """Return the deployment of one of our engines; for a foreign endpoint its address and protocol."""
    targets = dict.fromkeys(_target(point.params) for point in run.points if point.params.get("url"))
    return [
        *_fact("Deployment", deployment_titles(run)),
        *_fact("Target", targets),
        *_fact("Server build", [run.experiment.label]),
    ]


def _target(params: Mapping[str, Any]) -> str:
    model = f", model {params['model']}" if params.get("model") else ""
    return f"{params['url']}, dialect {params['dialect']}{model}"


ERROR = "Error against real servers"
PUT_IN = ("gpu", "model", "model_facts")
"""Parameters that replace a part of a deployment, as arguments of `reports.pages.facts`."""


def deployments(run: Run) -> list[tuple[Any, ...]]:
    """Return the deployments of the engines, each with the values of `PUT_IN`; none if the server is not ours."""
    found: list[tuple[Any, ...]] = []
    for params in (point.params for point in run.points if point.params.get("deployment") is not None):
        each = (str(params["deployment"]), *(params.get(name) for name in PUT_IN))
        if each not in found:
            found.append(each)
    return found


def deployment_titles(run: Run) -> list[str]:
    """Return `name: title` of each measured deployment."""
    return [
        _named(name, deployment and deployment.title)
        + (f"; with gpu={gpu}" if gpu else "")
        + (f"; with model={model}" if model else "")
        for name, gpu, model, _ in deployments(run)
        for deployment in [_loaded(name)]
    ]


def _loaded(name: str) -> Deployment | None:
    try:
        return load_deployment(name)
    except UserError:
        return None  # of a record from a version that had it


def _engines(run: Run) -> list[Fact]:
    points = {point.point.engine: point for point in run.points}
    facts = []
    for name, point in points.items():
        known = ENGINES.get(name)
        label = "Engine (baseline)" if name == run.baseline and len(points) > 1 else "Engine"
        own = _values(run, point.point.engine_params, [p for p in run.points if p.point.engine == name])
        more = _explained(own, known.fields(point.point.engine_params) if known else {})
        fact = {"label": label, "value": _named(name, known.summary if known else None)}
        facts.append(fact | ({"more": more} if more else {}))
    return facts


def _step_times(run: Run) -> list[Fact]:
    """Return the source of step times: measured ones with the error of their fit on unseen steps, others by stage."""
    found: dict[str, Profile] = {}
    given: dict[str, None] = {}
    for point in run.points:
        if point.point.profile is not None:
            profile = as_step_file(point.point.profile, "the stored profile")
            if isinstance(profile, Profile):
                found[profile.origin] = profile
            elif isinstance(profile, Kernels):
                given[profile.origin] = None
    if given:
        return [{"label": "Step times", "value": f"from the file given: {'; '.join(given)}"}]
    if not found:
        return _by_stage(run)
    more = [
        [
            f"{profile.model} {name}",
            f"{100 * error.median:.1f} % (P90 {100 * error.p90:.1f} %)",
            f"{stage.samples:,} steps, form {stage.form}",
        ]
        for profile in found.values()
        for name, stage in profile.stages.items()
        for error in [stage.fitted.held_out]
    ]
    errors = "; ".join(f"{row[0]} {row[1]}" for row in more)
    value = f"measured and fitted: {'; '.join(found)}; error of held-out steps {errors}"
    return [{"label": "Step times", "value": value, "more": more}]


def _by_stage(run: Run) -> list[Fact]:
    """Return the sources of each stage's step times by the records, for points without a file of steps or kernels."""
    said: dict[str, None] = {}
    for point in run.points:
        by_source: dict[str, list[str]] = defaultdict(list)
        for stage, source in point.record.manifest.get("step_times", {}).items():
            by_source[source].append(stage)
        said |= dict.fromkeys(f"{', '.join(stages)}: {source}" for source, stages in by_source.items())
    return _fact("Step times", said)


def _known_errors(run: Run) -> list[Fact]:
    """Return the errors of predictions for the models and GPUs of the run, or the statement that none are known."""
    said: dict[str, None] = {}
    for point in run.points:
        if "step_times" not in point.record.manifest:
            continue
        try:
            deployment = resolve(ServerParams.of(point.point.server_params))
        except UserError:
            continue  # of a record from a version that had the deployment
        if deployment.speaks:
            said[voice_error(deployment)] = None
        elif deployment.gpu.name != "cpu_core":
            said[known_error(deployment.model.name, deployment.gpu.name)] = None
    return _fact(ERROR, said)


def voice_errors(names: Iterable[str]) -> list[Fact]:
    """The same of deployments that speak, by their names."""
    return _fact(ERROR, [voice_error(each) for each in map(_loaded, names) if each and each.speaks])


def voice_error(deployment: Deployment) -> str:
    """Return the errors of predictions for a server with spoken replies."""
    return deployment.known_error or (
        f"none is known for {deployment.name}: it was not compared with a public run, and its host times are those of "
        f"{deployment.release or 'no dated server'}"
    )


def _workload(run: Run) -> list[Fact]:
    point = run.points[0].point
    known = WORKLOADS.get(point.workload)
    fields = known.Params.model_fields if known else {}
    more = _explained(_values(run, point.workload_params, run.points), fields)
    value = _named(point.workload, known.summary if known else None)
    others = _values(run, {**point.client_params, **point.server_params}, run.points)
    text = ", ".join(f"{name} = {value}" for name, value in others.items())
    return [
        {"label": "Workload", "value": value, "more": more},
        {"label": "Clients and server", "value": text},
    ]


def _values(run: Run, params: Mapping[str, Any], points: Iterable[Measured]) -> dict[str, str]:
    """Each parameter's values over the points, in the order in which they were run; not what a named file held."""
    points = list(points)
    return {
        name: ", ".join(dict.fromkeys("default" if value is None else short(value) for value in values))
        for name in params
        if name != "model_facts"
        for values in [[point.params.get(name) for point in points]]
    }


def _explained(values: Mapping[str, str], fields: Mapping[str, Any]) -> list[list[str]]:
    return [
        [name, value, (fields[name].description or "") if name in fields else ""]
        for name, value in values.items()
    ]


def _named(name: str, summary: str | None) -> str:
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
        ", ".join(f"{name} {version}" for name, version in manifest["packages"].items())
        for manifest in manifests
    }
    machines = {_machine(manifest["machine"]) for manifest in manifests}
    return [
        {
            "label": "Program",
            "value": "; ".join(sorted(revisions)) + f"; code hash {', '.join(sorted(codes))}",
        },
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
    return (
        f"{machine['cpu']}, {counted(machine['cores'], 'core')}, {memory:.0f} GiB, Python {machine['python']}"
    )


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


NAMES = {"ttft": "TTFT", "itl": "inter-token", "e2e": "E2E"}


@dataclass(frozen=True)
class Known:
    """Mean absolute errors as shares, of loads below saturation; `runs`: what they are of."""

    model: str
    gpu: str
    ttft: float
    itl: float
    e2e: float
    runs: str

    @property
    def sentence(self) -> str:
        errors = ", ".join(f"{NAMES[name]} {100 * getattr(self, name):.1f} %" for name in LATENCIES)
        return f"{errors} ({self.runs})"


@cache
def known() -> tuple[Known, ...]:
    """Return the results of `rehearse fidelity --measured-runs`, by model and GPU."""
    return tuple(Known(**each) for each in shipped_yaml(files("harness.measured_runs") / "known.yaml"))


def known_error(model: str, gpu: str) -> str:
    """Return the known error of predictions for a model on a GPU, as a sentence."""
    of_gpu = [each for each in known() if each.gpu == gpu]
    for each in of_gpu:
        if each.model == model:
            return f"mean absolute error against real runs, by measured kernels: {each.sentence}"
    if of_gpu:
        others = "; ".join(f"{each.model}: {each.sentence}" for each in of_gpu)
        return f"{model} on {gpu} was not compared with a real run; others on it: {others}"
    return f"nothing on {gpu} was compared with a real run"
