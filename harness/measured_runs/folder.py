"""A folder of measured runs: each folder with a file of requests is one, and summaries hold many.

Whichever files of a run say what the server and the client measured are put together.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from harness.measured_runs import aiperf, guidellm, inference_perf, vllm_bench
from harness.measured_runs.document import get, number, read_yaml
from harness.measured_runs.guidellm import split
from harness.measured_runs.inference_perf import read_stages
from harness.measured_runs.measured_run import (
    CLIENT_S,
    WHOLE,
    MeasuredRun,
    Part,
    Request,
    Server,
    SummaryRun,
    VoiceRun,
    by_arrival,
    rate_label,
)
from harness.measured_runs.summary_csv import is_summary, read_summaries
from harness.measured_runs.vllm_server import read_log, read_spans, server_of
from harness.records.record import Record, load_record
from harness.records.results import EXPERIMENT, record_folders
from workloads.errors import UserError

KINDS = (
    "OpenTelemetry traces of vLLM (JSON), results of guidellm (JSON, gzip or not), of `vllm bench serve` or of "
    "`rehearse live`, aiperf's profile_export.jsonl, inference-perf's per_request_lifecycle_metrics.json or "
    "summary_lifecycle_metrics.json, or a summary as CSV"
)


def read_runs(path: str | Path) -> list[MeasuredRun | SummaryRun]:
    """Return the runs in a folder and the folders within it, by name, and the experiments of its summaries.

    `path` may also be one file: of requests, with which the settings in its folder are read, or a summary. Other files
    are skipped. UserError about a broken file, where there is nothing to read, and where a server spoke.
    """
    text, voice = text_and_voice(path)
    if voice:
        raise UserError(f"{voice[0].name} has users who speak or listen; give a run of text.")
    return text


def text_and_voice(path: str | Path) -> tuple[list[MeasuredRun | SummaryRun], list[VoiceRun]]:
    """Return `read_runs` of servers that answer in text, and runs of servers that speak."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist; give a file or a folder of measured runs.")
    runs: Sequence[MeasuredRun | SummaryRun | VoiceRun]
    runs = _file(path) if path.is_file() else _folder(path, path.resolve().name, "")
    if not runs:
        raise UserError(f"{path} has nothing to read in it; give {KINDS}, or a folder with such files.")
    voice = [run for run in runs if isinstance(run, VoiceRun)]
    return with_clients([run for run in runs if not isinstance(run, VoiceRun)]), voice


def _file(path: Path) -> list[MeasuredRun | SummaryRun]:
    """Return the run of this file, or what it is by its content."""
    if path.suffix == ".csv":
        return [*read_summaries(path)]
    if kind_of(path) == "aiperf summary":
        path = aiperf.records_of(path)
    folder = path.parent.parent if path.parent.name in RESULTS else path.parent
    runs = files_of(folder)
    for files in runs:
        if path in files.values():
            return read_run(folder, files, folder.resolve().name if len(runs) == 1 else _stem(path))
    kind = kind_of(path)
    name = folder.resolve().name if kind == "summary" else _stem(path)
    return read_run(folder, {kind: path}, name) if kind else []


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".jsonl")


def _folder(path: Path, name: str, within: str) -> list[MeasuredRun | SummaryRun | VoiceRun]:
    """Return the runs of a folder. `name`: of the folder's own run; `within` begins the names of the folders in it."""
    runs: list[MeasuredRun | SummaryRun | VoiceRun] = []
    if (experiment := live_experiment(path)) is not None:
        return [read_live(path, experiment, name)]
    if file_sets := files_of(path):
        for files in file_sets:
            run_name = name if len(file_sets) == 1 else f"{name}-{_stem(next(iter(files.values())))}"
            runs += read_run(path, files, run_name)
        return runs
    for each in sorted(path.iterdir()):
        if each.is_dir() and not each.name.startswith("."):
            runs += _folder(each, within + each.name, f"{within}{each.name}-")
        elif each.suffix == ".csv" and each.stat().st_size and is_summary(each):
            runs += read_summaries(each)
    return runs


KEYS = ["session", "turn"]
PAUSE_S = 10.0
"""Between one load and the next, which in fact may have been an hour. [chosen]"""


def live_experiment(folder: Path) -> dict[str, Any] | None:
    """Return the experiment of a results folder of `rehearse live`; None of another folder."""
    try:
        stored = json.loads((folder / EXPERIMENT).read_bytes())
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) and stored.get("device") == "live" else None


