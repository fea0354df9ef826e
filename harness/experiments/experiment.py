"""An experiment names a grid; `expand` turns it into points, each one measured configuration and seed.

Nothing runs before every point is valid: names, types and ranges of all parameters, and the trace itself,
which is generated here once for its hash. A point's id therefore covers the resolved configuration, the
workload's content (a CSV that changed is another workload) and the program (`harness.experiments.identity.code_hash`):
stale numbers are never resumed.

Values become models once, here: a point keeps what they came to, and takes the models along to its worker. Of a point
that was stored they are read when somebody asks for them.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.fields import FieldInfo
from yaml.constructor import ConstructorError

from engines.composition import owners
from engines.deployments.available import check as check_device
from engines.deployments.available import check_said
from engines.devices.names import SOCKET_DEVICES
from engines.devices.names import check_device as known_device
from engines.registry import ENDPOINT, ENGINES
from engines.server import ServerParams, check_modelled, check_runtime, resolve
from harness import kinds
from harness.client.client_params import ClientParams
from harness.endpoints.target import TargetParams
from harness.experiments.identity import code_hash, roots_of
from harness.experiments.profiles import given_profile, profile_of
from workloads.errors import CONTROL, UserError, unknown, validate
from workloads.files.yaml_file import parse_yaml, read_yaml
from workloads.registry import WORKLOADS, serves

if TYPE_CHECKING:
    from workloads.trace import Trace

SCHEMA_VERSION = 1
"""Version of points and records; a reader refuses a record that is newer than itself."""

MOST_SEEDS = 10_000
"""[chosen] The most seeds of one experiment. Each seed is a point of its own."""

CHOICES = ("engine", "workload", "device")
"""Names that `--set` takes besides parameters."""


class Experiment(BaseModel):
    """An experiment: engines × grid × seeds on one workload and device. A YAML file or a card holds one."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_.-]*$",
        max_length=100,
        description="short name; the results directory's default",
    )
    title: str = Field(default="", max_length=500, description="one line for people")
    engines: list[str] = Field(min_length=1, description="engine variants, see `rehearse list engines`")
    workload: str = Field(description="workload, see `rehearse list workloads`")
    device: str = Field(default="virtual", description="device, see `rehearse list devices`")
    profile: str | None = Field(
        default=None,
        description="file of `rehearse profile` for the virtual device; default: the deployment's own, or a roofline",
    )
    set: dict[str, Any] = Field(
        default_factory=dict, description="parameters that differ from their defaults"
    )
    grid: dict[str, list[Any]] = Field(default_factory=dict, description="parameters to vary: name -> values")
    along: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="parameters that change with the first of the grid: name -> a value for each of its values",
    )
    label: str = Field(
        default="", max_length=200, description="the build of the server that is called, for people"
    )
    seeds: list[int] = Field(
        default=[0], min_length=1, description="seeds; a single number N stands for 0 .. N-1"
    )
    timeout_s: float = Field(default=900, gt=0, description="wall-clock limit of one point, s")

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if isinstance(value, int) and (isinstance(value, bool) or not 1 <= value <= MOST_SEEDS):
            raise ValueError(f"should be a number of seeds from 1 to {MOST_SEEDS}, or a list of seeds")
        return list(range(value)) if isinstance(value, int) else value

    @field_validator("seeds")
    @classmethod
    def _not_negative(cls, value: list[int]) -> list[int]:
        if min(value) < 0:
            raise ValueError("must not be negative")
        return value

    @field_validator("engines", "seeds")
    @classmethod
    def _once(cls, value: list[Any]) -> list[Any]:
        for name in value:
            if value.count(name) > 1:
                raise ValueError(f"names {name} twice; name it once")
        return value

    @field_validator("title", "set", "grid", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        """Tables and pages show it, also to whoever is handed the results."""
        parts = value.values() if isinstance(value, dict) else [value]
        texts = [text for part in parts for text in (part if isinstance(part, list) else [part])]
        if odd := CONTROL.search("".join(text for text in texts if isinstance(text, str)).replace("\n", "")):
            raise ValueError(f"holds the control character {odd[0]!r}; leave it out")
        return value

    @model_validator(mode="after")
    def _axes(self) -> Experiment:
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"the grid of {name} has no values; give some, or leave {name} out")
            twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
            if twice is not None:
                raise ValueError(f"the grid of {name} has {twice} twice; give it once")
            if name in self.set:
                raise ValueError(f"{name} stands in both set and grid; leave it out of one")
        for name, values in self.along.items():
            if name in self.set or name in self.grid:
                raise ValueError(f"{name} stands in along and in set or grid; leave it out of one")
            if len(values) != len(next(iter(self.grid.values()), [])):
                raise ValueError(
                    f"along gives {name} {len(values)} values; give one for each value of the first axis"
                )
        return self


