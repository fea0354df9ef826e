"""Systems, and systems that are compositions: a library of systems with its extension points, and the components that
fill them.

A system has a name, parameters, the kind of workload that it serves, and is put together from parts (`System`). A
system of ours is a folder in `engines/systems`. A system of another package is named by an entry point of the group
`rehearsal.systems`. Either is a module with `SYSTEMS`, a sequence of these, and `COMPONENTS` if it has any.

Extension points are fields of the library's parameters (`scheduler`, `kv`, `admission`). A component has parameters of
its own, so a composition's parameters depend on its components: `--set scheduler=liveserve` adds `talker_safe_s`. They
are validated once (`System.read`): the library's, which keep those of the components (`LibraryParams`). A library is
built with its own, and each component with a model of its own. A second choice for a further stage has its own field:
`talker_routing` is filled as `routing` is.

Libraries and components describe. Their implementations may be `workloads.deferred`, as ours are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, PrivateAttr
from pydantic.fields import FieldInfo

from workloads.errors import UserError, nearest, unknown_parameter, validate

if TYPE_CHECKING:
    from engines.builder import Parts, Serving
    from engines.core.admission import Admission
    from engines.core.engine import StageEngine
    from engines.core.kv_manager import KvManager
    from engines.core.policy import Policy
    from engines.core.router import Router, Target
    from engines.core.stage import Stage
    from engines.deployments import Deployment

P = TypeVar("P", bound="LibraryParams")


class NoParams(BaseModel):
    """The parameters of a component that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LibraryParams(BaseModel):
    """The parameters of a library, and of the components of a system, by extension point."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    _components: dict[str, BaseModel] = PrivateAttr(default_factory=dict)

    def composed_of(self, components: Mapping[str, BaseModel]) -> Self:
        """Return these, with the parameters of components by extension point."""
        made = self.model_copy()
        made._components = dict(components)
        return made

    def flat(self) -> dict[str, object]:
        """Return all of them by name."""
        return {name: value for model in self._components.values() for name, value in model} | dict(self)

    def stored(self) -> dict[str, JsonValue]:
        """Return all of them as a record keeps them."""
        models = (*self._components.values(), self)
        return {name: value for model in models for name, value in model.model_dump(mode="json").items()}


C = TypeVar("C", bound=BaseModel)
"""The parameters that a component is made with."""


@dataclass(frozen=True)
class Component(Generic[C]):
    """One way to fill an extension point.

    `kinds`: of workload that it can serve; `refusal`: the reason why it cannot serve others. `stage(stage, params)`:
    the entry stage, as this way needs it. `attach(graph, parts, params)`: called when all stages are connected and
    nobody is served yet, to follow or hold requests; `graph` is the library's, of speaking systems
    `engines.turns.pipeline.Pipeline`.

    `Params` are its own parameters. It is made with a model of these and no others. If it needs parameters of the
    library, or of the component at another extension point, `reads` names a model of its own with those as well; no
    parameter has a default there. `params`: that model, once it is part of a composition (`given`).
    """

    extension_point: ClassVar[str]
    name: str
    summary: str
    Params: type[BaseModel] = NoParams
    kinds: tuple[str, ...] = ()
    refusal: str = ""
    stage: Callable[[Stage, C], Stage] = lambda stage, params: stage
    attach: Callable[[Any, Parts, C], None] = lambda graph, parts, params: None
    reads: type[C] | None = field(default=None, kw_only=True)
    params: C | None = field(default=None, kw_only=True)

    def given(self, values: Mapping[str, object]) -> Self:
        """Return this component with its own of a composition's parameters by name, which have been validated."""
        model = self.reads or self.Params
        fields: dict[str, Any] = {name: value for name, value in values.items() if name in model.model_fields}
        return replace(self, params=model.model_construct(**fields))


