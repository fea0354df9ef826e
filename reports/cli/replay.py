"""`rehearse replay`: play a log of requests as it was recorded, on a simulated system or on a server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.exit_status import OK
from harness.live.live_options import OPTIONS
from harness.replays.executors.place import Place
from reports.cli.completion import named
from reports.cli.output import AS_CSV, AS_JSON, COLUMNS, Form, asked_metrics, form_of
from reports.cli.settings import DRY_RUN, SETTINGS, option
from workloads.devices import LIVE
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.experiments.grid import Traces
    from workloads.trace import Trace

TEXT = ("vllm_omni_wo", "llama_8b_1gpu")
SPOKEN = ("vllm_omni", "qwen3_omni_2gpu")
"""Engine and deployment by default: of text, stock vLLM on one GPU; of traces in which somebody speaks. [chosen]"""
DRAIN_S = 600.0
"""After the last recorded time, before a point is given up. [chosen]"""


def replay(
    file: Annotated[Path, typer.Argument(help="CSV, JSON lines, JSON or Parquet, packed or not.")],
    engine: str | None = option(
        None, "Simulated systems; default: stock vLLM.", "NAME[,NAME...]", autocompletion=named("engines")
    ),
    url: str | None = option(None, "Call this server instead.", "URL"),
    column: list[str] = option([], "The column for t, session, input, new, history, output or delay.", "ROLE=NAME"),
    duration: float | None = option(None, "Play only so much of the record, s; default: all.", "SECONDS"),
    settings: list[str] = SETTINGS,
    out: Path | None = option(
        None, "Results directory; default: results/replay-NAME, or of a server as rehearse live.", "DIR"
    ),
    token_env: str | None = option(None, *OPTIONS["token_env"]),
    dry_run: bool = DRY_RUN,
    columns: str | None = COLUMNS,
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Play a log of requests: every request at its recorded time, with its recorded lengths.

    Columns are found by their usual names; if one is missing, the error names it. The first lines say what was read,
    dropped and changed. `rehearse list workloads sessions` shows the settings of a table, such as limit and time_scale.

    `rehearse replay requests.csv`

    `rehearse replay requests.parquet --engine vllm_omni_wo,conserve --set deployment=llama_8b_h100`

    `rehearse replay requests.jsonl.zst --url http://127.0.0.1:8000/v1 --duration 60`

    `rehearse replay log.csv --column t=when --column input=chars --set unit=ms`
    """
    from harness.experiments.settings import read_settings

    form, metrics = form_of(as_json, as_csv), asked_metrics(columns)
    traces: Traces = {}
    if url is not None and engine is not None:
        raise UserError("--engine is a simulated system and --url a server; leave one of them out.")
    chosen = read_settings(settings)
    workload, base = _users(file, column, duration)
    if url is None:
        owner = _simulated(file, workload, base, engine, chosen)
    else:
        owner = _called(url, token_env, workload, base, chosen, traces)
    raise typer.Exit(_measure(owner, traces, out, form, metrics, dry_run))


def _users(file: Path, columns: list[str], duration: float | None) -> tuple[str, dict[str, Any]]:
    """Return the workload that replays the file, and its settings."""
    from workloads.registry import WORKLOADS
    from workloads.replays.layout import workload_of

    workload = "sessions" if columns else workload_of(file)
    settings: dict[str, Any] = {"path": str(file), "reply": "text", "modality": "text", "columns": _mapping(columns)}
    fields = WORKLOADS[workload].Params.model_fields
    settings = {name: value for name, value in settings.items() if name in fields and value}
    if duration is not None:
        if not 0 < duration <= 86_400:
            raise UserError(f"--duration {duration:g}: give a length from above 0 to 86400 s.")
        settings["stop_after_s"] = duration
    if workload == "sharegpt":
        typer.echo(
            f"{file} is a file of chats and states no time or length of a request: exchanges drawn from it come by a "
            "Poisson process, --set rate=R per second, --set requests=N.",
            err=True,
        )
    return workload, settings


