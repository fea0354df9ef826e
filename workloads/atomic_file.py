"""Files that are written completely or not at all, and checks of places that a command may write to."""

import errno
import fcntl
import os
import re
import secrets
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from workloads.errors import UserError

TEMPORARY = ".tmp-"
"""Prefix of the names of drafts; a killed process may leave some."""
STDOUT = Path("-")
YAML_ENDINGS = (".yaml", ".yml")
_DRAFT = re.compile(r"[0-9a-f]{8}")
"""End of the name of a draft."""
_FORMAT = re.compile(r"\.[A-Za-z]\w*")
"""Ending of a name that states a format; .7 of voice-0.7 does not."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_full(error: BaseException) -> bool:
    """Return whether the error means no room: a full disk, a quota, a limit on file sizes."""
    return isinstance(error, OSError) and error.errno in _FULL


def cannot_write(path: Path, error: OSError) -> UserError:
    """The sentence about a place that cannot be written."""
    fix = "make room" if is_full(error) else "make it writable, or choose another place"
    return UserError(f"{path} cannot be written: {error.strerror or error}; {fix}.")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path` once the block has ended well; OSError. Drafts of `path` that killed
    processes have left go."""
    _clear(path)
    draft, file = _draft(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            draft.replace(path)  # while it is locked
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _draft(path: Path) -> tuple[Path, BinaryIO]:
    """A new file that is locked, so that no other process takes it for one that was left."""
    while True:
        draft = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
        file = draft.open("xb")  # never one that is there: a planted link would lead it elsewhere
        with suppress(OSError):  # a file system without locks: there nothing is cleared either
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return draft, file
        file.close()  # it was cleared before it was locked


def _clear(path: Path) -> None:
    """Remove the drafts of `path` that no process holds."""
    start = f"{TEMPORARY}{path.name}-"
    with suppress(OSError):
        for name in os.listdir(path.parent):
            if name.startswith(start) and _DRAFT.fullmatch(name, len(start)):
                _remove_unlocked(path.with_name(name))


def _remove_unlocked(draft: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()
        finally:
            os.close(descriptor)


def own_folder(folder: Path) -> Path:
    """Return `folder`, made if missing; UserError for a link, through which files would be written elsewhere."""
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, and results are never written through one; remove the link.")
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def output(path: str | Path, make_folder: bool = False) -> Iterator[BinaryIO]:
    """Open the place that the user named for a file, to write into: `-` is standard output, written directly.

    UserError for a place that `check_output` refuses, or that cannot be written.
    """
    path = check_output(Path(path))
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(Path(os.path.realpath(path))) as file:  # of a link, what it points to
            yield file
    except OSError as error:
        raise cannot_write(path, error) from None


def check_output(path: Path, endings: Collection[str] = ()) -> Path:
    """Return `path`. UserError if it is a device or folder, which must not be replaced, or if its name has the ending
    of another format. `endings`: those of the format."""
    if path != STDOUT and os.path.exists(path) and not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "no regular file"
        raise UserError(f"{path} is {what}; name a file to write, or - for standard output.")
    if endings and path != STDOUT and _FORMAT.fullmatch(path.suffix) and path.suffix.lower() not in endings:
        raise UserError(
            f"{path} ends in {path.suffix}, and what is written is of another format; end its name in "
            f"{' or '.join(endings)}."
        )
    return path


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines (without their ends) as `output` does."""
    with output(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)