@dataclass(frozen=True)
class Scheduler(Component[C]):
    """A scheduling policy of a stage. `stage` is its role: `engines.core.stage.ENTRY`, or the name of a later stage.

    `policy(stage, params)`, called for each replica: None keeps vLLM's own policy, which is `vllm`. With
    `shared(stage, params)`, which is called once for all replicas of a stage, it takes the result as a third argument:
    state that their policies share, such as counters. `loop(stage, params)` makes the loop that
    drives a replica, as `engines.core.engine.StageEngine` does, if a replica has several steps under way at once; None:
    the core's own.
    """

    extension_point = "scheduler"
    policy: Callable[..., Policy | None] = lambda stage, params: None
    shared: Callable[..., Any] | None = None
    vllm: Literal["fcfs", "priority"] = "fcfs"
    loop: Callable[[str, C], Callable[..., StageEngine] | None] = lambda stage, params: None

    def policies(self, stage: str, replicas: int = 1) -> list[Policy | None]:
        """Return the policies of the replicas of a stage."""
        shared = () if self.shared is None else (self.shared(stage, self.params),)
        return [self.policy(stage, self.params, *shared) for _ in range(replicas)]


@dataclass(frozen=True)
class KvManagement(Component[C]):
    """Management of KV that outlives requests. `offloads`: the KV goes to host memory as well. `manager(stage, params)`
    then decides which KV stays and which returns early; None: LRU on both sides."""

    extension_point = "kv"
    manager: Callable[[str, C], KvManager | None] = lambda stage, params: None
    offloads: bool = False


@dataclass(frozen=True)
class AdmissionControl(Component[C]):
    """Decides which sessions are admitted. `make(params, frame_s)`: None admits all."""

    extension_point = "admission"
    make: Callable[[C, float], Admission | None] = lambda params, frame_s: None


@dataclass(frozen=True)
class Routing(Component[C]):
    """A choice of the replica that takes a request. `rule(replicas)`, or `rule(replicas, params)` with parameters of
    its own, makes a router (`engines.core.router.Router`): most simply a router class."""

    extension_point = "routing"
    rule: Callable[..., Router] = field(kw_only=True)

    def router(self, replicas: Sequence[Target]) -> Router:
        """Return the router to these replicas, which have not served anything yet."""
        model = self.reads or self.Params
        return self.rule(replicas) if model is NoParams else self.rule(replicas, self.params)


BY_PROMPT = {"kinds": ("turns",), "refusal": "it goes by the whole prompt, which only turns begin with."}
"""Fields of a routing rule that cannot route calls."""


@dataclass(frozen=True)
class Placement(Component[C]):
    """A placement of experts of replicas that step together: `attach` groups them (`Parts.lockstep`) with the time of
    the routed experts of a step."""

    extension_point = "placement"


@dataclass(frozen=True)
class Attention(Component[C]):
    """The KV that replicas keep, and attend to, after a hand-over: `stage` states it for them (`Stage.of_role`)."""

    extension_point = "attention"


COMPONENTS: dict[str, dict[str, Component[Any]]] = {}
"""By extension point and name; filled when systems are discovered (`engines.registry`)."""


def register(*components: Component[Any]) -> None:
    """Make components known. ValueError if a name is taken by another one."""
    for component in components:
        taken = COMPONENTS.setdefault(component.extension_point, {}).setdefault(component.name, component)
        if taken != component:
            raise ValueError(f"two components are called {component.extension_point}={component.name}")


def fillings(choice: str) -> Mapping[str, Any]:
    """Return the components that can fill a field of a library's parameters, by name: `talker_routing` takes those of
    `routing`."""
    return COMPONENTS[choice.rpartition("_")[2]]


def component(choice: str, name: object, kind: str) -> Any:
    """Return a component by name. UserError without one, or if it cannot serve this kind of workload."""
    name = "off" if name is False else name  # YAML, and so `--set`, reads off as a boolean
    components = fillings(choice)
    if not isinstance(name, str) or name not in components:
        raise UserError(f"unknown {choice} {name!r}.{nearest(str(name), components)}")
    chosen = components[name]
    if chosen.kinds and kind not in chosen.kinds:
        raise UserError(f"{choice}={name} cannot serve {kind}: {chosen.refusal}")
    return chosen


Model = TypeVar("Model", bound=BaseModel)


