"""Tables that a process writes piece by piece while it measures, so that whoever kills it loses the last piece at most.

An Arrow stream: unlike Parquet, what stands in it is readable before it is closed.
"""

from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

from harness.records.log import EventLog

SUFFIX = ".arrows"


class ArrowStream:
    """Appends tables of one schema to `path`; each is in the kernel's hands when `append` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._writer: ipc.RecordBatchStreamWriter | None = None

    def append(self, table: pa.Table) -> None:
        """The first piece may be empty: it carries the schema."""
        if self._writer is None:
            self._writer = ipc.new_stream(self._file, table.schema)
        if table.num_rows:
            self._writer.write_table(table)
        self._file.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()


def read_arrow_stream(path: Path) -> pa.Table | None:
    """All whole pieces, whether the writer closed the file or was killed; None without even a schema."""
    if not path.exists():
        return None
    pieces: list[pa.RecordBatch] = []
    try:
        with ipc.open_stream(path) as reader:
            for piece in reader:
                pieces.append(piece)
            schema = reader.schema
    except (pa.ArrowInvalid, OSError):
        if not pieces:
            return None
        schema = pieces[0].schema
    return _plain(pa.Table.from_batches(pieces, schema))


def _plain(table: pa.Table) -> pa.Table:
    """Dictionaries grow from piece to piece; strings are the same in all."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.string()))
    return table


def empty_events() -> pa.Table:
    """An event table without a row, for a process that died before its first piece."""
    return _plain(EventLog().events())
