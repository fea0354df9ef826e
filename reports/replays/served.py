"""The engines, deployments and step times of a replay, read from its records, with the known errors of such
predictions."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from engines.deployments import Deployment, load_deployment
from engines.devices.kernels.grids import Kernels
from engines.devices.profile import Profile
from engines.devices.step_file import as_step_file
from engines.registry import ENGINES
from engines.server import ServerParams, resolve, shortened
from harness.measured_runs.measured_run import LATENCIES
from reports.calibration.fidelity import quoted
from reports.runs.measured import Run
from reports.runs.provenance import Fact, device, explained, fact, named, values
from workloads.errors import UserError
from workloads.files.yaml_file import shipped_yaml

ERROR = "Error against real servers"
PUT_IN = ("gpu", "model", "model_facts")
"""Parameters that replace a part of a deployment, as arguments of `reports.replays.constants`."""


def served(run: Run) -> list[Fact]:
    """Return the facts on engines, deployments, device and step times, in the order in which a reader asks."""
    return [
        *_engines(run),
        *fact("Deployment", deployment_titles(run)),
        *fact("Server build", [run.experiment.label]),
        device(run),
        *_step_times(run),
        *_known_errors(run),
        *quoted(run),
    ]


def deployments(run: Run) -> list[tuple[Any, ...]]:
    """Return the deployments of the engines, each with the values of `PUT_IN`; none if the server is not ours."""
    arguments: list[tuple[Any, ...]] = []
    for params in (point.params for point in run.points if point.params.get("deployment") is not None):
        each = (str(params["deployment"]), *(params.get(name) for name in PUT_IN))
        if each not in arguments:
            arguments.append(each)
    return arguments


def lowered_lengths(run: Run) -> list[str]:
    """Return a sentence for each stage whose KV pool lowers max_model_len."""
    sentences: dict[str, None] = {}
    for point in run.points:
        try:
            lengths = shortened(ServerParams.of(point.params))
        except UserError:
            continue  # of a record from a version that had it
        for name, (blocks, length, asked) in lengths.items():
            sentences[
                f"max_model_len of stage {name} is {length:,} tokens in place of {asked:,}: no longer request fits its "
                f"KV pool of {blocks:,} blocks."
            ] = None
    return [*sentences]


def deployment_titles(run: Run) -> list[str]:
    """Return `name: title` of each measured deployment."""
    return [
        named(name, deployment and deployment.title)
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
        kind = ENGINES.get(name)
        label = "Engine (baseline)" if name == run.baseline and len(points) > 1 else "Engine"
        settings = values(run, point.point.engine_params, [p for p in run.points if p.point.engine == name])
        more = explained(settings, kind.fields(point.point.engine_params) if kind else {})
        engine = {"label": label, "value": named(name, kind.summary if kind else None)}
        facts.append(engine | ({"more": more} if more else {}))
    return facts


def _step_times(run: Run) -> list[Fact]:
    """Return the source of step times: measured ones with the error of their fit on unseen steps, others by stage."""
    profiles: dict[str, Profile] = {}
    given: dict[str, None] = {}
    for point in run.points:
        if point.point.profile is not None:
            profile = as_step_file(point.point.profile, "the stored profile")
            if isinstance(profile, Profile):
                profiles[profile.origin] = profile
            elif isinstance(profile, Kernels):
                given[profile.origin] = None
    if given:
        return [{"label": "Step times", "value": f"from the file given: {'; '.join(given)}"}]
    if not profiles:
        return _by_stage(run)
    more = [
        [
            f"{profile.model} {name}",
            f"{100 * error.median:.1f} % (P90 {100 * error.p90:.1f} %)",
            f"{stage.samples:,} steps, form {stage.form}",
        ]
        for profile in profiles.values()
        for name, stage in profile.stages.items()
        for error in [stage.fitted.held_out]
    ]
    errors = "; ".join(f"{row[0]} {row[1]}" for row in more)
    value = f"measured and fitted: {'; '.join(profiles)}; error of held-out steps {errors}"
    return [{"label": "Step times", "value": value, "more": more}]


def _by_stage(run: Run) -> list[Fact]:
    """Return the sources of each stage's step times by the records, for points without a file of steps or kernels."""
    sources: dict[str, None] = {}
    for point in run.points:
        by_source: dict[str, list[str]] = defaultdict(list)
        for stage, source in point.record.manifest.get("step_times", {}).items():
            by_source[source].append(stage)
        sources |= dict.fromkeys(f"{', '.join(stages)}: {source}" for source, stages in by_source.items())
    return fact("Step times", sources)


def _known_errors(run: Run) -> list[Fact]:
    """Return the errors of predictions for the models and GPUs of the run, or the statement that none are known."""
    sentences: dict[str, None] = {}
    for point in run.points:
        if "step_times" not in point.record.manifest:
            continue
        try:
            deployment = resolve(ServerParams.of(point.point.server_params))
        except UserError:
            continue  # of a record from a version that had the deployment
        if deployment.speaks:
            sentences[voice_error(deployment)] = None
        elif deployment.gpu.name != "cpu_core":
            sentences[known_error(deployment.model.name, deployment.gpu.name)] = None
    return fact(ERROR, sentences)


def voice_errors(names: Iterable[str]) -> list[Fact]:
    """The same of deployments that speak, by their names."""
    return fact(ERROR, [voice_error(each) for each in map(_loaded, names) if each and each.speaks])


def voice_error(deployment: Deployment) -> str:
    """Return the errors of predictions for a server with spoken replies, and the stages without host times."""
    error = deployment.known_error or (
        f"none is known for {deployment.name} on {deployment.gpu.name}: it was not compared with a public run, and its "
        f"host times are those of {deployment.release or 'no dated server'}"
    )
    stages = deployment.stages.items()
    missing = [name for name, each in stages if not (each.decoder.host_s or each.decoder.host_s_per_request)]
    if missing:
        error += f"; it states no host times of its {', '.join(missing)}, so steps there take 0 ms of the host"
    return error


NAMES = {"ttft": "TTFT", "itl": "inter-token", "e2e": "E2E"}


@dataclass(frozen=True)
class ModelErrors:
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
def measured_errors() -> tuple[ModelErrors, ...]:
    """Return the results of `rehearse fidelity --measured-runs`, by model and GPU."""
    return tuple(ModelErrors(**each) for each in shipped_yaml(files("harness.measured_runs") / "known.yaml"))


def known_error(model: str, gpu: str) -> str:
    """Return the known error of predictions for a model on a GPU, as a sentence."""
    of_gpu = [each for each in measured_errors() if each.gpu == gpu]
    for each in of_gpu:
        if each.model == model:
            return f"mean absolute error against real runs, by measured kernels: {each.sentence}"
    if of_gpu:
        others = "; ".join(f"{each.model}: {each.sentence}" for each in of_gpu)
        return f"{model} on {gpu} was not compared with a real run; others on it: {others}"
    return f"nothing on {gpu} was compared with a real run"
