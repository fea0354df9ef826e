"""Measured runs served again in virtual time, and what they would have been."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import yaml

from engines.devices.hardware import gpu_called, load_gpu
from engines.devices.profile import FilePart
from engines.devices.step_file import as_step_file
from engines.models import Model, load_model, model_of, yaml_files
from engines.models.config_file import as_yaml, file_name, read_config
from engines.server import ResolvedServer, ServerParams, resolve
from harness.measured_runs.measured_run import ALL_AT_ONCE, CLIENT_S, LATENCIES, MeasuredRun, Server, SummaryRun
from harness.measured_runs.replayed import Prefixes, begins, deployment, summary_trace, trace_of
from harness.replays.worker.fresh_process import in_fresh_process
from workloads.atomic_file import output
from workloads.errors import UserError
from workloads.files.yaml_file import shipped_yaml
from workloads.trace import Trace

ENGINE = "vllm_omni_wo"
"""Stock scheduling, and no KV but the GPU's."""

PATIENCE_S = 1e6
"""No user gives up: every measured request was answered."""

DEPLOYMENT, MODEL, LOG = "deployment.yaml", "model", "measured_runs.log"
"""Files of a planned run, and the folder of its model where no file of ours has it."""

Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Prediction:
    """A predicted run. `requests`: for each, its number, the part of the run, `saturated`, and TTFT, inter-token
    latency and E2E in s, `measured_*` (where known) and `predicted_*`. `step_times`: source of the replay's, `assumed`:
    of run and server, a sentence each."""

    run: MeasuredRun | SummaryRun
    requests: pd.DataFrame
    step_times: str
    gpu: str
    assumed: tuple[str, ...]


class Failed(FilePart):
    """A run that was not predicted. `reason`: a sentence. `log`: output of its replay; None: it was never begun."""

    run: str
    reason: str
    log: str | None


@dataclass(frozen=True)
class Planned:
    """A run ready to replay; its deployment is in a file of the folder in which it was planned. `earlier`: requests of
    earlier loads, with which the trace begins."""

    run: MeasuredRun | SummaryRun
    gpu: str
    trace: Trace
    prefixes: Prefixes
    earlier: int
    assumed: tuple[str, ...]


def predict(
    runs: list[MeasuredRun | SummaryRun],
    out: Path,
    gpu: str,
    model: str | None = None,
    step_times: str = "measured",
    show: Show = lambda what, done, total: None,
) -> tuple[list[Prediction], list[Failed]]:
    """Predict each run in a process of its own, a core each.

    `gpu`: of runs that do not name theirs. `model`: name or file, instead of the runs' own. A run that cannot be
    predicted is among the failed ones, with the reason. UserError where `gpu` or `model` is not known, or no run can be
    predicted.
    """
    load_gpu(gpu)
    if model is not None:
        load_model(model)
    planned: list[Planned] = []
    failed: list[Failed] = []
    with TemporaryDirectory() as trial:  # one that cannot be leaves nothing behind
        for run in runs:
            try:
                plan(run, Path(trial), gpu, model)
            except UserError as error:
                failed.append(Failed(run=run.name, reason=str(error), log=None))
            else:
                planned.append(plan(run, out, gpu, model))
    if not planned and failed:
        none = "" if len(runs) == 1 else f"none of {len(runs)} runs can be predicted: "
        raise UserError(none + failed[0].reason)
    predictions: list[Prediction] = []
    show("runs", 0, len(planned))
    pool = ThreadPoolExecutor(os.cpu_count())
    replays = [pool.submit(_predict, each, out, step_times) for each in planned]
    try:
        for done, _ in enumerate(as_completed(replays), start=1):
            show("runs", done, len(planned))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no replay
    for each, replay in zip(planned, replays, strict=True):
        try:
            predictions.append(replay.result())
        except (UserError, RuntimeError) as error:
            failed.append(_failed(each.run.name, out, str(error).strip()))
    return predictions, sorted(failed, key=lambda each: each.run)


def _failed(run: str, out: Path, why: str) -> Failed:
    """Return the failure: the last line is the reason, and the log keeps all of it."""
    log = out / run / LOG
    with log.open("a") as file:
        file.write(f"\n{why}\n")
    return Failed(run=run, reason=why.splitlines()[-1], log=str(log))


