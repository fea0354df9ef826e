"""A folder of measured runs: each folder with a file of requests is one, and summaries hold many.

Whichever files of a run say what the server and the client measured are put together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.truth import guidellm, inference_perf, vllm_bench
from harness.truth.document import get, number, read_json, read_yaml
from harness.truth.inference_perf import read_summary
from harness.truth.otel import read_spans
from harness.truth.seen import WHOLE, Part, Seen, by_arrival, request
from harness.truth.summary_csv import is_summary, read_summaries
from harness.truth.sweep import split
from harness.truth.truth_run import Request, SummaryRun, TruthRun
from harness.truth.vllm_log import read_log, server_of
from workloads.errors import UserError

KINDS = (
    "traces.json (OpenTelemetry of vLLM), guidellm-results.json or .json.gz, a JSON result of `vllm bench serve`, "
    "inference-perf's per_request_lifecycle_metrics.json or summary_lifecycle_metrics.json, or a summary as CSV"
)


def read_truth(path: str | Path) -> list[TruthRun | SummaryRun]:
    """The runs in a folder and the folders within it, by name, and the experiments of its summaries.

    `path` may also be one summary. Other files are passed over; UserError about one that is broken, and where there
    is nothing to read.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist; give a folder of measured runs.")
    if path.is_file():
        if path.suffix != ".csv":
            raise UserError(f"{path} is of no known kind; give the folder of the run, or a summary as CSV.")
        return [*read_summaries(path)]
    if not (runs := _folder(path, path.resolve().name, "")):
        raise UserError(f"{path} has nothing to read in it; give a folder with {KINDS}.")
    return runs


def _folder(path: Path, name: str, within: str) -> list[TruthRun | SummaryRun]:
    """`name`: of a run that the folder is; `within` begins the names of the folders in it."""
    if runs := files_of(path):
        names = [name] if len(runs) == 1 else [f"{name}-{files.named()[0].stem}" for files in runs]
        return [read_run(files, own) for files, own in zip(runs, names, strict=True)]
    found: list[TruthRun | SummaryRun] = []
    for each in sorted(path.iterdir()):
        if each.is_dir() and not each.name.startswith("."):
            found += _folder(each, within + each.name, f"{within}{each.name}-")
        elif each.suffix == ".csv" and each.stat().st_size and is_summary(each):
            found += read_summaries(each)
    return found


RESULTS = ("", "results", "inference-perf-data")
"""Within a run's folder, where its client's files are looked for."""
_BEGIN = 4096
"""Bytes of a JSON file in which a result of `vllm bench serve` shows itself."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a run that tell of requests; at least one."""

    folder: Path
    traces: Path | None = None
    guidellm: Path | None = None
    bench: Path | None = None
    requests: Path | None = None
    summary: Path | None = None

    def named(self) -> list[Path]:
        """Those that are there."""
        found = (self.traces, self.guidellm, self.bench, self.requests, self.summary)
        return [path for path in found if path is not None]


def files_of(folder: Path) -> list[Files]:
    """The runs of a folder, the folders within it aside: several where it has several results of `vllm bench serve`."""
    files = Files(
        folder,
        traces=there(folder, "traces.json", "traces.jsonl"),
        guidellm=there(folder, "guidellm-results.json", "guidellm-results.json.gz"),
        requests=there(folder, "per_request_lifecycle_metrics.json"),
        summary=there(folder, "summary_lifecycle_metrics.json"),
    )
    if files.named():
        return [files]
    return [replace(files, bench=path) for path in sorted(folder.glob("*.json")) if _is_bench(path)]


def there(folder: Path, *names: str) -> Path | None:
    """The first of `names` that is in a run's folder."""
    places = [folder / within / name for within in RESULTS for name in names]
    return next((path for path in places if path.is_file()), None)


def log_of(folder: Path) -> Path | None:
    """vLLM's log: `vllm` in its name, and .log or .txt."""
    logs = (path for path in sorted(folder.glob("*vllm*")) if path.suffix in (".log", ".txt"))
    return next((path for path in logs if path.is_file()), None)