def read_live(folder: Path, experiment: dict[str, Any], name: str) -> MeasuredRun | VoiceRun:
    """Return the run, whose parts are the finished loads in the order of their measurement. UserError where there is
    none, or users spoke and replies are text."""
    records = [load_record(path) for path in record_folders(folder / "points")]
    finished = sorted(
        (each for each in records if each.manifest["status"] == "ok"), key=lambda each: each.manifest["started"]
    )
    if not finished:
        raise UserError(f"{folder} has no finished load; give a finished run of `rehearse live`.")
    labels = [_label(each) for each in finished]
    model = str(finished[0].point.server_params.get("model") or "")
    server = Server(model, label=experiment.get("label") or "", config=_model_config(folder, model))
    if any(each.table("requests")["spoken"].any() for each in finished):
        return VoiceRun(name, server, tuple(finished), tuple(labels))
    parts, begin_s = [], 0.0
    for record, label in zip(finished, labels, strict=True):
        seen = tuple(_seen(record, begin_s, str(len(parts))))
        if not seen:
            continue
        begin_s = max(each.arrival_s + (each.e2e_s or 0.0) for each in seen) + PAUSE_S
        again = f", seed {record.point.seed}" if labels.count(label) > 1 else ""
        parts.append(Part(label + again, seen))
    return MeasuredRun(name, server, *joined([], parts, []), "rehearse live", None)


def _label(record: Record) -> str:
    c = record.point.client_params.get("c")
    if c is not None and record.point.client_params.get("c_counts", "session") != "session":
        return f"{c} requests at a time"
    return f"{c} at a time" if c is not None else rate_label(float(str(record.point.workload_params["rate"])))


def _seen(record: Record, begin_s: float, name: str) -> Iterator[Request]:
    """Return the requests. Tokens of prompts and replies are as the server states them. Where it states no prompt, its
    tokens are the new ones and all that its session had said before, which the prefix cache may hold."""
    turns = pd.DataFrame(record.trace().columns()).sort_values(KEYS)
    table = record.table("requests")
    if set(turns["modality"]) - {"text"}:
        raise UserError(f"{record.folder} has users who speak, and replies in text; give a run of text.")
    both = turns.merge(table, on=KEYS, how="inner")
    output = both["generated_entry"].astype(float).fillna(both["output_tokens"])
    tokens = both["input_tokens"] + output
    before = both["history_tokens"].fillna(tokens.groupby(both["session"]).cumsum() - tokens)
    prompt = _stated_prompts(record, both).fillna(before + both["input_tokens"])
    said = (prompt + output).groupby(both["session"]).shift()
    before = both["history_tokens"].fillna(said).fillna(0.0).clip(upper=prompt - 1)
    over_s = (both["turn_end_s"] + both["e2e_s"]).groupby(both["session"]).shift()
    for at, row in enumerate(both.to_dict("records")):
        history = int(before.iloc[at])
        ttft, e2e = (None if pd.isna(row[key]) else float(row[key]) for key in ("ttft_s", "e2e_s"))
        yield Request(
            id="",
            arrival_s=begin_s + row["turn_end_s"],
            prompt_tokens=int(prompt.iloc[at]),
            output_tokens=int(output.iloc[at]),
            ttft_s=ttft,
            e2e_s=e2e,
            prefix=f"{name}/{row['session']}" if history else None,
            prefix_tokens=history,
            session=f"{name}/{row['session']}",
            think_s=None if pd.isna(over_s.iloc[at]) else max(0.0, row["turn_end_s"] - over_s.iloc[at]),
        )


def _stated_prompts(record: Record, turns: pd.DataFrame) -> pd.Series:
    """Return the tokens of each turn's prompt by the server's count; NaN where it states none."""
    events = record.table("events")
    stated = events[events["kind"] == "prompt"]
    tokens = dict(zip(zip(stated["session"], stated["turn"], strict=True), stated["value"], strict=True))
    return pd.Series([tokens.get(key) for key in zip(turns["session"], turns["turn"], strict=True)], dtype=float)


RESULTS = ("", "results", "inference-perf-data")
"""Within a run's folder, where its client's files are looked for."""
_BEGIN = 1 << 16
"""Bytes of a JSON file in which it shows what it is."""
NAMES = {
    "traces": ("traces.json", "traces.jsonl"),
    "guidellm": ("guidellm-results.json", "guidellm-results.json.gz"),
    "requests": ("per_request_lifecycle_metrics.json",),
    "summary": ("summary_lifecycle_metrics.json",),
}
_SHOWS = {
    "traces": rb'"resourceSpans"',
    "guidellm": rb'"benchmarks"(?s:.*)("guidellm_version"|"generative|"strategy|"request_loader")|'
    rb'"guidellm_version"(?s:.*)"benchmarks"',
    "aiperf": rb'^\s*\{\s*"metadata"(?s:.*)"request_start_ns"(?s:.*)"metrics"',
    "aiperf summary": rb'"aiperf_version"\s*:',
    "bench": rb'"endpoint_type"(?s:.*)"model_id"|"model_id"(?s:.*)"endpoint_type"',
    "summary": rb'"load_summary"(?s:.*)"schedule_delay"',
    "requests": rb'^\s*\[\s*\{(?s:.*)"(start_time|end_time)"(?s:.*)"(request|info)"',
}
"""Kind of file -> names in the beginning of such a file, whatever the file is called."""

