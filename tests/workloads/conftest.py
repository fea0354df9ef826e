"""Files that tests read: written for one test, or real ones next to the repository."""

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def real_file() -> Callable[[str], Path]:
    """The path of a real file, for the figures of its content; skips the test where it is not at hand."""

    def find(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.exists():
            pytest.skip(f"figures of real data that is not at hand: shared/data/{name}")
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
