"""Real recorded workloads beside the repository, and small files in their layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def real_file() -> Callable[[str], Path]:
    """The path of a real file by its name under shared/data; skips the test where it is not at hand."""

    def find(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.exists():
            pytest.skip(f"real data not at hand: shared/data/{name}")
        return path

    return find


@pytest.fixture
def csv_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write text as a CSV file and give its path."""

    def write(text: str, encoding: str = "utf-8") -> Path:
        path = tmp_path / "input.csv"
        path.write_text(text, encoding=encoding)
        return path

    return write
