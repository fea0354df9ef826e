"""A folder of measured runs: each folder with a file of requests is one, and summaries hold many."""

from pathlib import Path

from harness.truth.files import files_of
from harness.truth.one_run import read_run
from harness.truth.run import SummaryRun, TruthRun
from harness.truth.summary import is_summary, read_summaries
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
