"""Packages that only some workloads need, imported when they are needed."""

import shlex
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from workloads.errors import UserError

DISTRIBUTION = "rehearsal-bench"
_CHECKOUT = Path(__file__).absolute().parents[1]


def optional(name: str, extra: str) -> ModuleType:
    """Import and return the module `name`; raise UserError with the command that installs `extra` if it is missing."""
    try:
        return import_module(name)
    except ImportError:
        raise missing(name, extra) from None


def missing(name: str, extra: str) -> UserError:
    """The error for a module that is not installed."""
    package = name.partition(".")[0]
    return UserError(f"this needs the package {package}, which is not installed; run {install_command(extra)}.")


def install_command(*extras: str) -> str:
    """The shell command that installs extras for the running interpreter: from the checkout, or for the wheel.

    vLLM's CPU build needs the Makefile in a checkout, because its own requirements break it (requirements/cpu.txt).
    """
    editable = (_CHECKOUT / "pyproject.toml").is_file()
    if editable and "cpu" in extras:
        return f"make -C {shlex.quote(str(_CHECKOUT))} .venv/.ready"
    wanted = f"{_CHECKOUT if editable else DISTRIBUTION}[{','.join(extras)}]"
    return f"{shlex.quote(sys.executable)} -m pip install {'-e ' if editable else ''}{shlex.quote(wanted)}"
