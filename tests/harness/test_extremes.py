"""Whatever a user sets, also what nobody would mean, is accepted, or refused in one sentence, and always soon.

Nothing here asserts a time. A generator that made more turns than `MOST_TURNS`, which is small here, before it looked
at their number would take all memory.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from engines import composition
from engines.deployments import deployment_facts, load_deployment
from engines.endpoint.limits import Limits
from engines.models import load_model, yaml_files
from engines.registry import ENDPOINT, ENGINES
from engines.stock.arguments import StockParams
from engines.stock.omni.omni_params import OmniParams
from engines.turns.signals import Signal
from harness import by_device
from harness.client.client_params import ClientParams
from harness.experiments.experiment import Experiment, load_experiment
from harness.live import expand as live_expand
from harness.live.endpoints.target import TargetParams
from harness.replays import expand as replay_expand
from harness.replays import kinds
from harness.serving.serve_config import ServeConfig
from harness.slo.targets import parse_targets
from tests.builders import altered, places
from workloads import trace
from workloads.bounds import MOST_SEED
from workloads.devices import DEVICES
from workloads.errors import UserError, printable, validate
from workloads.files.yaml_file import shipped_yaml
from workloads.generators import servegen
from workloads.registry import WORKLOADS

SENTENCE = 2000
"""Characters of the longest sentence."""

TURNS = 30_000
"""Turns of a trace here; the defaults of workload metronome make 19,200."""

NUMBERS: list[Any] = [
    0, 1, -1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**70), 10**5000, -0.0, 5e-324, 1e-300, 0.5,
    1e300, float("inf"), float("-inf"), float("nan"), True, False,
]  # fmt: skip
TEXTS = [
    "", " ", "\0", "\n", "\x1b[31m", "é", "\ud800", "x" * 300, "x" * 100_000, "../" * 2000, "/dev", "1", "nan", ",",
]  # fmt: skip
ODD: list[Any] = [None, [], {}, [[]], [None], {"": None}, [10**5000], {"a": float("inf")}, ["x" * 100_000]]
extreme = st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.sampled_from(ODD)

EVERY: Any = list(HealthCheck)
fuzz = settings(max_examples=12, suppress_health_check=EVERY)


def models() -> Iterator[type[BaseModel]]:
    """Yield every model whose fields users set by `--set`, by an option, or in YAML."""
    yield from (Experiment, ClientParams, TargetParams, Limits, ServeConfig, StockParams, OmniParams, Signal)
    yield from (workload.Params for workload in WORKLOADS.values())
    yield from (engine.Params for engine in ENGINES.values())
    yield from (kinds.server_model(workload.serves) for workload in WORKLOADS.values())
    yield from (each.Params for parts in composition.COMPONENTS.values() for each in parts.values())


MODELS = sorted(set(models()), key=lambda model: (model.__module__, model.__name__))


def unlimited(schema: Any, place: str = "") -> list[str]:
    """Return the places of numbers in a JSON schema that lack a least or a most."""
    if isinstance(schema, list):
        return [each for i, inner in enumerate(schema) for each in unlimited(inner, f"{place}.{i}")]
    if not isinstance(schema, dict):
        return []
    ends = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
    if schema.get("type") in ("integer", "number") and not (
        "const" in schema or all(schema.keys() & end for end in ends)
    ):
        return [place]
    return [each for name, inner in schema.items() for each in unlimited(inner, f"{place}.{name}")]


def limit(field: FieldInfo, *names: str) -> Any:
    return next((getattr(rule, name) for rule in field.metadata for name in names if hasattr(rule, name)), None)


def values_of(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of a field, among them the ends of its own range, and its own names."""
    ends = [limit(field, "ge", "gt"), limit(field, "le", "lt"), field.get_default(call_default_factory=True)]
    if get_origin(field.annotation) is Literal:
        ends += get_args(field.annotation)
    return st.sampled_from(ends) | extreme


def given_to(fields: Mapping[str, FieldInfo], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Values of a few of these fields."""
    pair = st.sampled_from(sorted(fields)).flatmap(lambda name: st.tuples(st.just(name), values_of(fields[name])))
    return st.lists(pair, min_size=1, max_size=most).map(dict) if fields else st.just({})


def values_for(model: type[BaseModel], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Values of all fields that are required, and of a few others."""
    fields = model.model_fields
    needed = {name: values_of(field) for name, field in fields.items() if field.is_required()}
    return st.builds(operator.or_, st.fixed_dictionaries(needed), given_to(fields, most))


def answered(call: Callable[[], Any]) -> Any:
    """Return what `call` returns; None where it refuses in a sentence."""
    try:
        return call()
    except UserError as error:
        message = printable(str(error), 2 * SENTENCE)
        assert len(message) < SENTENCE and message.isprintable() and message.endswith((".", "?")), message
        return None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.__module__}.{model.__name__}")
def test_every_number_has_a_least_and_a_most(model: type[BaseModel]) -> None:
    assert unlimited(model.model_json_schema(mode="validation")) == []


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.__module__}.{model.__name__}")
@given(data=st.data())
@fuzz
def test_a_model_takes_any_values_of_its_fields_or_refuses_them_in_a_sentence(
    model: type[BaseModel], data: st.DataObject
) -> None:
    values = data.draw(values_for(model, 4))
    made = answered(lambda: validate(model, values, "here"))
    assert made is None or isinstance(made, model)


