"""Other projects' own protocol code, from wheels without their dependencies: `pip install --no-deps NAME`.

Their packages load models and kernels as they are imported; here the packages on the way to a module are empty, and
only the module itself, and what it asks for, is theirs.
"""

import importlib
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import pytest


def own_code(distribution: str, module: str, *empty: str) -> Any:
    """`module` of a package that is installed, with packages `empty` on the way to it; skips where it is not."""
    found = importlib.machinery.PathFinder.find_spec(distribution)
    if found is None or found.origin is None:
        pytest.skip(f"needs pip install --no-deps {distribution.replace('_', '-')}")
    root = Path(found.origin).parent
    for name in (distribution, *empty):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = package
    return importlib.import_module(module)
