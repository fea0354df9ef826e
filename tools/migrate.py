"""Carry finished replays of version 0.2 over to the records of today, so that nothing is measured again.

    python -m tools.migrate BEFORE AFTER

BEFORE is a results folder of 0.2 and stays as it is; AFTER is a new one. A point is carried over if its files are as
they were written, if the commit in its manifest gives it that id, and if its log now gives the request table that it
has. It gets the id of the same point now, and the columns that request tables have gained. Others are named and left
out; a run into AFTER measures them. Live runs cannot be repeated, so they stay in BEFORE. Needs a checkout with the
history of the commits.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import pyarrow as pa
import typer

from harness.experiments.experiment import SCHEMA_VERSION, Experiment
from harness.experiments.grid import Traces
from harness.experiments.point import id_of
from harness.experiments.provenance import ROOT
from harness.records.measured import RunFacts, planned_turns
from harness.records.record import ERROR, LOG, MANIFEST, RUN, sums, write_json, write_table
from harness.records.results import COLLECTION, EXPERIMENT, Collection, Panel, claim, write_summary
from harness.replays.expand import expand
from harness.replays.point import ReplayPoint

FIRST = "0bce734d"
"""The first commit whose replays have the logs of today: compared byte by byte, by `tools.same_results`."""
_EXPANDED = """
import json, sys
from harness.experiments.expand import expand
from harness.experiments.experiment import Experiment
print(json.dumps([[each.id for each in expand(Experiment(**fields))] for fields in json.load(sys.stdin)]))
"""
REQUESTS = "requests.parquet"
Experiments = dict[tuple[str, str], dict[str, Any]]
"""Experiments by card and panel; by two empty names where a folder holds one."""


class LeftOut(Exception):
    """A point is not carried over, for this reason."""


def read(before: Path) -> tuple[str, Experiments]:
    """Return the name of a results folder of 0.2, and its experiments."""
    path = next((path for name in (EXPERIMENT, COLLECTION) if (path := before / name).is_file()), None)
    if path is None:
        raise typer.BadParameter(f"{before} is no results folder; give the --out of a run.")
    stored = json.loads(path.read_text())
    if (version := stored.pop("schema_version", 0)) != SCHEMA_VERSION - 1:
        raise typer.BadParameter(
            f"{before} has schema {version}; only schema {SCHEMA_VERSION - 1} is carried over."
        )
    if path.name == EXPERIMENT:
        return stored["name"], {("", ""): stored}
    panels = (
        (card, name, panel) for card, panels in stored["cards"].items() for name, panel in panels.items()
    )
    return stored["name"], {(card, name): panel["experiment"] for card, name, panel in panels}


@cache
def tree_of(commit: str) -> Path:
    """Return a folder with the files of a commit. LeftOut unless its replays have the logs of today."""
    for first, last in ((FIRST, commit), (commit, "HEAD")):
        order = ["git", "-C", str(ROOT), "merge-base", "--is-ancestor", first, last]
        if subprocess.run(order, capture_output=True).returncode:
            raise LeftOut(f"its commit {commit[:8]} is not between {FIRST} and this one")
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-migrate-"))
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


@cache
def ids_at(commit: str, experiments: str) -> list[list[str]]:
    """Return the ids of the points of each experiment (JSON), as the program at `commit` gives them."""
    tree = str(tree_of(commit))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _EXPANDED],
        cwd=tree,
        env={"PYTHONPATH": tree},
        input=experiments,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def points_by_former_id(
    manifest: Mapping[str, Any], experiments: Experiments, now: list[list[ReplayPoint]]
) -> dict[str, ReplayPoint]:
    """Return the points of the experiments now by their ids at the commit of a record. LeftOut where these cannot be
    known."""
    revision = manifest.get("revision")
    if revision is None or revision["dirty"]:
        raise LeftOut("it was measured outside a checkout, or in a changed one")
    former = ids_at(revision["commit"], json.dumps([*experiments.values()]))
    pairs = zip(former, now, strict=True)
    return {id: point for ids, points in pairs for id, point in zip(ids, points, strict=True)}


def carry(folder: Path, points_dir: Path, experiments: Experiments, now: list[list[ReplayPoint]]) -> None:
    """Write the record in `folder` as one of today into `points_dir`. LeftOut where it cannot be trusted."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for name, written in manifest["files"].items():
        if not (folder / name).is_file() or sums(folder / name) != written:
            raise LeftOut(f"{name} is not as it was written")
    if not id_of(manifest["point"]) == manifest["id"] == folder.name:
        raise LeftOut("it is not the point of its id")
    point = points_by_former_id(manifest, experiments, now).get(folder.name)
    if point is None:
        raise LeftOut(f"commit {manifest['revision']['commit'][:8]} gives the experiment's points other ids")
    if "sends.parquet" in manifest["files"]:
        raise LeftOut("it called a server over sockets, which cannot be repeated")
    stated = json.loads((folder / "summary.json").read_text())
    setup, trace = point.setup, point.trace()
    timing = setup.kind.timing(setup.system, setup.client, setup.server.deployment, trace)
    facts = RunFacts(manifest["cost"]["simulated_s"], timing, stated["counters"])
    former = pd.read_parquet(folder / REQUESTS)
    requests = setup.kind.requests(
        planned_turns(trace, facts), pd.read_parquet(folder / "events.parquet"), timing
    )
    if not former.equals(requests[former.columns].astype(former.dtypes)):
        raise LeftOut("its log gives another request table now")
    target = points_dir / point.id
    shutil.copytree(folder, target)
    (target / "summary.json").unlink()
    write_table(pa.Table.from_pandas(requests, preserve_index=False), target / REQUESTS)
    write_json(target / RUN, {"schema_version": SCHEMA_VERSION, "point": point.id, **facts.stored()})
    files = {path.name: sums(path) for path in target.iterdir() if path.name not in (MANIFEST, LOG, ERROR)}
    carried = {
        "schema_version": SCHEMA_VERSION,
        "id": point.id,
        "point": point.model_dump(mode="json"),
        "files": files,
    }
    write_json(target / MANIFEST, {**manifest, **carried, "carried_over_from": folder.name})


def main(
    before: Annotated[Path, typer.Argument(help="results folder of 0.2")],
    after: Annotated[Path, typer.Argument(help="new folder")],
) -> None:
    """Carry finished replays of 0.2 over to the records of today."""
    name, experiments = read(before)
    parsed = {key: Experiment(**fields) for key, fields in experiments.items()}
    traces = Traces()
    now = [expand(experiment, traces) for experiment in parsed.values()]
    if ("", "") in parsed:
        owner: Experiment | Collection = parsed["", ""]
    else:
        cards: dict[str, dict[str, Panel]] = {}
        for ((card, panel), experiment), points in zip(parsed.items(), now, strict=True):
            ids = [point.id for point in points]
            cards.setdefault(card, {})[panel] = Panel(experiment=experiment, points=ids)
        owner = Collection(name=name, cards=cards)
    carried, left = 0, 0
    with claim(after, owner) as points_dir:
        for folder in sorted((before / "points").iterdir()):
            if folder.suffix or folder.name.startswith("."):
                continue
            try:
                carry(folder, points_dir, experiments, now)
                carried += 1
            except LeftOut as why:
                left += 1
                print(f"{folder.name} stays: {why}.")
        write_summary(after, list(dict.fromkeys(point.id for points in now for point in points)))
    print(f"{carried} points carried over, {left} left in {before}.")
    raise typer.Exit(1 if left else 0)


if __name__ == "__main__":
    typer.run(main)
