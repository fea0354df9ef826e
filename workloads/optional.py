"""Packages that only some workloads need, imported when they are needed."""

from importlib import import_module
from types import ModuleType

from workloads.errors import UserError


def optional(name: str, extra: str) -> ModuleType:
    """The module `name`; UserError says which extra of this package brings it."""
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UserError(
            f"this needs the package {package}, which is not here; pip install 'rehearsal[{extra}]'."
        ) from None