def plan(run: MeasuredRun | SummaryRun, out: Path, gpu: str, model: str | None) -> Planned:
    """Plan the replay of a run. UserError where it cannot be replayed."""
    if model is not None:
        served, name, unknown = load_model(model), model, ()
    else:
        served, name, unknown = served_model(run.name, run.server, out / run.name)
    on = gpu if run.server.gpu is None else gpu_called(run.server.gpu)
    if on is None:
        raise UserError(f"{run.name} ran on {run.server.gpu}, which is not a known GPU; add it to hardware.yaml.")
    facts, assumed = deployment(run.server, served, name, on, run.client_s)
    if isinstance(run, SummaryRun):
        (trace, prefixes, earlier), more = summary_trace(run), run.assumed
    else:
        (trace, prefixes), earlier, more = trace_of(run.requests), 0, ()
    path = out / run.name / DEPLOYMENT
    with output(path, make_folder=True) as file:
        file.write(yaml.safe_dump(facts, sort_keys=False).encode())
    _check_fits(run, on, path, trace, prefixes)
    if run.client_s and run.client_s == CLIENT_S.get(run.tool):
        more = (*more, f"{run.tool} adds {1e3 * run.client_s:g} ms to each latency, as fitted to public runs.")
    return Planned(run, on, trace, prefixes, earlier, (*assumed, *more, *unknown))


def _check_fits(run: MeasuredRun | SummaryRun, gpu: str, deployment: Path, trace: Trace, prefixes: Prefixes) -> None:
    try:
        served = resolve(ServerParams.of({"deployment": str(deployment)}))
    except UserError:
        raise UserError(
            f"{run.name} cannot have served {run.server.model} on {run.server.tp} {gpu}: the weights leave no memory "
            "for KV; set tensor_parallelism in exp-config.yaml, or another --gpu or --model."
        ) from None
    most, columns = served.stages[served.entry].max_model_len, trace.columns()
    shared = [tokens for _, tokens in prefixes]
    longest = int((np.asarray(columns["input_tokens"]) + columns["output_tokens"] + shared).max(initial=0))
    if longest > most:
        raise UserError(
            f"{run.name} has a request of {longest:,} tokens, prompt and output, and its server takes {most:,} "
            "(max_model_len, and what fits into its KV cache); set what it had in exp-config.yaml, or another --model."
        )


def _predict(planned: Planned, out: Path, step_times: str) -> Prediction:
    run, folder = planned.run, out / planned.run.name
    columns = {name: np.asarray(values) for name, values in planned.trace.columns().items()}
    latencies, source = in_fresh_process(
        folder / LOG, serve, str(folder / DEPLOYMENT), columns, planned.prefixes, step_times
    )
    requests = beside(run, latencies.iloc[planned.earlier :].reset_index(drop=True))
    return Prediction(run, requests, source, planned.gpu, planned.assumed)


def serve(
    path: str,
    columns: dict[str, Any],
    prefixes: Prefixes,
    step_times: str,
    profile: dict[str, Any] | None = None,
    slots: int | None = None,
) -> tuple[pd.DataFrame, str]:
    """Serve the run in virtual time in a fresh process. Return its requests by session and turn, and the source of its
    step times. `profile`: the content of a file that `--profile` takes. `slots`: sessions at once of a closed loop."""
    from harness.replays.expand import point_of
    from harness.replays.step_times import step_sources
    from harness.replays.worker.replay import replay
    from harness.request_tables.request_table import request_table

    trace = Trace.from_columns(columns, generator="measured_runs", params={}, seed=0, notes=[])
    server = {"deployment": path, "step_times": step_times}
    sources = step_sources(ResolvedServer.of(ServerParams.of(server)))

    def arrange(server: Any) -> None:
        served = server.gateway.deployment
        server.gateway.begins = begins(prefixes, served.stages[served.entry].decoder.vocab)

    client = {"turn_timeout_s": PATIENCE_S, "c": slots}
    given = None if profile is None else as_step_file(profile, "the profile")
    point = point_of(trace, ENGINE, server=server, client=client, profile=given)
    run = replay(point, trace, arrange=arrange)
    table = request_table(run.events.to_pandas(), pd.DataFrame(trace.columns())).sort_values(["session", "turn"])
    ttft, e2e = (np.asarray(table[name]) for name in ("ttft_s", "e2e_s"))
    tokens = columns["output_tokens"]
    itl = np.full(len(table), np.nan)
    many = tokens > 1
    itl[many] = (e2e - ttft)[many] / (tokens[many] - 1)
    latencies = {"predicted_ttft": ttft, "predicted_itl": itl, "predicted_e2e": e2e}
    return pd.DataFrame(latencies), "; ".join(dict.fromkeys(sources.values()))