@pytest.fixture
def few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_TURNS", TURNS)
    monkeypatch.setattr(servegen, "MOST_WINDOWS", TURNS)
    for module in (live_expand, replay_expand):
        monkeypatch.setattr(module, "code_hash", lambda device, roots: "")


def points(engine: str, workload: str, chosen: Mapping[str, Any], **more: Any) -> Any:
    experiment = {"name": "x", "engines": [engine], "workload": workload, "set": dict(chosen)} | more
    return answered(lambda: by_device.expand(validate(Experiment, experiment, "here")))


def fields_of(engine: str, workload: str) -> dict[str, FieldInfo]:
    server = kinds.server_model(WORKLOADS[workload].serves)
    types = WORKLOADS[workload].Params, ClientParams, server
    return {n: f for model in types for n, f in model.model_fields.items()} | dict(ENGINES[engine].fields({}))


FIRST = {kind: next(name for name, each in ENGINES.items() if each.kind == kind) for kind in ("turns", "frames")}
FIRST["duplex"] = FIRST["turns"]
"""Kind of workload -> an engine that serves it."""


@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
@fuzz
def test_a_workload_makes_a_trace_or_says_why_not(few_turns: None, workload: str, data: st.DataObject) -> None:
    chosen = data.draw(values_for(WORKLOADS[workload].Params, 3))
    points(FIRST[WORKLOADS[workload].serves], workload, chosen, seeds=[data.draw(st.sampled_from([0, MOST_SEED]))])


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != ENDPOINT])
@given(data=st.data())
@fuzz
def test_an_engine_is_set_up_or_says_why_not(few_turns: None, engine: str, data: st.DataObject) -> None:
    workload = {"turns": "voice", "frames": "metronome"}[ENGINES[engine].kind]
    chosen = data.draw(given_to(fields_of(engine, workload), 3)) | {"sessions": 4}
    points(engine, workload, chosen, device=data.draw(st.sampled_from(sorted(DEVICES))))


@given(st.dictionaries(st.sampled_from(sorted(Experiment.model_fields)), extreme, max_size=3))
@fuzz
def test_an_experiment_is_expanded_or_says_why_not(few_turns: None, changes: dict[str, Any]) -> None:
    asked = {"name": "x", "engines": ["vllm_omni"], "workload": "voice", "set": {"sessions": 4}}
    answered(lambda: by_device.expand(validate(Experiment, asked | changes, "here")))


@given(st.lists(st.sampled_from(["ttfp_p90", "continuity", "x", ""]) | st.text(max_size=5), max_size=3), extreme)
@fuzz
def test_targets_are_read_or_refused(names: list[str], value: Any) -> None:
    shown = value if isinstance(value, str) else "9" * 5000
    answered(lambda: parse_targets(" ".join(f"{name}<={shown}" for name in names), "--slo"))


@pytest.mark.parametrize("text", [*TEXTS, "9" * 5000, "0x" + "f" * 5000, "1:" * 3000 + "1", "[" * 50_000, "2026-13-45"])
def test_a_file_is_read_or_refused(tmp_path, text: str) -> None:
    for field in ("name", "seeds", "timeout_s", "set", "engines"):
        path = tmp_path / "x.yaml"
        content = f"engines: [vllm_omni]\nworkload: voice\n{field}: {text}\n"
        path.write_bytes(content.encode(errors="surrogatepass"))
        answered(partial(load_experiment, path))


DIGITS = "a number of 5,000 digits"
WRITTEN = [value for value in (*NUMBERS, *TEXTS) if value not in (10**5000, "\ud800")]
WRITTEN += [None, [], {}, [[]], DIGITS, *({"value": value, "source": "x"} for value in (DIGITS, float("inf")))]
"""Values as a file may hold them."""

FACTS = {
    "deployment": (deployment_facts("qwen3_omni_2gpu"), lambda path: load_deployment.__wrapped__(path)),
    "model": (shipped_yaml(yaml_files("models")["qwen3_omni_30b_a3b"]), load_model),
}


@pytest.mark.parametrize("kind", FACTS)
@given(data=st.data())
@settings(max_examples=150, suppress_health_check=EVERY)
def test_a_file_of_facts_is_read_or_refused(tmp_path, kind: str, data: st.DataObject) -> None:
    facts, load = FACTS[kind]
    place = data.draw(st.sampled_from(list(places(facts))))
    value = data.draw(st.sampled_from(WRITTEN))
    path = tmp_path / f"{kind}.yaml"
    path.write_text(yaml.safe_dump(altered(facts, place, value)).replace(DIGITS, "9" * 5000))
    answered(lambda: load(str(path)))


@pytest.mark.parametrize("value", ["\ud800", ["a", "b\udfff"], {"x": "\udcff"}])
def test_half_of_a_character_is_refused_by_its_field(value: Any) -> None:
    with pytest.raises(UserError, match=r"parameter 'gpu.* half of a character"):
        validate(kinds.server_model("duplex"), {"gpu": value}, "here")
