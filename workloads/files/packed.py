"""Files that may be packed (.gz), read as far as honest data goes: a small one can unpack to more than any memory."""

import gzip
import io
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from workloads.errors import UserError

FREE_BYTES, MOST_TIMES = 64 * 2**20, 100
"""Any file may unpack to the first size, and a larger one to this multiple of its size: request logs reach 5 to 30.
[chosen]"""


NO_PARQUET = (OSError, pa.ArrowException, UnicodeDecodeError)
"""Errors that pyarrow raises for a file that is no whole Parquet file: the last for names that are no UTF-8."""


def open_packed(path: Path) -> BinaryIO:
    """Return the bytes of a file, unpacked if its name ends in .gz. Reading raises UserError if they are too many."""
    if path.suffix != ".gz":
        return path.open("rb")
    return io.BufferedReader(_Counted(path), 2**20)


def check_parquet(path: Path) -> None:
    """UserError for a table that takes more memory than its file size explains; `NO_PARQUET` where it is none."""
    metadata = pq.read_metadata(path)
    groups = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    _check(path, max(groups, 8 * metadata.num_rows * metadata.num_columns), 16 * FREE_BYTES)


def _check(path: Path, unpacked: int, free: int) -> None:
    size = path.stat().st_size
    if unpacked > max(free, MOST_TIMES * size):
        raise UserError(
            f"{path} has {size:,} bytes and unpacks to {unpacked / 2**20:,.0f} MiB or more, which no honest file does; "
            "give another one."
        )


class _Counted(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._path, self._file, self._read = path, gzip.GzipFile(path, "rb"), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self._read += count
        _check(self._path, self._read, FREE_BYTES)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