def _mapping(columns: list[str]) -> dict[str, str]:
    mapping = {}
    for text in columns:
        role, equals, name = text.partition("=")
        if not (role and equals and name):
            raise UserError(f"--column {text} is not ROLE=NAME; write for example --column t=arrival.")
        if role in mapping:
            raise UserError(f"--column {role} is given twice; give it once.")
        mapping[role] = name
    return mapping


def _simulated(
    file: Path, workload: str, base: Mapping[str, Any], engine: str | None, settings: Mapping[str, str]
) -> Experiment:
    from harness.by_device import override
    from harness.experiments.experiment import Experiment
    from workloads.formats import load_trace

    speaks = workload == "file" and (load_trace(file).columns()["reply_audio_s"] > 0).any()
    default, deployment = SPOKEN if speaks else TEXT
    name = re.sub(r"[^a-z0-9_.-]+", "-", file.name.lower()).strip("-.")[:80]
    experiment = Experiment(
        name=f"replay-{name}",
        title=f"{file.name} as it was recorded",
        engines=[default],
        workload=workload,
        set={"deployment": deployment, **base},
    )
    return override(experiment, {**({"engine": engine} if engine else {}), **settings})


def _called(
    url: str, token_env: str | None, workload: str, base: Mapping[str, Any], settings: Mapping[str, str], traces: Traces
) -> Experiment:
    """Return the experiment, which ends with the record, or where `base` ends it."""
    from harness.experiments.experiment import ENDPOINT, Experiment
    from harness.experiments.settings import override
    from harness.live.endpoints.target import TargetParams, check_secrets
    from harness.live.expand import ENDPOINTS, expand
    from harness.live.live_experiment import by_environment
    from workloads.errors import validate

    check_secrets(url)
    target = {"url": url, **({} if token_env is None else {"token_env": token_env})}
    target = by_environment(target, settings)
    validate(TargetParams, target, "live").token()
    data = {
        "name": "live",
        "title": f"{url}, called as {Path(base['path']).name} records",
        "engines": [ENDPOINT],
        "workload": workload,
        "device": "live",
        "set": {**target, "network_ms": 0.0, **base},
    }
    if workload == "file":
        del data["set"]["network_ms"]
    experiment = override(validate(Experiment, data, "replay"), settings, ENDPOINTS)
    expand(experiment, traces)
    lasts_s = float(base.get("stop_after_s") or max(_end_s(trace) for trace in traces.values()))
    typer.echo(f"about {lasts_s:,.0f} s of recorded times; --duration plays less", err=True)
    ended = {"stop_after_s": lasts_s, **experiment.set}
    return experiment.model_copy(update={"set": ended, "timeout_s": lasts_s + DRAIN_S})


def _end_s(trace: Trace) -> float:
    """Return when the last turn begins if the server takes no time, s, rounded up."""
    import numpy as np

    from workloads.transforms.nominal import nominal

    return float(np.ceil(nominal(trace).start_s.max() + 1.0))


def _measure(
    owner: Experiment, traces: Traces, out: Path | None, form: Form, metrics: Sequence[str], dry_run: bool
) -> int:
    """Measure the points, or print them, and return the exit status."""
    from harness.by_device import expand
    from reports.cli.measuring import measure_points, show_points
    from reports.cli.present import present
    from reports.runs.measured import load_run

    points = expand(owner, traces)
    if dry_run:
        show_points(points, form)
        return OK
    if owner.device == LIVE:
        from reports.cli.live import call_as_recorded

        return call_as_recorded(owner, [*points], out, form, metrics)
    from reports.cli.workers import side_of

    folder = out or Path("results") / owner.name
    side = side_of(points, None, Place("local"))
    return measure_points(owner, points, folder, side, lambda: present(load_run(folder, owner), form, metrics))