class Point(BaseModel):
    """One measured configuration and seed, fully resolved: what a worker runs and a record stores.

    `trace_params`, `client`, `server` (or `target`, of an endpoint) and `system` are the models that its parameters
    were validated as; UserError where those of a stored point are no longer understood.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    engine: str
    device: str
    workload: str
    workload_params: dict[str, Any]
    client_params: dict[str, Any]
    server_params: dict[str, Any]
    engine_params: dict[str, Any]
    seed: int
    trace_hash: str
    code_hash: str
    profile: dict[str, Any] | None = Field(None, description="content of the profile that it replays with")
    axes: tuple[str, ...] = Field(
        (), description="parameters that the experiment varies; for display, not in the id"
    )

    @classmethod
    def of(
        cls,
        trace: Trace,
        engine: str,
        *,
        system: Mapping[str, Any] | None = None,
        server: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "virtual",
        profile: Mapping[str, Any] | None = None,
    ) -> Self:
        """A point outside of any experiment, which plays `trace` as it stands and has no record.

        `system`, `server` and `client` are settings by name; UserError for one that cannot be.
        """
        values = {"system": system or {}, "server": server or {}, "client": client or {}}
        models = {
            "system": ENGINES[engine].model(values["system"]),
            "server": kinds.server_model(serves(trace)),
            "client": ClientParams,
        }
        read = {name: validate(model, values[name], f"{name} parameters") for name, model in models.items()}
        identity = {"engine": engine, "device": device, "seed": seed, "profile": profile}
        of_trace = {
            "workload": trace.header.generator,
            "workload_params": {},
            "trace_hash": trace.header.hash,
        }
        return cls.with_models(read, **identity, **of_trace, code_hash="")

    @classmethod
    def with_models(cls, read: Mapping[str, BaseModel], **fields: Any) -> Self:
        """A point with these models, by the names that it has for them."""
        stored = {STORED[name]: model.model_dump(mode="json") for name, model in read.items()}
        point = cls.model_validate({**stored, **fields})
        vars(point).update(read)
        return point

    @cached_property
    def trace_params(self) -> BaseModel:
        return validate(WORKLOADS[self.workload].Params, self.workload_params, "workload parameters")

    @cached_property
    def client(self) -> ClientParams:
        return validate(ClientParams, self.client_params, "client parameters")

    @cached_property
    def server(self) -> ServerParams:
        model = kinds.server_model(WORKLOADS[self.workload].serves)
        return validate(model, self.server_params, "server parameters")

    @cached_property
    def target(self) -> TargetParams:
        return validate(TargetParams, self.server_params, "server parameters")

    @cached_property
    def system(self) -> BaseModel:
        return validate(
            _system_model(self.engine, self.engine_params), self.engine_params, "engine parameters"
        )

    def __getstate__(self) -> dict[Any, Any]:
        """The models go along, but for the class of `system`, which a composition makes where it arrives."""
        state = super().__getstate__()
        read = dict(state["__dict__"])
        if "system" in read:
            read["system"] = dict(read["system"])
        return {**state, "__dict__": read}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        if "system" in vars(self):
            values = vars(self)["system"]
            vars(self)["system"] = _system_model(self.engine, values).model_construct(**values)

    def trace(self) -> Trace:
        """Its trace, made anew. ValueError when it is not the one that the point was named after: then a generator is
        not deterministic, or what it reads has changed."""
        trace = WORKLOADS[self.workload].generate(self.trace_params, self.seed)
        if trace.header.hash != self.trace_hash:
            raise ValueError(
                f"the trace changed since the run began: {trace.header.hash}, not {self.trace_hash}"
            )
        return trace

    @cached_property
    def id(self) -> str:
        """Its id, which `id_of` derives from every field."""
        return id_of(self.model_dump(mode="json"))

    @property
    def params(self) -> dict[str, Any]:
        """All parameters in one mapping; names are unique over the four groups."""
        return {**self.workload_params, **self.client_params, **self.server_params, **self.engine_params}

    @property
    def label(self) -> str:
        """Name for people, such as `liveserve c=16 p=0.7 seed=2`."""
        cell = [f"{name}={self.params[name]}" for name in self.axes if name in self.params]
        return " ".join([self.engine, *cell, f"seed={self.seed}"])


STORED = {
    "trace_params": "workload_params",
    "client": "client_params",
    "server": "server_params",
    "target": "server_params",
    "system": "engine_params",
}
"""Under which name a point stores what each of its models holds."""


def id_of(point: Mapping[str, Any]) -> str:
    """First 16 hexadecimal digits of the SHA-256 over the canonical JSON of everything of a point but `axes`: also of
    one that was stored when points had fewer fields."""
    resolved = {name: value for name, value in point.items() if name != "axes"}
    text = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_experiment(path: Path) -> Experiment:
    """Read an experiment from a YAML file, or from the JSON that a results directory keeps of it.

    UserError if it cannot be read or is not one.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path} is not an experiment: it needs at least name, engines and workload.")
    check_schema(data.pop("schema_version", 0), path)
    return validate(Experiment, data, str(path))


