"""`rehearse list`: all names of a kind, and the parameters of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from reports.cli.completion import named
from reports.cli.output import AS_CSV, AS_JSON, emit, form_of, wide
from reports.cli.settings import option
from reports.tables.plain_tables import grid
from workloads.errors import UserError, nearest, unknown

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Row = dict[str, Any]


def _kinds(incomplete: str) -> list[tuple[str, str]]:
    return [(name, about.summary) for name, about in KINDS.items() if name.startswith(incomplete)]


def _of_its_kind(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return named(context.params.get("kind") or "")(incomplete)


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="engines, workloads, devices, gpus, deployments, dialects, cards or metrics; default: what these are.",
            autocompletion=_kinds,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="One of them, to see its parameters.", autocompletion=_of_its_kind)
    ] = None,
    sets: list[str] = option([], "Show the parameters of another component.", "CHOICE=COMPONENT", name="--set"),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """List engines, workloads, devices, gpus, deployments, dialects, cards or metrics, or show one with its parameters.

    --set shows the parameters of another component of a system.

    `rehearse list engines`

    `rehearse list workloads voice`

    `rehearse list engines vllm_omni --set scheduler=conserve`

    `rehearse list cards --json`

    `rehearse list metrics`
    """
    form = form_of(as_json, as_csv)
    if kind is None:
        kinds: list[Row] = [{"name": each, "summary": about.summary} for each, about in KINDS.items()]
        of_all = "The names of a kind: rehearse list engines. One of them: rehearse list engines liveserve."
        return emit(form, kinds) if form != "table" else _show(kinds, of_all)
    if kind not in KINDS:
        raise UserError(f"unknown kind {kind!r}.{nearest(kind, KINDS)}")
    about = KINDS[kind]
    brief = about.brief()
    names = [row["name"] for row in brief]
    if name is not None and name not in names:
        raise unknown(kind.removesuffix("s"), name, names)
    if sets and name is None:
        raise UserError(f"--set {sets[0]} is for one engine; write rehearse list engines NAME --set {sets[0]}.")
    if form == "json" and not sets:
        emit(form, [_whole(row, about, name is None) for row in brief if name in (None, row["name"])])
    elif name is not None:
        one = next(row for row in brief if row["name"] == name) | about.details(name)
        if sets:
            one = _components(one, sets)
        if form == "table":
            _show_one(one, [] if sets else one.get("choices", []))
        else:
            emit(form, [one] if form == "json" else one.get("parameters", [one]))
    elif form == "csv":
        emit(form, brief)
    else:
        more = f"Parameters of one: rehearse list {kind} {names[0]}" if about.takes_parameters else ""
        _show(brief, about.order, more)


class Kind(NamedTuple):
    """One kind of names. `brief`: name and summary of each; `details`: the rest about a name, which may have to be
    loaded; `order`: meaning of the order of `brief`."""

    summary: str
    brief: Callable[[], list[Row]]
    details: Callable[[str], Row] = lambda name: {}
    takes_parameters: bool = False
    order: str = ""


def _whole(row: Row, about: Kind, among: bool) -> Row:
    """Return a row with its details. UserError for one that cannot be loaded; `among` others, its `fault` says why."""
    try:
        return row | about.details(row["name"])
    except UserError as error:
        if not among:
            raise
        return row | {"fault": str(error)}


def _show(rows: Sequence[Row], *sentences: str) -> None:
    from rich.markup import escape

    more = [key for key in ("group", "unit") if any(row.get(key) for row in rows)]
    cells = [(row["name"], *(row[key] for key in more), escape(row["summary"])) for row in rows]
    # A line for each name, also where it is piped into another program
    wide(160).print(grid(("name", *more, "what it is"), cells))
    for sentence in filter(None, sentences):
        typer.echo(f"\n{sentence}")


def _components(row: Row, choices: Sequence[str]) -> Row:
    """The row with the parameters of these components alone. UserError for one that it could not have."""
    names = row.get("choices", [])
    for choice in choices:
        if choice not in names:
            raise UserError(f"--set {choice}: {row['name']} has no such component.{nearest(choice, names)}")
    parameters = [parameter for parameter in row["parameters"] if parameter["group"] in choices]
    return {"name": row["name"], "summary": row["summary"], "parameters": parameters}


def _show_one(row: Row, hidden: Sequence[str]) -> None:
    """Print one entry. `hidden`: groups of parameters that are not shown; a line explains how to see them."""
    from rich.console import Console
    from rich.markup import escape

    _show([row])
    console = Console()
    made_of = {name: row[name] for name in ("serves",) if row.get(name)} | row.get("composition", {})
    others: dict[str, list[str]] = {}
    for choice in row.get("choices", ()):
        field, _, name = choice.partition("=")
        others.setdefault(f"or --set {field}=", []).append(name)
    made_of |= {setting: ", ".join(names) for setting, names in others.items()}
    if made_of:
        console.print()
        console.print(grid((), [(field, escape(filling)) for field, filling in made_of.items()]))
    if not row.get("parameters"):
        return
    console.print()
    rows = [
        (
            parameter["name"],
            "required" if parameter["required"] else str(parameter["default"]),
            parameter["group"],
            escape(parameter["description"]),
        )
        for parameter in row["parameters"]
        if parameter["group"] not in hidden
    ]
    console.print(grid(("parameter", "default", "of", "what it is"), rows))
    more = [name for name in hidden if any(each["group"] == name for each in row["parameters"])]
    if more:
        typer.echo(f"\nParameters of another component: rehearse list engines {row['name']} --set {more[0]}")


def _brief_engines() -> list[Row]:
    from engines.registry import ENDPOINT, ENGINES, beside_baselines

    rows = [
        {"name": name, "group": system, "summary": ENGINES[name].summary}
        for system, baselines in beside_baselines().items()
        for name in (system, *baselines)
    ]
    summary = "any server behind a URL: rehearse live"
    return [*rows, {"name": ENDPOINT, "group": ENDPOINT, "summary": summary}]


def _engine(name: str) -> Row:
    from engines.registry import ENDPOINT, ENGINES
    from engines.server import ServerParams
    from harness.client.client_params import ClientParams
    from harness.live.endpoints.target import TargetParams

    client = _parameters("client", ClientParams.model_fields)
    if name == ENDPOINT:
        return {"parameters": [*_parameters("target", TargetParams.model_fields), *client]}
    shared, engine = [*_parameters("server", ServerParams.model_fields), *client], ENGINES[name]
    params = engine.read({})
    unused, choices = engine.unused(params), engine.choices(params)
    return {
        "serves": engine.kind,
        "composition": dict(engine.composition(params)),
        "choices": list(choices),
        "parameters": [
            *_parameters("engine", engine.fields({})),
            *(row for choice, model in choices.items() for row in _parameters(choice, model.model_fields)),
            *(parameter for parameter in shared if parameter["name"] not in unused),
        ],
    }


def _brief_workloads() -> list[Row]:
    from workloads.registry import WORKLOADS

    return [{"name": each.name, "summary": each.summary} for each in WORKLOADS.values()]


def _workload(name: str) -> Row:
    from engines.server import ServerParams
    from harness.replays.kinds import server_model
    from workloads.registry import WORKLOADS

    kind = WORKLOADS[name]
    server = _parameters("server", server_model(kind.serves).model_fields)
    of_server = [parameter for parameter in server if parameter["name"] not in ServerParams.model_fields]
    return {"serves": kind.serves, "parameters": [*_parameters("workload", kind.Params.model_fields), *of_server]}


def _brief_devices() -> list[Row]:
    from workloads.devices import DEVICES

    return [{"name": name, "summary": summary} for name, summary in DEVICES.items()]


def _brief_gpus() -> list[Row]:
    from engines.devices.hardware import gpu_facts, gpu_names
    from engines.models import values

    rows = []
    for name in gpu_names():
        try:
            gpu = values(gpu_facts(name))
            memory, speed = gpu["memory_bytes"] / 1e9, gpu["bandwidth"] / 1e12
            summary = f"{memory:.4g} GB at {speed:.3g} TB/s, {gpu['bf16_flops'] / 1e12:.4g} TFLOP/s in bf16"
        except UserError as error:
            summary = str(error)
        rows.append({"name": name, "summary": summary})
    return rows


def _gpu(name: str) -> Row:
    from engines.devices.hardware import gpu_facts

    facts = {fact: number for fact, number in gpu_facts(name).items() if "value" in number}
    return {"composition": {fact: f"{each['value']:.4g}  {each['source']}" for fact, each in facts.items()}}


def _brief_deployments() -> list[Row]:
    from engines.deployments import deployment_names, load_deployment

    return [{"name": name, "summary": load_deployment(name).title} for name in deployment_names()]


def _deployment(name: str) -> Row:
    from engines.server import ResolvedServer, ServerParams
    from harness.replays.step_times import step_sources

    server = ResolvedServer.of(ServerParams.model_validate({"deployment": name}))
    sources = {f"step times of {stage}": source for stage, source in step_sources(server).items()}
    return {"serves": f"{server.deployment.model.name} on {server.deployment.gpu.name}", "composition": sources}


def _brief_dialects() -> list[Row]:
    from harness.live.endpoints.target import DIALECTS, GROUP
    from workloads.plugins import entry_points, load

    rows = [{"name": name, "summary": summary} for name, summary in DIALECTS.items()]
    for entry in entry_points(group=GROUP):
        try:
            words = " ".join((load(entry).__doc__ or entry.value).split())
            summary = words.partition(". ")[0].removesuffix(".")
        except UserError as error:
            summary = str(error)
        rows.append({"name": entry.name, "summary": summary})
    return rows


def _brief_cards() -> list[Row]:
    from reports.cards.card import cards, index

    benches = [{"name": name, "group": "", "summary": card.experiment.title} for name, card in cards().items()]
    return benches + [
        {
            "name": name,
            "group": listed.group,
            "summary": listed.title + (f" (needs more: rehearse list cards {name})" if listed.needs else ""),
        }
        for name, listed in index().items()
    ]


def _brief_metrics() -> list[Row]:
    from harness import kinds  # noqa: F401  (a metric of another kind is known once its kind is)
    from harness.metrics.classes import CLASS_DEFINITIONS
    from harness.metrics.frames import FRAME_DEFINITIONS
    from harness.metrics.live import LIVE_DEFINITIONS
    from harness.metrics.metric_name import in_class
    from harness.metrics.quality import QUALITY_DEFINITIONS
    from harness.metrics.turns import DEFINITIONS
    from harness.metrics.vocabulary import OWN_DEFINITIONS

    of_class = {in_class("CLASS", name): each for name, each in CLASS_DEFINITIONS.items()}
    definitions = DEFINITIONS | LIVE_DEFINITIONS | OWN_DEFINITIONS | FRAME_DEFINITIONS | QUALITY_DEFINITIONS | of_class
    return [
        {"name": name, "unit": each.unit, "summary": each.definition.partition(";")[0]}
        for name, each in definitions.items()
    ]


def _metric(name: str) -> Row:
    from harness.metrics.vocabulary import definition

    meaning = definition(name)
    return {"summary": meaning.definition, "counted": meaning.origin, "better": meaning.better}


def _card(name: str) -> Row:
    from reports.cards.card import cards, figures

    if name in cards():
        experiments, row = {"": cards()[name].experiment}, {"quick": cards()[name].quick}
    else:
        figure = figures()[name]
        experiments, needs = figure.experiments, f" (needs {figure.needs})" if figure.needs else ""
        row = {"summary": figure.title + needs, "needs": figure.needs, "quick": dict(figure.quick)}
    dumped = {panel: experiment.model_dump(mode="json") for panel, experiment in experiments.items()}
    return {**row, "experiments": dumped}


def _parameters(group: str, fields: Mapping[str, FieldInfo]) -> list[Row]:
    return [
        {
            "name": name,
            "group": group,
            "required": field.is_required(),
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "description": field.description or "",
        }
        for name, field in fields.items()
    ]


KINDS = {
    "engines": Kind(
        "systems that serve, each with its parameters",
        _brief_engines,
        _engine,
        takes_parameters=True,
        order="Each system is followed by the baselines of its paper: first the systems for turns, then those for "
        "calls in frames.",
    ),
    "workloads": Kind("what users do, each with its parameters", _brief_workloads, _workload, True),
    "devices": Kind("devices that run steps: modelled, real, or behind sockets", _brief_devices),
    "gpus": Kind("GPUs that deployments name (gpu=NAME), each with the numbers of its data sheet", _brief_gpus, _gpu),
    "deployments": Kind(
        "which model on which GPUs (deployment=NAME)",
        _brief_deployments,
        _deployment,
        order="rehearse list deployments NAME shows where step times come from. FP4 weights, gpt-oss and DeepSeek "
        "have no measured kernels.",
    ),
    "dialects": Kind("protocols of servers for speech or text (rehearse live URL --dialect NAME)", _brief_dialects),
    "cards": Kind("experiments that come with this program (rehearse run NAME)", _brief_cards, _card),
    "metrics": Kind("metrics, each with its unit and meaning", _brief_metrics, _metric),
}
