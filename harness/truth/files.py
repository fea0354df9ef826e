"""Which files of a folder make it a measured run."""

from dataclasses import dataclass, replace
from pathlib import Path

from workloads.errors import UserError

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
