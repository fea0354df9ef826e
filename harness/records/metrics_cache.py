"""Metrics that were made before, kept apart from the results: a file for each record and each version of their code,
and one for each percentile that was asked for.

The folder is `$REHEARSAL_CACHE`, by default `~/.cache/rehearsal/metrics`. Anybody may delete it. A name is the hash of
what the metrics are made of, so a record whose tables differ, or other code, finds nothing here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.atomic_file import replacing


def place(code: str, files: Mapping[str, str]) -> Path:
    """Return where the metrics of a record are kept. `code`: hash of the code that makes them; `files`: the record's
    files with their SHA-256."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("REHEARSAL_CACHE") or os.path.join(caches, "rehearsal", "metrics")
    key = hashlib.sha256(json.dumps([code, dict(files)], sort_keys=True).encode()).hexdigest()
    return Path(folder) / key[:2] / f"{key}.json"


def find(path: Path) -> Any:
    """Return what is kept there; None if there is nothing that can be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def keep(path: Path, metrics: Any) -> None:
    """Keep the metrics there, unless the folder cannot be written: then they are made again when they are read."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(metrics).encode())
