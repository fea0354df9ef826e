"""Public data sets, fetched once: pinned revision, checksum per file, resumed where a download broke off.

Files come as they are and are read by the workloads' own loaders; no code of a data set's repository runs. Needs
the extra `data` (huggingface_hub, which also does the plain downloads: resuming, retries, progress). Of sets that need
not come whole the first rows are streamed, see `workloads.files.hub_rows`. The environment variable HF_ENDPOINT names
another hub than huggingface.co.
"""

import re
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from workloads.errors import UserError, nearest
from workloads.files import hub_rows
from workloads.files.hub_rows import ON_HUB, Rows, sha256
from workloads.optional import optional

_ADDRESS = re.compile(rf"{ON_HUB}([\w.-]+/[\w.-]+?)(?:@([^/]+))?/(.+)")
_COMMIT = re.compile("[0-9a-f]{40}")


class RemoteFile(BaseModel):
    """One file of a data set; `name` is its path in the repository, and its last part the name it gets here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    bytes: int = Field(ge=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Dataset(BaseModel):
    """Source of a data set: `files` of a hub repository or below `url`/`revision`/, or `rows` of the repository."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: str
    licence: str
    repository: str | None = None
    url: str | None = None
    revision: str
    files: tuple[RemoteFile, ...] = ()
    rows: Rows | None = None

    @property
    def kept(self) -> dict[str, int | None]:
        """Its files by the names that they get here, with their bytes where these are known."""
        if self.rows is not None:
            return {self.rows.name: None}
        return {Path(file.name).name: file.bytes for file in self.files}


@cache
def datasets() -> dict[str, Dataset]:
    from workloads.files.yaml_file import shipped_yaml

    listed = shipped_yaml(Path(__file__).with_name("hub.yaml"))
    return {name: Dataset(**fields) for name, fields in listed.items()}


def dataset(name: str) -> Dataset:
    """Return the data set of this name, or of NAME/FILE with that file only, or the one at an address on the hub.

    UserError with the closest name when there is no such data set or file.
    """
    if name.startswith(ON_HUB):
        return _on_hub(name)
    name, _, chosen = name.partition("/")
    if name not in datasets():
        raise UserError(f"unknown data set {name!r}.{nearest(name, datasets())}")
    whole = datasets()[name]
    if not chosen:
        return whole
    files = {Path(file.name).name: file for file in whole.files}
    if chosen not in files:
        raise UserError(f"data set {name} has no file {chosen!r}.{nearest(chosen, files)}")
    return whole.model_copy(update={"files": (files[chosen],)})


def _on_hub(address: str) -> Dataset:
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise UserError(f"{address} is no address of a file; write {ON_HUB}OWNER/NAME@COMMIT/FILE.")
    repository, revision, file = parts.groups()
    if _COMMIT.fullmatch(revision or "") is None:
        raise UserError(
            f"{address} names no commit, and what a branch holds changes; write {repository}@ and its 40 hexadecimal "
            "digits, which stand on the page of the data set's files."
        )
    return Dataset(
        summary=file,
        licence="see the data set's page",
        repository=repository,
        revision=revision,
        rows=Rows.model_validate({"file": file}),
    )


def fetch(wanted: Dataset, folder: Path, rows: int | None = None) -> list[Path]:
    """Download the files missing in `folder`, check all, and return their paths.

    rows: number of rows to take from a streamed set. UserError when a file cannot be had or is not the one that is
    pinned. The part of an interrupted download stays as NAME.part, and the next call continues it.
    """
    streamed = wanted.rows
    if rows is not None and streamed is None:
        raise UserError(f"--rows={rows} is for data sets that are streamed, and this one comes whole; leave it out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if streamed is not None:
            assert wanted.repository is not None, "rows are of a repository"
            streamed = streamed.model_copy(update={"count": rows or streamed.count})
            return [hub_rows.fetch(wanted.repository, wanted.revision, streamed, folder)]
        return [_fetch(wanted, file, folder / Path(file.name).name) for file in wanted.files]
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error}; choose a writable folder.") from None


def _fetch(wanted: Dataset, file: RemoteFile, path: Path) -> Path:
    if path.exists() and sha256(path) == file.sha256:
        return path
    part = path.with_name(path.name + ".part")
    if part.exists() and part.stat().st_size > file.bytes:
        part.unlink()
    address = _address(wanted, file)
    _download(address, part, file.bytes)
    digest = sha256(part)
    if digest != file.sha256:
        part.unlink()
        raise UserError(
            f"{address} has sha256 {digest[:16]}... and not {file.sha256[:16]}... as pinned in hub.yaml; "
            "it was changed or damaged on the way, so it is not used."
        )
    part.replace(path)
    return path


def _address(wanted: Dataset, file: RemoteFile) -> str:
    if wanted.repository is None:
        return f"{wanted.url}/{wanted.revision}/{file.name}"
    hub = optional("huggingface_hub", "data")
    return hub.hf_hub_url(wanted.repository, file.name, repo_type="dataset", revision=wanted.revision)


def _download(address: str, part: Path, size: int) -> None:
    """Append to `part` until it has `size` bytes; a bar of progress on stderr."""
    download = optional("huggingface_hub.file_download", "data")
    name = part.stem
    try:
        with part.open("ab") as target:
            download.http_get(address, target, resume_size=target.tell(), expected_size=size, displayed_filename=name)
    except Exception as error:  # any error of the library: connections, HTTP states, sizes
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"cannot fetch {address} ({reason}); try again, which goes on from where it stopped, or bring the "
            f"file to {part.with_name(name)}."
        ) from None
