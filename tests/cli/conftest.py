"""The command line as a user runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reports import cli


@pytest.fixture
def rehearse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in an empty directory; returns exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def rehearse(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["rehearse", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return end.value.code, *capsys.readouterr()

    return rehearse
