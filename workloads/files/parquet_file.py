"""A Parquet file of other people's data as checked columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from workloads.errors import UserError, printable
from workloads.files.packed import NO_PARQUET, read_parquet
from workloads.files.row_file import SHOWN, RowFile, since_1970


class ParquetFile(RowFile):
    """The columns of a Parquet file, those within a structure as `outer.inner`. Rows are counted from 1."""

    def __init__(self, path: str | Path, limit: int | None = None, skip_bad: bool = False) -> None:
        """Read the first `limit` rows (None: all)."""
        super().__init__(path, skip_bad)
        try:
            table = read_parquet(self.path).flatten()
        except NO_PARQUET as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{self.path} is not a whole Parquet file ({reason}); give another.") from None
        self._table = table if limit is None else table.slice(0, limit)
        twice = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
        if twice is not None:
            raise UserError(
                f"{self.path} has two columns {printable(repr(twice), SHOWN)}; rename or remove one of them."
            )
        if not table.num_rows:
            raise UserError(f"{self.path} has no rows; give a file with at least one request.")
        self._holds(np.arange(1, len(self._table) + 1))

    @property
    def columns(self) -> Sequence[str]:
        return self._table.column_names

    def shown(self, column: str, at: int) -> str:
        value = self._table[column][at].as_py() if column else self._table.slice(at, 1).to_pylist()[0]
        return printable(repr(value), SHOWN)

    def optional(self, column: str) -> list[Any]:
        return self._table[column].to_pylist()

    def dates(self, column: str) -> np.ndarray:
        if not pa.types.is_temporal(self._table[column].type):
            return super().dates(column)
        import pandas as pd

        return since_1970(pd.to_datetime(self._table[column].to_pandas(), utc=True))

    def as_float(self, column: str) -> np.ndarray:
        import pandas as pd

        values = self._table[column]
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            return values.cast(pa.float64(), safe=False).to_numpy()
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return np.asarray(pd.to_numeric(values.to_pandas().astype(object), errors="coerce"), np.float64)
        if pa.types.is_decimal(values.type):
            return values.cast(pa.float64()).to_numpy()
        return np.full(len(self), np.nan)
