"""Systems as compositions of components."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field

from engines.composition import Composition, NoParams, Scheduler, component, register
from engines.core.policy import StageView
from engines.registry import ENGINES
from engines.systems.conserve.conserve_params import KvParams, SchedulerParams
from engines.turns.library import SPEAKING
from harness.serving.serve_config import ServeConfig, parameters
from tests.engines.frames import frames
from tests.engines.replays import assert_same, replay, run, voice_trace
from workloads.errors import UserError


@pytest.mark.parametrize(
    ("engine", "name", "value", "owner"),
    [
        ("vllm_omni", "talker_safe_s", 3.0, "scheduler=liveserve"),
        ("vllm_omni", "preload_ttl_s", 3.0, "kv=liveserve"),
        ("metronome", "hold_ticks", 3, "admission=aimd"),
    ],
)
def test_a_parameter_of_a_component_that_was_not_chosen_names_the_component(engine, name, value, owner):
    with pytest.raises(UserError, match=f"^{name} is a parameter of {owner}, which {engine} does not have"):
        parameters(ServeConfig.model_validate({"engine": engine, "settings": {name: value}}))
    field, component = owner.split("=")
    params = ENGINES[engine].read({field: component, name: value})
    assert params.flat()[name] == value


@pytest.mark.parametrize(
    ("chosen", "known"), [({"scheduler": "liveserve"}, True), ({"kv": "liveserve"}, True), ({}, False)]
)
def test_a_parameter_that_two_components_share_is_known_if_either_is_chosen(chosen: dict[str, str], known: bool):
    """LiveServe's scheduler and its KV management both read `telemetry_timeout_s`."""
    assert ("telemetry_timeout_s" in ENGINES["vllm_omni"].fields(chosen)) == known


@pytest.mark.parametrize(
    ("name", "chosen", "scheduler", "kv"),
    [
        ("vllm_omni", {}, "fcfs", "host"),
        ("liveserve", {}, "liveserve", "liveserve"),
        ("liveserve", {"scheduler": "fcfs"}, "fcfs", "liveserve"),
    ],
)
def test_settings_replace_the_components_of_a_system(name: str, chosen: dict[str, str], scheduler: str, kv: str):
    made_of = ENGINES[name].composition(ENGINES[name].read(chosen))
    assert (made_of["scheduler"].partition(": ")[0], made_of["kv"].partition(": ")[0]) == (scheduler, kv)


def test_systems_of_equal_components_give_equal_runs():
    trace = voice_trace(p=0.7)
    assert_same(run(trace, "liveserve", scheduler="fcfs", kv="host"), run(trace, "vllm_omni"))
    calls, server = frames(4, 8), {"deployment": "qwen3_omni_pro6000"}
    without_window = replay("metronome", {"window": None}, server, {}, calls, 3)
    assert_same(without_window, replay("vllm_realtime", {}, server, {}, calls, 3))


def test_a_window_bounds_the_blocks_of_a_session_at_the_thinker():
    """In decoding steps a window of 128 tokens needs 128 / 16 = 8 blocks of 16, and 2 for its ends."""
    long = voice_trace(sessions=1, turns=4.0, reply_tokens=400, p=0.0)

    def most_blocks(window: int | None) -> int:
        steps = run(long, "vllm_omni", kv="lru", window=window).steps.to_pandas()
        return steps.query("stage == 'thinker' and requests > 0 and prefill_tokens == 0")["kv_used"].max()

    assert most_blocks(128) <= 10 < most_blocks(None)


class Knobs(BaseModel):
    patience_s: float = Field(1.0, description="how long it waits")


MINE = Scheduler("mine", "an order of another package", Knobs)
SYSTEM = Composition("mine", "a system of another package", SPEAKING, {"scheduler": "mine", "patience_s": 2.0})


@pytest.fixture
def discovered(install) -> dict:
    return install(SimpleNamespace(COMPONENTS=(MINE,), SYSTEMS=(SYSTEM,)))


def test_another_package_brings_a_system_and_components(discovered: dict):
    assert discovered.keys() - ENGINES.keys() == {"mine"}
    params = discovered["mine"].read({}).flat()
    assert (params["scheduler"], params["kv"], params["patience_s"]) == ("mine", "lru", 2.0)
    assert discovered["vllm_omni"].read({"scheduler": "mine"}).flat()["patience_s"] == 1.0


def test_two_components_or_systems_of_one_name_are_refused(discovered: dict, install):
    register(MINE)  # the same one twice is one
    with pytest.raises(ValueError, match="two components are called scheduler=mine"):
        register(Scheduler("mine", "another one", NoParams))
    with pytest.raises(ValueError, match="two systems are called vllm_omni"):
        install(SimpleNamespace(SYSTEMS=(Composition("vllm_omni", "another one", SPEAKING),)))


class Lists:
    """A policy that returns the order alone."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView) -> Any:
        return [request.id for request in view.requests]


def test_the_error_names_a_policy_that_returns_no_plan(discovered: dict):
    register(Scheduler("listed", "the order alone", NoParams, policy=lambda stage, params: Lists()))
    says = r"^Lists\.plan returned \['0.0.thinker'\] at thinker, but a policy returns a Plan$"
    with pytest.raises(TypeError, match=says):
        replay("vllm_omni_wo", {"scheduler": "listed"}, {}, {}, voice_trace(sessions=1), 0)


def test_a_component_gets_its_own_parameters_and_those_that_it_names():
    def given(field: str, engine: str, **chosen: Any) -> Any:
        return component(field, "conserve", "turns").given(ENGINES[engine].read(chosen).flat()).params

    both = {"resume": "swap", "guard": 0.25}
    assert given("scheduler", "conserve", **both) == SchedulerParams.model_validate(both)
    assert given("kv", "conserve", **both) == KvParams.model_validate({"resume": "swap"})
    alone = given("scheduler", "vllm_omni_wo", scheduler="conserve")
    assert alone == SchedulerParams.model_validate({"resume": None})


def test_a_system_s_default_for_a_component_applies_only_with_that_component():
    system = ENGINES["liveserve_on_calls"]
    assert system.read({}).flat()["telemetry_timeout_s"] == system.fields({})["telemetry_timeout_s"].default == 4.0
    other = system.read({"scheduler": "fcfs"})
    assert "telemetry_timeout_s" not in system.fields({"scheduler": "fcfs"}) and other.window == 1024


@pytest.mark.parametrize(
    ("engine", "offered"),
    [
        ("metronome", {"scheduler=liveserve", "admission=aimd", "routing=least_load"}),
        ("liveserve", {"scheduler=fcfs", "kv=lru", "routing=omniproxy", "talker_routing=round_robin"}),
    ],
)
def test_a_system_accepts_every_component_that_it_offers(engine: str, offered: set[str]):
    system = ENGINES[engine]
    choices = system.choices(system.read({}))
    assert offered <= choices.keys()
    for choice in choices:
        field, name = choice.split("=")
        system.check(system.read({field: name}))


def test_a_system_offers_neither_its_own_components_nor_those_that_it_refuses():
    metronome = ENGINES["metronome"]
    choices = metronome.choices(metronome.read({}))
    assert "scheduler=fcfs" not in choices  # its own
    for field, name in (("scheduler", "priority"), ("routing", "prefix_match"), ("kv", "lru")):
        assert f"{field}={name}" not in choices
        with pytest.raises(UserError):
            metronome.check(metronome.read({field: name}))
    assert "cap_start" in choices["admission=aimd"].model_fields