def check_schema(version: Any, path: Path) -> None:
    """UserError when `path` was written by a schema that is newer than this code's."""
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, newer than {SCHEMA_VERSION}; upgrade rehearsal."
        )


def override(experiment: Experiment, settings: Mapping[str, Any], seeds: int | None = None) -> Experiment:
    """Apply `--set name=value[,value...]` and `--seeds N`. A setting is such text, a value, or a list of values.

    `engine`, `workload` and `device` are names too. Several values make a grid axis, one value pins it. A
    setting of the experiment that only a replaced workload or engine understood is dropped; one from
    `settings` never is.
    """
    _check_names(experiment)
    values = {name: _values(name, given) for name, given in settings.items()}
    changes: dict[str, Any] = {}
    if "engine" in values:
        changes["engines"] = [str(name) for name in values.pop("engine")]
    for choice in CHOICES[1:]:
        if choice in values:
            names = values.pop(choice)
            if len(names) != 1:
                raise UserError(f"{choice} takes one name, not {len(names)}; run once for each.")
            changes[choice] = str(names[0])
    replaced = experiment.model_copy(update=changes)
    _check_names(replaced)
    stale = _understood(experiment) - _understood(replaced)
    fixed = {name: value for name, value in experiment.set.items() if name not in stale}
    grid = {name: axis for name, axis in experiment.grid.items() if name not in stale}
    along = {
        name: axis for name, axis in experiment.along.items() if name not in stale and name not in values
    }
    first = next(iter(experiment.grid), "")
    if along and (
        first in stale or first in values
    ):  # each of its new values goes with what the old ones had
        old, new = experiment.grid[first], values.get(first, experiment.grid[first][-1:])
        places = [old.index(value) if value in old else len(old) - 1 for value in new]
        along = {name: [axis[place] for place in places] for name, axis in along.items()}
        if len(new) == 1:
            fixed |= {name: axis[0] for name, axis in along.items()}
            along = {}
    for name, axis in values.items():
        if len(axis) == 1:
            grid.pop(name, None)
            fixed[name] = axis[0]
        else:
            fixed.pop(name, None)
            grid[name] = axis
    data = {
        **replaced.model_dump(),
        "set": fixed,
        "grid": grid,
        "along": along,
        **({} if seeds is None else {"seeds": seeds}),
    }
    return validate(Experiment, data, "--set and --seeds")


Traces = dict[tuple[str, str, int], "Trace"]
"""Traces by workload, parameters (JSON) and seed."""


