"""The first rows of a data set on a hub, streamed by `datasets` from a pinned commit and kept as JSON lines.

Only what is taken travels, so a set of any size gives its first thousand rows in moments. A file next to the rows has
their source and checksum: while it agrees, the network is not used, and a folder filled elsewhere serves a machine
without a network. No code of the set's repository runs. Needs the extra `data`.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workloads.atomic_file import write_lines
from workloads.errors import UserError
from workloads.optional import optional

ON_HUB = "hf://datasets/"
BUILDERS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
"""Suffix of a file -> the builder of `datasets` that reads it."""


class Rows(BaseModel):
    """Rows of a repository: of a file in it, or of a file inside an archive in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(description="path in the repository; * stands for any part of a name")
    inside: str | None = Field(None, description="path within the file, where that is a zip archive")
    columns: tuple[str, ...] | None = Field(None, description="what is kept of a row; None: all")
    count: int = Field(1000, ge=1, description="rows taken, from the first on")

    def address(self, repository: str, revision: str) -> str:
        """Return the address of the rows for `datasets`; `repository` is OWNER/NAME on the hub, or a folder with a copy
        of one."""
        copied = Path(repository).is_dir()
        file = f"{repository}/{self.file}" if copied else f"{ON_HUB}{repository}@{revision}/{self.file}"
        return f"zip://{self.inside}::{file}" if self.inside else file

    @property
    def path(self) -> Path:
        return Path(self.inside or self.file)

    @property
    def name(self) -> str:
        """Return the file name under which the rows are kept: the data file's, with another ending."""
        return re.sub(r"[^\w.-]+", "_", self.path.name.partition(".")[0]) + ".jsonl"


def fetch(repository: str, revision: str, rows: Rows, folder: Path) -> Path:
    """Return these rows as a JSON-lines file in `folder`; UserError if they cannot be fetched."""
    path = folder / rows.name
    label = path.with_suffix(".source.json")
    source = {"repository": repository, "revision": revision, **rows.model_dump(mode="json")}
    if path.exists() and _labelled(label) == {**source, "sha256": sha256(path)}:
        return path
    write_lines(path, list(_lines(rows, rows.address(repository, revision), folder)))  # all or none
    write_lines(label, [json.dumps({**source, "sha256": sha256(path)}, indent=1)])
    return path


def _lines(wanted: Rows, address: str, folder: Path) -> Iterator[str]:
    builder = BUILDERS.get(wanted.path.suffix.removesuffix(".gz") or Path(wanted.path.stem).suffix)
    if builder is None:
        raise UserError(f"{wanted.path} is of no kind that is read; give one that ends in {', '.join(BUILDERS)}.")
    library = optional("datasets", "data")
    taken = 0
    try:
        rows = library.load_dataset(builder, data_files=address, split="train", streaming=True)
        if rows.features is not None:
            rows = rows.decode(False)  # pictures and sound stay bytes, so nothing is needed to read them
        if wanted.columns is not None:
            rows = rows.select_columns(list(wanted.columns))
        for taken, row in enumerate(rows.take(wanted.count), 1):  # noqa: B007
            yield json.dumps(row, ensure_ascii=False, default=_written)
    except Exception as error:  # any error of the libraries: connections, HTTP states, formats
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"cannot stream {address} ({reason}); try again where the hub can be reached, or bring the folder "
            f"{folder} from a machine that has done it."
        ) from None
    if not taken:
        raise UserError(f"{address} has no rows; name another file of the data set.")


def _written(value: Any) -> str | None:
    """A value for which JSON has no word: times as text, pictures and sound not at all."""
    return value.isoformat() if hasattr(value, "isoformat") else None


def _labelled(label: Path) -> Any:
    try:
        return json.loads(label.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
