"""Whatever a user sets is accepted, or refused in one sentence."""

import operator
from collections.abc import Callable, Iterator
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
from engines.registry import ENGINES
from engines.stock.arguments import StockParams
from engines.stock.omni.omni_params import OmniParams
from engines.turns.signals import Signal
from harness import by_device
from harness.client.client_params import ClientParams
from harness.experiments.experiment import Experiment
from harness.live import expand as live_expand
from harness.live.endpoints.target import TargetParams
from harness.replays import expand as replay_expand
from harness.replays import kinds
from harness.serving.serve_config import ServeConfig
from tests.builders import altered, places
from workloads import trace
from workloads.bounds import MOST_SEED
from workloads.errors import UserError, printable, validate
from workloads.files.yaml_file import shipped_yaml
from workloads.generators import servegen
from workloads.registry import WORKLOADS

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


def values_of(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of a field, among them the ends of its own range, and its own names."""
    ends = [getattr(rule, end) for rule in field.metadata for end in ("ge", "gt", "le", "lt") if hasattr(rule, end)]
    if get_origin(field.annotation) is Literal:
        ends += get_args(field.annotation)
    return st.sampled_from([*ends, field.get_default(call_default_factory=True)]) | extreme


def values_for(model: type[BaseModel], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Values of all fields that are required, and of a few others."""
    fields = model.model_fields
    needed = {name: values_of(field) for name, field in fields.items() if field.is_required()}
    pair = st.sampled_from(sorted(fields)).flatmap(lambda name: st.tuples(st.just(name), values_of(fields[name])))
    others = st.lists(pair, min_size=1, max_size=most).map(dict) if fields else st.just({})
    return st.builds(operator.or_, st.fixed_dictionaries(needed), others)


def accepted(call: Callable[[], Any]) -> Any:
    """Return what `call` returns; None where it refuses in a sentence of less than 2,000 characters."""
    try:
        return call()
    except UserError as error:
        message = printable(str(error), 4000)
        assert len(message) < 2000
        assert message.isprintable()
        assert message.endswith((".", "?"))
        return None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.__module__}.{model.__name__}")
def test_every_number_has_a_least_and_a_most(model: type[BaseModel]) -> None:
    assert unlimited(model.model_json_schema(mode="validation")) == []


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.__module__}.{model.__name__}")
@given(data=st.data())
@settings(max_examples=12, suppress_health_check=EVERY)
def test_a_model_takes_any_values_of_its_fields_or_refuses_them_in_a_sentence(
    model: type[BaseModel], data: st.DataObject
) -> None:
    values = data.draw(values_for(model, 4))
    made = accepted(lambda: validate(model, values, "here"))
    assert made is None or isinstance(made, model)


@pytest.mark.parametrize("workload", WORKLOADS)
@given(data=st.data())
@settings(max_examples=12, suppress_health_check=EVERY)
def test_a_workload_makes_a_trace_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch, workload: str, data: st.DataObject
) -> None:
    """The limit on turns is small, so that a generator that makes turns before it counts them takes all memory."""
    monkeypatch.setattr(trace, "MOST_TURNS", 30_000)
    monkeypatch.setattr(servegen, "MOST_WINDOWS", 30_000)
    monkeypatch.setattr(live_expand, "code_hash", lambda device, roots: "")
    monkeypatch.setattr(replay_expand, "code_hash", lambda device, roots: "")
    engine = "metronome" if WORKLOADS[workload].serves == "frames" else "vllm_omni"
    chosen = data.draw(values_for(WORKLOADS[workload].Params, 3))
    seeds = [data.draw(st.sampled_from([0, MOST_SEED]))]
    experiment = {"name": "x", "engines": [engine], "workload": workload, "set": chosen, "seeds": seeds}
    accepted(lambda: by_device.expand(validate(Experiment, experiment, "here")))


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
    accepted(lambda: load(str(path)))


def test_half_of_a_character_is_refused_by_its_field() -> None:
    with pytest.raises(UserError, match=r"parameter 'gpu.* half of a character"):
        validate(kinds.server_model("duplex"), {"gpu": ["a", "b\udfff"]}, "here")
