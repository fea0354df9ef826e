"""Errors of simulators on the same experiments: a table of Markdown.

    python -m tools.peers.accuracy                      # with predictions.csv: recorded before the values were entered
    rehearse fidelity --measured-runs tools/peers/inference_sim.csv --out results/fidelity
    python -m tools.peers.accuracy results/fidelity     # with new ones

`inference_sim.csv` has what inference-sim/sim-to-real-accuracy-validation (Apache-2.0) measured, and what it says that
the other simulators predict: `measured_ms` of whole runs (results_iter36/error_records.csv at commit b70edb9a, stage
-1), and `first_300_ms` of their first 300 requests, with which it compares LLMServingSim
(results/llmservingsim_error_records_matched.csv at commit dcec3fd4).
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engines.devices.host import CALIBRATED_ON
from harness.measured_runs.runs_report import REPORT

EXPERIMENTS = Path(__file__).with_name("inference_sim.csv")
RECORDED = Path(__file__).with_name("predictions.csv")
OURS = "Rehearsal"
METRICS = ("ttft_mean", "ttft_p90", "ttft_p99", "itl", "e2e_mean", "e2e_p90", "e2e_p99")
HEADINGS = ("TTFT", "P90", "P99", "inter-token", "E2E", "P90", "P99")

Values = dict[str, float]
"""Milliseconds by metric; one that nobody states is missing."""


class Peer(NamedTuple):
    """A simulator: its name, the column of its predictions, and that of the measurement that it is compared with."""

    name: str
    column: str
    measured: str = "measured_ms"


PEERS = (
    Peer("BLIS, trained physics", "blis_trained_physics"),
    Peer("BLIS, evolved", "blis_evolved"),
    Peer("BLIS, roofline", "blis_roofline"),
    Peer("LLMServingSim 1.1.0 (first 300 requests)", "llmservingsim", "first_300_ms"),
    Peer("AIConfigurator 0.9.0", "aiconfigurator"),
    Peer("LLM-Optimizer", "llm_optimizer"),
    Peer("Vidur", "vidur"),
)


def columns(path: Path = EXPERIMENTS) -> dict[str, dict[str, Values]]:
    """Return the values of each column by experiment. The time between tokens is that of (E2E - TTFT), as the clients'
    own number counts too few tokens."""
    found: dict[str, dict[str, Values]] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        for name in ("measured_ms", "first_300_ms", *(peer.column for peer in PEERS)):
            if row[name]:
                found.setdefault(name, {}).setdefault(row["experiment"], {})[row["metric"]] = float(row[name])
    for experiments in found.values():
        for values in experiments.values():
            values["itl"] = values["e2e_mean"] - values["ttft_mean"]
    return found


def ours(report: Mapping[str, Any]) -> dict[str, Values]:
    """Return what a report of `rehearse fidelity --measured-runs` predicts, by experiment."""
    found: dict[str, Values] = {}
    for row in report["rows"]:
        values = {
            f"{name}_{each}": 1e3 * row["latencies"][name]["predicted"][each]
            for name in ("ttft", "e2e")
            for each in ("mean", "p90", "p99")
        }
        found[row["run"].partition("-")[0]] = values | {"itl": values["e2e_mean"] - values["ttft_mean"]}
    return found


def recorded(path: Path = RECORDED) -> dict[str, Values]:
    """Return the predictions of a file of them, by experiment."""
    found: dict[str, Values] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        found.setdefault(row["experiment"], {})[row["metric"]] = float(row["predicted_ms"])
    return {name: values | {"itl": values["e2e_mean"] - values["ttft_mean"]} for name, values in found.items()}


def errors(predicted: Mapping[str, Values], measured: Mapping[str, Values]) -> tuple[int, list[float | None]]:
    """Return the number of experiments of both, and the mean absolute error of each of METRICS as a share."""
    both = [name for name in predicted if name in measured]
    means: list[float | None] = []
    for metric in METRICS:
        each = [abs(predicted[name][metric] / measured[name][metric] - 1) for name in both if metric in predicted[name]]
        means.append(float(np.mean(each)) if each else None)
    return len(both), means


def models(path: Path = EXPERIMENTS) -> dict[str, str]:
    """Return the model of each experiment."""
    rows = csv.DictReader(path.read_text().splitlines())
    return {row["experiment"]: row["model"].rpartition("/")[2] for row in rows}


def in_sample(experiment: str) -> bool:
    """Return whether constants of ours were fitted to this server's runs."""
    return any(name.startswith(f"{experiment}-") for name, _ in CALIBRATED_ON)


def table(predicted: Mapping[str, Values]) -> Iterator[str]:
    """Yield the lines, model by model. Experiments to which constants of ours were fitted come last."""
    known, served = columns(), models()
    yield f"| simulator | experiments | {' | '.join(HEADINGS)} |"
    yield "|---" * (len(HEADINGS) + 2) + "|"
    for fitted, model in sorted({(in_sample(name), served[name]) for name in predicted}):
        here = {name: values for name, values in predicted.items() if served[name] == model}
        where = ", fitted to their first 300 requests" if fitted else ""
        yield _line(f"**{OURS}: {model}{where}**", *errors(here, known["measured_ms"]))
        for peer in PEERS:
            values = known[peer.column]
            theirs = {name: values[name] for name in here if name in values}
            if theirs:
                yield _line(peer.name, *errors(theirs, known[peer.measured]))


def _line(name: str, count: int, shares: Sequence[float | None]) -> str:
    cells = ("–" if share is None else f"{100 * share:,.1f} %" for share in shares)
    return f"| {name} | {count} | {' | '.join(cells)} |"


def main(folder: str | None = None) -> None:
    """Print the table with the predictions of a results folder, or the recorded ones."""
    predicted = ours(json.loads((Path(folder) / REPORT).read_text())) if folder else recorded()
    print("\n".join(table(predicted)))


if __name__ == "__main__":
    main(*sys.argv[1:])
