"""Folders from which vLLM reads a model that we describe: named by their content and kept in the user's cache."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def model_folder(files: Mapping[str, Any]) -> str:
    """Return the folder that holds `files` (name -> JSON content), written if it is missing; all workers share it."""
    texts = {name: json.dumps(content, indent=1) for name, content in files.items()}
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "rehearsal" / "models" / digest
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if not (folder / name).exists():
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                file.write(text)
            os.replace(file.name, folder / name)
    return str(folder)