def beside(run: MeasuredRun | SummaryRun, requests: pd.DataFrame) -> pd.DataFrame:
    """Return the requests with their parts and measured latencies; an experiment known in sum has none."""
    numbers = np.arange(len(requests))
    if isinstance(run, SummaryRun):
        unknown = {f"measured_{name}": np.nan for name in LATENCIES}
        return requests.assign(part=run.workload, request=numbers, saturated=False, **unknown)
    parts = [label for label, begin, end in run.parts for _ in range(begin, end)]
    numbered = requests.assign(part=parts, request=numbers)
    measured = {f"measured_{name}": [getattr(each, f"{name}_s") for each in run.requests] for name in LATENCIES}
    queued = [np.nan if each.queue_s is None else each.queue_s for each in run.requests]
    numbered = numbered.assign(**{name: np.asarray(v, float) for name, v in measured.items()}, queue=queued)
    of_part = numbered.groupby("part")
    # Much of a first token's time is spent in line: the server does not keep up with what comes.
    waits, firsts = (np.asarray(of_part[name].transform("mean"), float) for name in ("queue", "measured_ttft"))
    saturated = (waits > WAITING * firsts) | (numbered["part"] == ALL_AT_ONCE).to_numpy()
    return numbered.assign(saturated=saturated)


WAITING = 0.2
"""Share of the mean time to the first token that is waiting in line, above which a load is saturated. [chosen]"""


FP8 = ("fp8", "fbgemm_fp8")
"""vLLM's `quantization` where layers' weights of 16 bits are made FP8 as they are loaded."""

FIX = (
    "put its config.json into the folder of the run, or make its file with `rehearse model config.json` and add "
    "--model FILE"
)


def served_model(run: str, server: Server, folder: Path) -> tuple[Model, str, tuple[str, ...]]:
    """Return the model, its name or file, and its unknown facts: by its config.json where that is with the run,
    else by its name; in FP8 where the server made it so, by a file in `folder`. UserError for an unknown model or
    quantisation."""
    model, unknown, name = model_of(server.model), (), server.model or "model"
    if server.config is not None:
        published = read_config(server.config)
        facts, unknown = yaml.safe_load(as_yaml(published)), published.unknown
        fp8 = published.decoder.weight_dtype_bytes == 1
    elif not server.model:
        raise UserError(
            f"{run}: no file says which model was served; add exp-config.yaml with `model: NAME`, or {FIX}."
        )
    elif model is None:
        raise UserError(f"{run} served {server.model}, whose sizes are not known; {FIX}.")
    else:
        facts = shipped_yaml(yaml_files("models")[model.name])
        fp8 = all(each.weight_dtype_bytes == 1 for each in model.stages.values())
    if server.quantization is not None and not fp8:
        if server.quantization not in FP8:
            raise UserError(f"{run} served {server.model} quantised by {server.quantization}; {FIX}.")
        facts, model, name = _in_fp8(facts), None, f"{name}-fp8"
    if server.config is None and model is not None:
        return model, model.name, ()
    path = folder / MODEL / file_name(name)
    with output(path, make_folder=True) as file:
        file.write(yaml.safe_dump(facts).encode())
    return load_model(str(path)), str(path), unknown


def _in_fp8(facts: dict[str, Any]) -> dict[str, Any]:
    weights = {"weight_dtype_bytes": {"value": 1, "source": "[config] the server's quantization"}}
    return {**facts, "stages": {name: {**stage, **weights} for name, stage in facts["stages"].items()}}