def expand(experiment: Experiment, traces: Traces | None = None) -> list[Point]:
    """All points, in the order engines, grid, seeds; UserError for anything that could not run.

    `traces`: those made so far, for experiments that share some; new ones are added.
    """
    _check_names(experiment)
    known = parameters(experiment)
    for name in [*experiment.set, *experiment.grid, *experiment.along]:
        if name not in known:
            raise _unknown(name, known, experiment)
    cells = [
        (engine, settings, _read("engine", _system_model(engine, settings), settings))
        for engine, settings in _cells(experiment)
    ]
    _check_used(cells)
    given = given_profile(experiment.profile, experiment.device)
    traces = {} if traces is None else traces
    points: dict[str, Point] = {}
    for engine, settings, system in cells:
        models = _models(experiment.workload, engine, settings)
        trace_params, client, server = (
            _read(group, models[group], settings) for group in ("workload", "client", "server")
        )
        assert isinstance(client, ClientParams)
        read = {"trace_params": trace_params, "client": client, "system": system}
        code = code_hash(experiment.device, roots_of(*_specs(experiment.workload, engine, settings)))
        profile = None
        if isinstance(server, ServerParams):
            profile = profile_of(given, experiment.profile, experiment.device, server)
            measured = profile.get("stages", ()) if profile is not None else ()
            check_modelled(server, experiment.device, measured)
        stored = json.dumps(trace_params.model_dump(mode="json"), sort_keys=True)
        for seed in experiment.seeds:
            key = (experiment.workload, stored, seed)
            if key not in traces:
                traces[key] = WORKLOADS[experiment.workload].generate(trace_params, seed)
            trace = traces[key]
            if isinstance(server, ServerParams):
                _check_server(experiment.device, server, trace)
                kinds.check(engine, system, client, server, trace)
                if experiment.device in SOCKET_DEVICES:
                    kinds.live_kind(serves(trace))
                read["server"] = server
            else:
                assert isinstance(server, TargetParams)
                kinds.live_kind(serves(trace)).check_target(server, trace, client.c)
                read["target"] = server
            identity = {"engine": engine, "device": experiment.device, "workload": experiment.workload}
            hashes = {"trace_hash": trace.header.hash, "code_hash": code, "profile": profile}
            axes = tuple(experiment.grid)
            point = Point.with_models(read, **identity, seed=seed, **hashes, axes=axes)
            # An axis that this engine does not have yields the same point again: it is measured once.
            points.setdefault(point.id, point)
    return list(points.values())


def _check_server(device: str, server: ServerParams, trace: Trace) -> None:
    check_runtime(server, device)
    resolved = resolve(server)
    check_device(device, resolved)
    check_said(device, resolved, trace)


def parse_setting(name: str, text: str) -> list[Any]:
    """The values in the text of `--set name=text`: `4,8` is [4, 8], each a YAML scalar.

    A value with a comma of its own is put in quotes or brackets, as in YAML. UserError for text without a
    value.
    """
    parts = [text] if text[:1] in "[{'\"" else text.split(",")
    if any(not part.strip() for part in parts):
        raise UserError(f"--set {name}={text} lacks a value; write {name}=VALUE or {name}=VALUE,VALUE.")
    try:
        return [parse_yaml(part) for part in parts]
    except ConstructorError as error:
        raise UserError(f"--set {name}={text}: {error.problem}.") from None
    except yaml.YAMLError:
        raise UserError(f"--set {name}={text} is not a plain value; put it in quotes.") from None


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, str):
        return parse_setting(name, given)
    values = list(given) if isinstance(given, (list, tuple, range)) else [given]
    if not values:
        raise UserError(f"{name}: a list without a value; give a value or leave {name} out.")
    return values


class _NoParams(BaseModel):
    """Parameters of an engine behind another party's endpoint: none."""


