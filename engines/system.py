"""What a system is: a name, parameters, the kind of workload it serves, and how it is put together from parts.

A system of ours is a folder in `engines/systems`; one of another package is named by an entry point of the group
`rehearsal.systems`. Either is a module with `SYSTEMS`, a sequence of these, and `COMPONENTS` where it brings any
(`engines.composition`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from engines.deployment import Deployment
    from engines.parts import Parts
    from engines.serving import Serving

P_contra = TypeVar("P_contra", bound=BaseModel, contravariant=True)


class System(Protocol[P_contra]):
    """`kind`: name of the kind of workload it serves (`harness.kinds`). A system that inherits from this, as
    `System[MyParams]`, needs to say only what it is called, its `Params`, and how it is built.

    `against`: the baselines that it is measured against, by their names.
    """

    against: Sequence[str] = ()

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def Params(self) -> type[BaseModel]:
        """Its parameters where nothing is chosen otherwise."""
        ...

    def model(self, settings: Mapping[str, Any]) -> type[BaseModel]:
        """Its parameters under these settings, which may choose what it is composed of. UserError for what is not to be
        had."""
        return self.Params

    def check(self, params: P_contra) -> None:
        """UserError for parameters that cannot go together."""

    def check_deployment(self, params: P_contra, deployment: Deployment) -> None:
        """UserError for a deployment that it cannot serve under these parameters."""

    def unused(self, params: P_contra) -> Mapping[str, str]:
        """Parameters of the server that mean nothing to it, each with the reason; who sets one is told."""
        return {}

    def composition(self, params: P_contra) -> Mapping[str, str]:
        """What it is made of: extension point -> what fills it."""
        return {}

    def choices(self, params: P_contra) -> Mapping[str, type[BaseModel]]:
        """What else it could be composed of, as `admission=aimd`, with the parameters that this would bring."""
        return {}

    def code(self, settings: Mapping[str, Any]) -> Sequence[Any]:
        """What defines it under these settings: objects whose classes and functions stand in the modules that count."""
        return [self]

    def build(self, parts: Parts, params: P_contra) -> Serving:
        """Put it together inside a running event loop; on a real device models are loaded here."""
        ...
