"""Public data sets, fetched once: pinned revision, checksum per file, resumed where a download broke off.

Files come as they are and are read by the workloads' own loaders; no code of a data set's repository runs. Needs
the extra `data` (huggingface_hub, which also does the plain downloads: resuming, retries, progress). The
environment variable HF_ENDPOINT names another hub than huggingface.co.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from workloads.errors import UserError, nearest
from workloads.optional import optional


class RemoteFile(BaseModel):
    """One file of a data set; `name` is its path in the repository, and its last part the name it gets here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    bytes: int = Field(ge=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Dataset(BaseModel):
    """Where the files of a data set are: a hub repository, or files below `url`/`revision`/."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: str
    licence: str
    repository: str | None = None
    url: str | None = None
    revision: str
    files: tuple[RemoteFile, ...]


@cache
def datasets() -> dict[str, Dataset]:
    """The data sets by name, from hub.yaml."""
    import yaml

    listed = yaml.safe_load((files("workloads") / "hub.yaml").read_text(encoding="utf-8"))
    return {name: Dataset(**fields) for name, fields in listed.items()}


def dataset(name: str) -> Dataset:
    """UserError with the closest name when there is no such data set."""
    if name not in datasets():
        raise UserError(f"unknown data set {name!r}.{nearest(name, datasets())}")
    return datasets()[name]


def fetch(wanted: Dataset, folder: Path) -> list[Path]:
    """Download what is not in `folder` yet and check everything; the paths of the files.

    UserError when a file cannot be had or is not the one that is pinned. What has come of a broken download
    stays beside it as NAME.part, and the next call goes on from there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
    found = sha256(part)
    if found != file.sha256:
        part.unlink()
        raise UserError(
            f"{address} has sha256 {found[:16]}... and not {file.sha256[:16]}... as pinned in hub.yaml; "
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
            download.http_get(
                address, target, resume_size=target.tell(), expected_size=size, displayed_filename=name
            )
    except Exception as error:  # whatever the library raises: connections, HTTP states, sizes
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"cannot fetch {address} ({reason}); try again, which goes on from where it stopped, or bring the "
            f"file to {part.with_name(name)}."
        ) from None


def sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