class System(Protocol[Model]):
    """A system. `kind`: name of the kind of workload it serves (`harness.kinds`). A subclass, as `System[MyParams]`,
    needs to define only its name, its `Params`, and `build`.

    `against`: the baselines that it is measured against, by their names.
    """

    against: Sequence[str] = ()

    name: str
    summary: str
    kind: str
    Params: type[Model]

    def fields(self, settings: Mapping[str, object]) -> Mapping[str, FieldInfo]:
        """Return the declarations of its parameters under these settings, which may choose its components. UserError
        for an unknown choice."""
        return self.Params.model_fields

    def read(self, settings: Mapping[str, object], where: str = "engine parameters") -> Model:
        """Return its parameters with these settings. UserError for the first wrong one; `where` opens the sentence."""
        return validate(self.Params, settings, where)

    def stored(self, params: Model) -> dict[str, JsonValue]:
        """Return the parameters as a record keeps them."""
        return params.model_dump(mode="json")

    def check(self, params: Model) -> None:
        """Raise UserError for parameters that cannot go together."""

    def check_deployment(self, params: Model, deployment: Deployment) -> None:
        """Raise UserError for a deployment that it cannot serve under these parameters."""

    def unused(self, params: Model) -> Mapping[str, str]:
        """Return the parameters of the server that do not affect it, each with the reason; setting one is reported to
        the user."""
        return {}

    def composition(self, params: Model) -> Mapping[str, str]:
        """Return the composition of the system: extension point -> component."""
        return {}

    def choices(self, params: Model) -> Mapping[str, type[BaseModel]]:
        """Return the other components that it could be composed of, as `admission=aimd`, with the parameters of
        each."""
        return {}

    def code(self, settings: Mapping[str, object]) -> Sequence[Any]:
        """Return the objects that define the system under these settings. The modules of their classes and functions
        count."""
        return [self]

    def build(self, parts: Parts, params: Model) -> Serving:
        """Put it together inside a running event loop; on a real device models are loaded now."""
        ...


class Library(Protocol[P]):
    """Systems of one kind, which differ by the components at their extension points.

    `Params` has a field for each of `extension_points`, and for choices without components, which are `plain`.
    `others`: the extension points that only other libraries have, each with the reason. `chosen`: the component at
    each, in `build` with its `params`.
    """

    @property
    def plain(self) -> tuple[str, ...]: ...

    @property
    def kind(self) -> str: ...

    @property
    def extension_points(self) -> tuple[str, ...]: ...

    @property
    def others(self) -> Mapping[str, str]: ...

    @property
    def Params(self) -> type[P]: ...

    def check(self, params: P, chosen: Mapping[str, Any], /) -> None:
        """Raise UserError for choices that cannot go together."""

    def check_deployment(self, params: P, deployment: Deployment, /) -> None:
        """Raise UserError for a deployment that these choices cannot serve."""

    def unused(self, params: P, chosen: Mapping[str, Any], /) -> Mapping[str, str]: ...

    def build(self, parts: Parts, params: P, chosen: Mapping[str, Any], /) -> Serving: ...