Files = dict[str, Path]
"""The files of a run that state requests, by kind, the server's first; at least one."""


def files_of(folder: Path) -> list[Files]:
    """Return the runs of a folder, without the folders within it: several where it has several results of a client, and
    no server's file with them. UserError where it is ambiguous which of them belong together."""
    files = {kind: path for kind, names in NAMES.items() if (path := there(folder, *names))}
    results: dict[str, list[Path]] = {"traces": [], "guidellm": [], "bench": [], "aiperf": []}
    for within in RESULTS:
        for path in sorted((folder / within).glob("*.json*")):
            if path not in files.values() and (kind := kind_of(path)) in results:
                results[kind].append(path)
    alone = [(kind, path) for kind in ("bench", "aiperf") for path in results.pop(kind)]
    one = {kind: paths.pop() for kind, paths in results.items() if kind not in files and len(paths) == 1}
    files = {kind: path for kind in NAMES if (path := one.get(kind) or files.get(kind))}
    several = [(kind, path) for kind, paths in results.items() for path in paths]
    if not files:
        return [{kind: path} for kind, path in (*several, *alone)]
    if several and ("traces" in files or "guidellm" in files):
        raise UserError(
            f"{folder} has the files of several runs ({', '.join(path.name for path in files.values())} and "
            f"{', '.join(path.name for _, path in several)}); put each run into a folder of its own."
        )
    return [files]


def there(folder: Path, *names: str) -> Path | None:
    """Return the first of `names` that is in a run's folder."""
    places = [folder / within / name for within in RESULTS for name in names]
    return next((path for path in places if path.is_file()), None)


def log_of(folder: Path) -> Path | None:
    """Return vLLM's log: `vllm` in its name, and .log or .txt."""
    logs = (path for path in sorted(folder.glob("*vllm*")) if path.suffix in (".log", ".txt"))
    return next((path for path in logs if path.is_file()), None)


def kind_of(path: Path) -> str | None:
    """Return the kind of a JSON file, by its content; None for another one."""
    if not path.is_file() or not path.name.removesuffix(".gz").endswith((".json", ".jsonl")):
        return None
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            begin = file.read(_BEGIN)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; give a readable file.") from None
    return next((kind for kind, names in _SHOWS.items() if re.search(names, begin)), None)


def read_run(folder: Path, files: Files, name: str) -> list[MeasuredRun | SummaryRun]:
    """Return a run, or its stages where the requests are missing. UserError about the first file that cannot be read,
    or about requests that no file has."""
    where, log = str(folder), log_of(folder)
    profile = _profile(folder)
    client, tool, model, prefix_tokens = _client(files, profile)
    served = by_arrival(read_spans(files["traces"]) if "traces" in files else [])
    server = server_of(_yaml(folder, "exp-config.yaml"), read_log(log) if log else {}, model, where)
    server = replace(server, config=_model_config(folder, server.model))
    if not served and not any(part.requests for part in client):
        if "summary" in files:
            return [*read_stages(files["summary"], profile, name, _workload(name), server)]
        raise UserError(f"{next(iter(files.values()))} has no served requests; give a run with some.")
    shared = int(number(profile, where, "data.prefix_tokens") or 0) or prefix_tokens
    served = _with_prefix(served, shared)
    client = [Part(part.label, tuple(_with_prefix(part.requests, shared))) for part in client]
    requests, parts, beside = joined(served, client, _parts(served, profile, where) if served else [])
    return [MeasuredRun(name, server, requests, parts, beside, tool, 0.0 if served else None)]


def _yaml(folder: Path, name: str) -> dict[str, Any]:
    path = there(folder, name)
    return read_yaml(path) if path else {}


def _profile(folder: Path) -> dict[str, Any]:
    """Return the client's settings; for inference-perf its resolved settings, where it wrote them."""
    made = _yaml(folder, "config.yaml")
    return made if get(made, "load.stages") else _yaml(folder, "profile.yaml")


def _model_config(folder: Path, model: str) -> Path | None:
    """Return the config.json of the model in the run's folder, in a folder of the model in it, or where the server had
    it."""
    folders = (folder, folder / "model", folder / model.rpartition("/")[2], folder / model)
    for path in (each / "config.json" for each in folders):
        if path.is_file() and re.search(rb'"(model_type|architectures|text_config)"', path.read_bytes()):
            return path
    return None


