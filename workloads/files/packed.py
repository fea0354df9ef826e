"""Files that may be packed (gzip, zstd, bz2, xz), read as far as honest data goes: a small one can unpack to more than
any memory. What a file is stands in its first bytes, whatever its name."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
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

PARQUET = b"PAR1"
_PACKED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"\x28\xb5\x2f\xfd": lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""First bytes of a packed file -> what opens it."""


def open_packed(path: Path) -> BinaryIO:
    """Return the bytes of a file, unpacked. Reading raises UserError if they are too many, OSError if damaged."""
    with path.open("rb") as file:
        begin = file.read(8)
    opener = next((opener for magic, opener in _PACKED.items() if begin.startswith(magic)), None)
    if opener is None:
        return path.open("rb")
    return io.BufferedReader(_Counted(path, opener(path)), 2**20)


def read_packed(path: Path, most: int = -1) -> bytes:
    """Return all bytes of a file, or the first `most`, unpacked. UserError for a file that cannot be read."""
    try:
        with open_packed(path) as file:
            return file.read(most)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}; give a readable file.") from None


def read_parquet(path: Path) -> pa.Table:
    """Return a Parquet file, packed or not. UserError for a table that takes more memory than its file size explains;
    `NO_PARQUET` where it is none."""
    with path.open("rb") as file:
        plain = file.read(4) == PARQUET
    source = path if plain else pa.BufferReader(read_packed(path))
    metadata = pq.read_metadata(source)
    groups = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    _check(path, max(groups, 8 * metadata.num_rows * metadata.num_columns), 16 * FREE_BYTES)
    return pq.read_table(source)


def _check(path: Path, unpacked: int, free: int) -> None:
    size = path.stat().st_size
    if unpacked > max(free, MOST_TIMES * size):
        raise UserError(
            f"{path} has {size:,} bytes and unpacks to {unpacked / 2**20:,.0f} MiB or more, which no honest file does; "
            "give another one."
        )


class _Counted(io.RawIOBase):
    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file, self._read = path, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self._file.read(len(buffer))
        except (EOFError, zlib.error, lzma.LZMAError) as error:  # the file ends too soon, or is damaged
            raise OSError(str(error)) from None
        buffer[: len(piece)] = piece
        self._read += len(piece)
        _check(self._path, self._read, FREE_BYTES)
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()