@dataclass(frozen=True)
class Composition:
    """A named composition: a `System` by `library` with these `defaults` of its parameters."""

    name: str
    summary: str
    library: Library[Any]
    defaults: Mapping[str, object] = field(default_factory=dict)
    against: Sequence[str] = ()

    @property
    def kind(self) -> str:
        return self.library.kind

    @property
    def Params(self) -> type[LibraryParams]:
        return self.library.Params

    def fields(self, settings: Mapping[str, object]) -> dict[str, FieldInfo]:
        chosen = self.chosen(settings)
        models = [self.library.Params, *(component.Params for component in chosen.values())]
        fields = {name: field for model in reversed(models) for name, field in model.model_fields.items()}
        for name, default in self._defaults(chosen).items():
            if name in fields:  # else it is of a component that another one has taken the place of
                fields[name] = copy(fields[name])
                fields[name].default, fields[name].default_factory = default, None
        return fields

    def read(self, settings: Mapping[str, object], where: str = "engine parameters") -> LibraryParams:
        chosen, fields = self.chosen(settings), self.fields(settings)
        for name in settings:
            if name not in fields:
                raise unknown_parameter(where, name, fields)
        values = {**self._defaults(chosen), **settings}

        def validated(model: type[Model]) -> Model:
            return validate(model, {n: v for n, v in values.items() if n in model.model_fields}, where)

        brought = {choice: part.Params for choice, part in chosen.items() if part.Params is not NoParams}
        return validated(self.library.Params).composed_of(
            {choice: validated(model) for choice, model in reversed(brought.items())}
        )

    def stored(self, params: LibraryParams) -> dict[str, JsonValue]:
        return params.stored()

    def _defaults(self, chosen: Mapping[str, Component[Any]]) -> dict[str, object]:
        return {**self.defaults, **{choice: component.name for choice, component in chosen.items()}}

    def check(self, params: LibraryParams) -> None:
        self.library.check(params, self.chosen(dict(params)))

    def check_deployment(self, params: LibraryParams, deployment: Deployment) -> None:
        self.library.check_deployment(params, deployment)

    def unused(self, params: LibraryParams) -> Mapping[str, str]:
        return self.library.unused(params, self.chosen(dict(params)))

    def composition(self, params: LibraryParams) -> dict[str, str]:
        values = dict(params)
        filled = {choice: f"{part.name}: {part.summary}" for choice, part in self.chosen(values).items()}
        plain = {name: str(values[name]) for name in self.library.plain if values[name] is not None}
        return filled | plain

    def choices(self, params: LibraryParams) -> dict[str, type[BaseModel]]:
        chosen = self.chosen(dict(params))
        others = [
            (choice, name)
            for choice in self.library.extension_points
            for name in fillings(choice)
            if name != chosen[choice].name
        ]
        return {
            f"{choice}={name}": fillings(choice)[name].Params for choice, name in others if self._fits(choice, name)
        }

    def _fits(self, choice: str, name: str) -> bool:
        try:
            self.check(self.read({choice: name}))
        except UserError:
            return False
        return True

    def code(self, settings: Mapping[str, object]) -> Sequence[Any]:
        return [self, self.library, *self.chosen(settings).values()]

    def build(self, parts: Parts, params: LibraryParams) -> Serving:
        chosen = self.chosen(dict(params))
        self.library.check(params, chosen)
        values = params.flat()
        return self.library.build(
            parts, params, {choice: component.given(values) for choice, component in chosen.items()}
        )

    def policy(self, stage: str, params: LibraryParams) -> Policy | None:
        """Return the policy that orders the requests of one replica of `stage` in vLLM's own loop; None: vLLM's own
        policy. UserError if the scheduler needs a loop of its own, or what a step produced."""
        from engines.core.policy import FollowingPolicy

        scheduler: Scheduler = self.chosen(dict(params))["scheduler"].given(params.flat())
        if scheduler.loop(stage, scheduler.params) is not None:
            raise UserError(
                f"scheduler={scheduler.name} has several steps of one replica under way at once, which stock vLLM has "
                "not; set another scheduler, or replay it with rehearse run."
            )
        (policy,) = scheduler.policies(stage)
        if isinstance(policy, FollowingPolicy):
            raise UserError(
                f"scheduler={scheduler.name} follows each step's tokens, as stock vLLM cannot; use rehearse run."
            )
        return policy

    def chosen(self, settings: Mapping[str, object]) -> dict[str, Any]:
        """Return the component of each extension point under these settings. UserError for an unknown or unsuitable
        component, and for a choice that systems of this library do not have."""
        library, given = self.library, {**self.defaults, **settings}
        for name, reason in library.others.items():
            if name in settings:
                raise UserError(f"{name} is no choice of {self.name}: {reason}")
        return {
            choice: component(choice, given.get(choice, library.Params.model_fields[choice].default), library.kind)
            for choice in library.extension_points
        }


def owners(name: str) -> list[str]:
    """Return the components that have the parameter `name`: `scheduler=liveserve`."""
    return [
        f"{choice}={component.name}"
        for choice, components in COMPONENTS.items()
        for component in components.values()
        if name in component.Params.model_fields
    ]
