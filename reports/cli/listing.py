"""`rehearse list`: what there is to name, and the parameters of each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from workloads.errors import UserError, nearest


def list_(
    kind: Annotated[str, typer.Argument(help="engines, workloads, devices, deployments or cards.")],
    name: Annotated[str | None, typer.Argument(help="One engine or workload, to see its parameters.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all parameters.")] = False,
) -> None:
    """List engines, workloads, devices, deployments or cards.

    `rehearse list engines`

    `rehearse list workloads voice`

    `rehearse list cards --json`
    """
    import json

    if kind not in _KINDS:
        raise UserError(f"unknown kind {kind!r}.{nearest(kind, _KINDS)}")
    entries = _KINDS[kind]()
    if name is not None:
        entries = [entry for entry in entries if entry["name"] == name]
        if not entries:
            singular = kind.removesuffix("s")
            names = [entry["name"] for entry in _KINDS[kind]()]
            raise UserError(f"unknown {singular} {name!r}.{nearest(name, names)}")
    if as_json:
        typer.echo(json.dumps(entries, indent=1, default=str))
    else:
        _show(kind, entries, with_parameters=name is not None)


def _show(kind: str, entries: list[dict[str, Any]], with_parameters: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    grouped = any(entry.get("group") for entry in entries)
    table = Table("name", *(["group"] if grouped else []), "what it is", box=None, pad_edge=False)
    for entry in entries:
        table.add_row(entry["name"], *([entry["group"]] if grouped else []), escape(entry["summary"]))
    console.print(table)
    parameters = entries[0].get("parameters") if entries else None
    if not parameters:
        return
    if not with_parameters:
        console.print(f"\nParameters of one: rehearse list {kind} {entries[0]['name']}")
        return
    made_of = {"serves": entries[0].get("serves")} | entries[0].get("composition", {})
    if entries[0].get("choices"):
        made_of["or"] = "--set " + ", ".join(entries[0]["choices"])
    if made_of["serves"]:
        console.print()
        table = Table("", "", show_header=False, box=None, pad_edge=False)
        for seam, filling in made_of.items():
            table.add_row(seam, escape(filling))
        console.print(table)
    console.print()
    table = Table("parameter", "default", "of", "what it is", box=None, pad_edge=False)
    for parameter in parameters:
        default = "required" if parameter["required"] else str(parameter["default"])
        table.add_row(parameter["name"], default, parameter["group"], escape(parameter["description"]))
    console.print(table)


def _engines() -> list[dict[str, Any]]:
    from engines.registry import ENDPOINT, ENGINES
    from engines.server import ServerParams
    from harness.client.params import ClientParams
    from harness.live.target import TargetParams

    client = _parameters("client", ClientParams)
    shared = [*_parameters("server", ServerParams), *client]
    endpoint = {
        "name": ENDPOINT,
        "summary": "whatever stands behind a url, ours or anybody's: rehearse live",
        "parameters": [*_parameters("target", TargetParams), *client],
    }
    return [_engine(engine, shared) for engine in ENGINES.values()] + [endpoint]


def _engine(engine: Any, shared: list[dict[str, Any]]) -> dict[str, Any]:
    params = engine.Params()
    unused, choices = engine.unused(params), engine.choices(params)
    return {
        "name": engine.name,
        "summary": engine.summary,
        "serves": engine.kind,
        "composition": dict(engine.composition(params)),
        "choices": list(choices),
        "parameters": [
            *_parameters("engine", engine.Params),
            *(row for choice, model in choices.items() for row in _parameters(choice, model)),
            *(parameter for parameter in shared if parameter["name"] not in unused),
        ],
    }


def _workloads() -> list[dict[str, Any]]:
    from workloads.registry import WORKLOADS

    return [
        {
            "name": workload.name,
            "summary": workload.summary,
            "serves": workload.serves,
            "parameters": _parameters("workload", workload.Params),
        }
        for workload in WORKLOADS.values()
    ]


def _devices() -> list[dict[str, Any]]:
    from engines.devices.names import DEVICES

    return [{"name": name, "summary": summary} for name, summary in DEVICES.items()]


def _deployments() -> list[dict[str, Any]]:
    from engines.deployment import deployment_names, load_deployment

    return [{"name": name, "summary": load_deployment(name).title} for name in deployment_names()]


def _cards() -> list[dict[str, Any]]:
    from reports.cards import cards, figures

    benches = [
        {
            "name": name,
            "group": "",
            "summary": card.experiment.title,
            "experiments": {"": card.experiment.model_dump(mode="json")},
            "quick": card.quick,
        }
        for name, card in cards().items()
    ]
    return benches + [
        {
            "name": name,
            "group": figure.group,
            "summary": figure.title + (f" (needs {figure.needs})" if figure.needs else ""),
            "needs": figure.needs,
            "experiments": {
                panel: experiment.model_dump(mode="json") for panel, experiment in figure.experiments.items()
            },
            "quick": dict(figure.quick),
        }
        for name, figure in figures().items()
    ]


def _parameters(group: str, model: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "group": group,
            "required": field.is_required(),
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "description": field.description or "",
        }
        for name, field in model.model_fields.items()
    ]


_KINDS = {
    "engines": _engines,
    "workloads": _workloads,
    "devices": _devices,
    "deployments": _deployments,
    "cards": _cards,
}
