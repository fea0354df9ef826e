"""Measurements by `rehearse live` of a server that answers in text: one run, each load a part of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from harness.measured_runs.measured_run import Part, Request, Server, rate_label
from harness.records.record import Record, load_record
from harness.records.results import EXPERIMENT, record_folders
from workloads.errors import UserError

KEYS = ["session", "turn"]
PAUSE_S = 10.0
"""Between one load and the next, which in fact may have been an hour. [chosen]"""


def is_live(folder: Path) -> bool:
    """Return whether it is a results folder of `rehearse live`."""
    try:
        stored = json.loads((folder / EXPERIMENT).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(stored, dict) and stored.get("device") == "live"


def read_live(folder: Path) -> tuple[list[Part], Server]:
    """Return the finished loads in the order of their measurement, and the known facts about the server. UserError
    where there is none, or users spoke, or batch requests without a table took part."""
    records = [load_record(path) for path in record_folders(folder / "points")]
    finished = sorted(
        (each for each in records if each.manifest["status"] == "ok"),
        key=lambda each: each.manifest["started"],
    )
    if not finished:
        raise UserError(f"{folder} has no finished load; give a finished run of `rehearse live`.")
    labels = [_label(each) for each in finished]
    parts, begin_s = [], 0.0
    for record, label in zip(finished, labels, strict=True):
        if record.point.server_params.get("batch"):
            raise UserError(f"{folder} has batch requests next to its users; give a run without --batch.")
        seen = tuple(_seen(record, begin_s, str(len(parts))))
        if not seen:
            continue
        begin_s = max(each.arrival_s + (each.e2e_s or 0.0) for each in seen) + PAUSE_S
        again = f", seed {record.point.seed}" if labels.count(label) > 1 else ""
        parts.append(Part(label + again, seen))
    experiment = json.loads((folder / EXPERIMENT).read_bytes())
    asked = finished[0].point.server_params.get("model")
    return parts, Server(str(asked or ""), label=experiment.get("label") or "")


def _label(record: Record) -> str:
    c = record.point.client_params.get("c")
    return f"{c} at a time" if c is not None else rate_label(float(str(record.point.workload_params["rate"])))


def _seen(record: Record, begin_s: float, name: str) -> Iterator[Request]:
    """Return the requests. Tokens of a reply are as the server states. Tokens of a prompt are the new ones and all that
    its session had said before, which the prefix cache may hold."""
    turns = pd.DataFrame(record.trace().columns()).sort_values(KEYS)
    table = record.table("requests")
    if set(table["spoken"]) - {False} or set(turns["modality"]) - {"text"}:
        raise UserError(f"{record.folder} has users who speak or listen; give a run of text.")
    both = turns.merge(table, on=KEYS, how="inner")
    output = both["generated_entry"].astype(float).fillna(both["output_tokens"])
    said = both["input_tokens"] + output
    before = both["history_tokens"].fillna(said.groupby(both["session"]).cumsum() - said)
    for at, row in enumerate(both.to_dict("records")):
        history = int(before.iloc[at])
        ttft, e2e = (None if pd.isna(row[key]) else float(row[key]) for key in ("ttft_s", "e2e_s"))
        yield Request(
            id="",
            arrival_s=begin_s + row["turn_end_s"],
            prompt_tokens=history + int(row["input_tokens"]),
            output_tokens=int(output.iloc[at]),
            ttft_s=ttft,
            e2e_s=e2e,
            prefix=f"{name}/{row['session']}" if history else None,
            prefix_tokens=history,
        )