def _is_bench(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            begin = file.read(_BEGIN)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; give a readable file.") from None
    return b'"endpoint_type"' in begin and b'"model_id"' in begin


def read_run(files: Files, name: str) -> TruthRun | SummaryRun:
    """UserError about the first file that cannot be read, or about requests that no file has."""
    folder, where = files.folder, str(files.folder)
    log = log_of(folder)
    profile = _profile(folder)
    client, model = _client(files, profile)
    served = _with_prefix(by_arrival(read_spans(files.traces) if files.traces else []), profile, where)
    server = server_of(_yaml(folder, "exp-config.yaml"), read_log(log) if log else {}, model, where)
    if not served and not any(part.seen for part in client):
        if files.summary:
            return read_summary(files.summary, profile, name, _workload(name), server)
        raise UserError(f"{files.named()[0]} has no requests that were served; give a run that served some.")
    client = [Part(part.label, tuple(_with_prefix(part.seen, profile, where))) for part in client]
    requests, parts, beside = joined(served, client, _parts(served, profile, where) if served else [])
    return TruthRun(name, server, requests, parts, beside, ", ".join(map(str, files.named())))


def _yaml(folder: Path, name: str) -> dict[str, Any]:
    path = there(folder, name)
    return read_yaml(path) if path else {}


def _profile(folder: Path) -> dict[str, Any]:
    """What the client was told; of inference-perf, what it made of that, where it wrote it down."""
    made = _yaml(folder, "config.yaml")
    return made if get(made, "load.stages") else _yaml(folder, "profile.yaml")


def _client(files: Files, profile: dict[str, Any]) -> tuple[list[Part], str | None]:
    """What the client measured, and the model that it asked for."""
    if files.guidellm:
        return guidellm.read_parts(files.guidellm), get(read_json(files.guidellm), "args.model")
    if files.bench:
        return [vllm_bench.read_part(files.bench)], vllm_bench.model(files.bench)
    asked = get(profile, "server.model_name")
    return (inference_perf.read_parts(files.requests, profile) if files.requests else []), asked


def _with_prefix(seen: Sequence[Seen], profile: dict[str, Any], where: str) -> list[Seen]:
    """guidellm puts the same tokens before every prompt."""
    tokens = int(number(profile, where, "data.prefix_tokens") or 0)
    if not tokens:
        return list(seen)
    return [replace(one, prefix="all", prefix_tokens=min(tokens, one.prompt_tokens)) for one in seen]


def _parts(served: Sequence[Seen], profile: dict[str, Any], where: str) -> list[Part]:
    """What guidellm was told, where its results are not there to tell the parts."""
    kind, rate = get(profile, "rate-type", "rate_type"), get(profile, "rate")
    most = number(profile, where, "max-requests", "max_requests")
    if kind == "sweep":
        return split(served, int(most) if most else None)
    known = kind in ("synchronous", "throughput") or (
        kind in ("constant", "poisson") and isinstance(rate, int | float)
    )
    return [Part(guidellm.label({"type_": kind, "rate": rate}, where) if known else WHOLE, tuple(served))]


def _workload(name: str) -> str:
    """inference-sim names folders MODEL-tpN-WORKLOAD."""
    match = re.search(r"-tp\d+-(.+)$", name)
    return match.group(1) if match else name


Joined = tuple[tuple[Request, ...], tuple[tuple[str, int, int], ...], tuple[Request | None, ...] | None]
"""`requests`, `parts` and `client` of a TruthRun."""


def joined(served: Sequence[Seen], client: Sequence[Part], unknown: Sequence[Part]) -> Joined:
    """`served` in the order of arrival; `unknown`: its parts where the client does not tell them.

    Without `served` the client's requests stand for it, without a view beside them.
    """
    ordered = [Part(part.label, tuple(by_arrival(part.seen))) for part in client if part.seen]
    if not served:
        seen = [one for part in ordered for one in part.seen]
        return _requests(seen), _spans([(part.label, len(part.seen)) for part in ordered]), None
    if not ordered:
        return _requests(served), _spans([(part.label, len(part.seen)) for part in unknown]), None
    asked = {one.id: one for part in ordered for one in part.seen if one.id}
    pairs = [_asked(one.id, asked) for one in served]
    if not any(pairs):  # other names: no request can be told from another
        return _requests(served), _spans([(part.label, len(part.seen)) for part in unknown]), None
    origin = min(one.start_s for one in asked.values())
    beside = tuple(request(one, origin) if one else None for one in pairs)
    return _requests(served), _spans(_counts(ordered, pairs)), beside


def _asked(name: str, asked: Mapping[str, Seen]) -> Seen | None:
    """The client knows `cmpl-HASH`; the server adds the number of the prompt, and newer ones a random piece."""
    while name:
        if name in asked:
            return asked[name]
        name = name.rpartition("-")[0]
    return None


def _counts(parts: Sequence[Part], pairs: Sequence[Seen | None]) -> list[tuple[str, int]]:
    """Requests that the client does not know belong to the part of the one before."""
    part_of = {id(one): at for at, part in enumerate(parts) for one in part.seen}
    counts, at = [0] * len(parts), 0
    for one in pairs:
        at = part_of[id(one)] if one else at
        counts[at] += 1
    return [(part.label, count) for part, count in zip(parts, counts, strict=True)]


def _requests(seen: Sequence[Seen]) -> tuple[Request, ...]:
    return tuple(request(one, seen[0].start_s) for one in seen)


def _spans(counts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    spans, first = [], 0
    for label, count in counts:
        spans.append((label, first, first + count))
        first += count
    return tuple(span for span in spans if span[2] > span[1])