def _cells(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """Engine and settings of each cell, without seeds."""
    for engine, cell in itertools.product(experiment.engines, itertools.product(*experiment.grid.values())):
        settings = {**experiment.set, **dict(zip(experiment.grid, cell, strict=True))}
        for name, values in experiment.along.items():
            first = next(iter(experiment.grid.values()))
            settings[name] = values[first.index(cell[0])]
        yield engine, settings


def _specs(workload: str, engine: str, settings: Mapping[str, Any]) -> list[Any]:
    """Return the components of a cell, for the ids of its points: workload, kind, system, and the parts of that
    system."""
    found: list[Any] = [WORKLOADS[workload], kinds.named(WORKLOADS[workload].serves)]
    return found if engine == ENDPOINT else [*found, *ENGINES[engine].code(settings)]


def _models(workload: str, engine: str, settings: Mapping[str, Any]) -> dict[str, type[BaseModel]]:
    live = engine == ENDPOINT
    return {
        "workload": WORKLOADS[workload].Params,
        "client": ClientParams,
        "server": TargetParams if live else kinds.server_model(WORKLOADS[workload].serves),
        "engine": _system_model(engine, settings),
    }


def _system_model(engine: str, settings: Mapping[str, Any]) -> type[BaseModel]:
    return _NoParams if engine == ENDPOINT else ENGINES[engine].model(settings)


def code_of(point: Point) -> str:
    """The hash of the code of `point` as it stands here; its own `code_hash` is that of where it was expanded."""
    return code_hash(point.device, roots_of(*_specs(point.workload, point.engine, point.engine_params)))


def parameters(experiment: Experiment) -> dict[str, str]:
    """Every parameter that some cell of the experiment has, with its group. UserError for what cannot go together."""
    return {
        name: group
        for engine, settings in _cells(experiment)
        for group, model in _models(experiment.workload, engine, settings).items()
        for name in model.model_fields
    }


def is_whole(experiment: Experiment, name: str) -> bool:
    """Whether the parameter is a whole number, and not any number. UserError where it is none, or no cell has it."""
    known = parameters(experiment)
    if name not in known:
        raise _unknown(name, known, experiment)
    kinds = {
        kind
        for field in _fields(experiment, name)
        for kind in (field.annotation, *get_args(field.annotation))
    }
    if bool in kinds or kinds.isdisjoint((int, float)):
        raise UserError(f"parameter {name!r} is no number; take one that is, such as c.")
    return float not in kinds


def largest(experiment: Experiment, name: str) -> float:
    """The largest value that a parameter may have; infinity where it has no limit of its own."""
    limits = [getattr(rule, "le", None) for field in _fields(experiment, name) for rule in field.metadata]
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def _fields(experiment: Experiment, name: str) -> list[FieldInfo]:
    """The declarations of a parameter in the cells that have it."""
    return [
        model.model_fields[name]
        for engine, settings in _cells(experiment)
        for model in _models(experiment.workload, engine, settings).values()
        if name in model.model_fields
    ]


def never_on_line(points: Iterable[Point], traces: Traces) -> str | None:
    """A sentence where a closed loop is to keep more sessions on line than its trace has, so never keeps so many."""
    by_hash = {trace.header.hash: trace for trace in traces.values()}
    short = {
        (point.params["c"], len(by_hash[point.trace_hash].sessions))
        for point in points
        if point.device != "live" and (point.params.get("c") or 0) > len(by_hash[point.trace_hash].sessions)
    }
    if not short:
        return None
    c, sessions = max(short)
    return f"c={c} and {sessions} sessions: never so many are concurrent; set sessions={c}, or a smaller c."


def _understood(experiment: Experiment) -> set[str]:
    """Return the settings that the experiment's engines understand. Other settings may be meant for other engines."""
    try:
        return set(parameters(experiment))
    except UserError:
        return set(parameters(experiment.model_copy(update={"set": {}, "grid": {}})))


def _check_used(cells: Iterable[tuple[str, dict[str, Any], BaseModel]]) -> None:
    """UserError when a setting means nothing to any engine that has it. `cells`: engine, settings and parameters."""
    idle: dict[str, str] = {}
    used: set[str] = set()
    for engine, settings, params in cells:
        if engine == ENDPOINT:
            return
        unused = ENGINES[engine].unused(params)
        idle |= {name: f"{unused[name]} ({engine})" for name in settings if name in unused}
        used |= settings.keys() - unused.keys()
    for name, reason in idle.items():
        if name not in used:
            raise UserError(f"{name} is set and changes nothing: {reason}; leave it out.")


def _unknown(name: str, known: Mapping[str, str], experiment: Experiment) -> UserError:
    who = f"workload {experiment.workload} and {' and '.join(experiment.engines)}"
    having = owners(name)
    if having:
        return UserError(
            f"{name} is a parameter of {' and of '.join(having)}, which {who} do not have; set that too."
        )
    names = [*known, *CHOICES]
    if not difflib.get_close_matches(name, names, n=1, cutoff=0.8):
        others = [other for other, spec in WORKLOADS.items() if name in spec.Params.model_fields]
        if others:
            return UserError(
                f"{name} is a parameter of workload {', '.join(others)}, which {who} do not have; leave it out, or set "
                "workload too."
            )
    return unknown("parameter", name, names, f" for {who}")


def _read(group: str, model: type[BaseModel], settings: Mapping[str, Any]) -> BaseModel:
    chosen = {name: value for name, value in settings.items() if name in model.model_fields}
    return validate(model, chosen, f"{group} parameters")


def _check_names(experiment: Experiment) -> None:
    for name in experiment.engines:
        _check_live(name, experiment.device)
    named = [("engine", name, ENGINES) for name in experiment.engines if name != ENDPOINT]
    named += [("workload", experiment.workload, WORKLOADS)]
    for what, name, registry in named:
        if name not in registry:
            raise unknown(what, name, registry)
    known_device(experiment.device)


def _check_live(engine: str, device: str) -> None:
    """UserError unless engine and device are both live or both not."""
    if engine == ENDPOINT and device != "live":
        raise UserError(
            f"engine {ENDPOINT!r} is whatever stands behind a url, which device {device} cannot run; set engine too, "
            "for example --set engine=liveserve, or leave the device out to call the endpoint again."
        )
    if engine != ENDPOINT and device == "live":
        raise UserError(
            f"device live calls an endpoint that runs already, not engine {engine!r}; use rehearse live URL, or device "
            "sockets for a server of our own."
        )