def _client(files: Files, profile: dict[str, Any]) -> tuple[list[Part], str, str | None, int]:
    """Return the client's measurements, its name, the model asked for, and the tokens with which all prompts begin."""
    if path := files.get("guidellm"):
        return guidellm.read_parts(path), "guidellm", *guidellm.asked(path)
    if path := files.get("bench"):
        return [vllm_bench.read_part(path)], "vllm bench serve", vllm_bench.model(path), 0
    if path := files.get("aiperf"):
        return [aiperf.read_part(path)], "aiperf", aiperf.model(path), 0
    parts = inference_perf.read_parts(path, profile) if (path := files.get("requests")) else []
    return parts, "inference-perf", get(profile, "server.model_name"), 0


def with_clients(runs: Sequence[MeasuredRun | SummaryRun]) -> list[MeasuredRun | SummaryRun]:
    """Return the runs of one data set with the client's share of latencies: it is known where the client loaded a run
    that its server measured, too, and holds for its other runs; else it is that of CLIENT_S."""
    added: dict[str, list[float]] = {}
    for run in runs:
        if isinstance(run, MeasuredRun) and run.client:
            for seen, served in zip(run.client, run.requests, strict=True):
                if seen and seen.ttft_s is not None and served.ttft_s is not None:
                    added.setdefault(run.tool, []).append(seen.ttft_s - served.ttft_s)
    medians = CLIENT_S | {tool: median(values) for tool, values in added.items()}
    return [run if run.client_s is not None else replace(run, client_s=medians.get(run.tool)) for run in runs]


def _with_prefix(seen: Sequence[Request], tokens: int) -> list[Request]:
    """Add guidellm's prefix: it puts the same tokens before every prompt."""
    if not tokens:
        return list(seen)
    return [replace(one, prefix="all", prefix_tokens=min(tokens, one.prompt_tokens)) for one in seen]


def _parts(served: Sequence[Request], profile: dict[str, Any], where: str) -> list[Part]:
    """Return the parts of a guidellm run by its settings, where it has no results with the parts."""
    kind, rate = get(profile, "rate-type", "rate_type"), get(profile, "rate")
    most = number(profile, where, "max-requests", "max_requests")
    if kind == "sweep":
        return split(served, int(most) if most else None)
    has_label = kind in ("synchronous", "throughput") or (
        kind in ("constant", "poisson") and isinstance(rate, int | float)
    )
    return [Part(guidellm.label({"type_": kind, "rate": rate}, where) if has_label else WHOLE, tuple(served))]


def _workload(name: str) -> str:
    """Return the workload of a folder: inference-sim names folders MODEL-tpN-WORKLOAD."""
    match = re.search(r"-tp\d+-(.+)$", name)
    return match.group(1) if match else name


Joined = tuple[tuple[Request, ...], tuple[tuple[str, int, int], ...], tuple[Request | None, ...] | None]
"""`requests`, `parts` and `client` of a MeasuredRun."""


def joined(served: Sequence[Request], client: Sequence[Part], unknown: Sequence[Part]) -> Joined:
    """Join server and client. `served` in the order of arrival; `unknown`: its parts where the client does not state
    them. Without `served` the client's requests are used, without a second view."""
    parts = [Part(part.label, tuple(by_arrival(part.requests))) for part in client if part.requests]
    asked = {one.id: (at, one) for at, part in enumerate(parts) for one in part.requests if one.id}
    pairs = [_asked(one.id, asked) for one in served]
    beside = tuple(pair and pair[1] for pair in pairs) if any(pairs) else None
    if beside:
        counts, at = [0] * len(parts), 0
        for pair in pairs:  # a request unknown to the client belongs to the part of the previous one
            at = pair[0] if pair else at
            counts[at] += 1
    else:  # without pairs, as with other names, no request can be told from another
        parts = unknown if served else parts
        counts = [len(part.requests) for part in parts]
    seen = served or [one for part in parts for one in part.requests]
    spans: list[tuple[str, int, int]] = []
    for part, count in zip(parts, counts, strict=True):
        first = spans[-1][2] if spans else 0
        spans += [(part.label, first, first + count)] if count else []
    requests = tuple(replace(one, arrival_s=one.arrival_s - seen[0].arrival_s) for one in seen)
    return requests, tuple(spans), beside


def _asked(name: str, asked: Mapping[str, tuple[int, Request]]) -> tuple[int, Request] | None:
    """Return the id as the client knows it, `cmpl-HASH`: the server adds the number of the prompt, and newer ones a
    random piece."""
    while name:
        if name in asked:
            return asked[name]
        name = name.rpartition("-")[0]
    return None
