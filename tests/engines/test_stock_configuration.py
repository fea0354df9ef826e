"""Stock vLLM with our scheduler, policy, model and platform: its configuration, and which ones are refused."""

import shlex
from importlib.metadata import entry_points
from typing import Any

import pytest
from vllm.v1.outputs import ModelRunnerOutput

from engines.core.device import Row
from engines.devices.roofline import Work
from engines.stock.arguments import KEY, StockParams, arguments, serve_command
from engines.stock.executor import ModelledExecutor
from engines.stock.plugin import SWITCH
from engines.stock.scheduler import Scheduler
from tests.builders import refused
from tests.engines.stock_scheduler import make
from workloads.errors import UserError

pytestmark = pytest.mark.usefixtures("vllm_s_own_engine_process")
LLAMA = {"deployment": "llama_8b_1gpu"}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"stage": "vocoder"}, "stage 'vocoder' makes no tokens; choose from: thinker, talker"),
        ({"stage": "talker", **LLAMA}, "stage 'talker' is none of 'llama_8b_1gpu'; choose from: thinker"),
        ({"deployment": "llama_9b"}, "unknown deployment 'llama_9b'. Did you mean"),
        ({"stages": 1}, "unknown parameter 'stages'. Did you mean 'stage'?"),
        ({"engine": "liveserv"}, "unknown engine 'liveserv'. Did you mean 'liveserve'?"),
        ({"engine": "metronome"}, "engine 'metronome' serves frames, which takes more of vLLM than its order"),
        ({"engine_params": {"lead_cap": 3}}, "engine liveserve: unknown parameter 'lead_cap'"),
        (3, "'rehearsal' must be an object, got 3"),
    ],
)
def test_bad_additional_config_is_refused_in_one_sentence(config: Any, sentence: str):
    with refused(sentence):
        make(Scheduler, config)


def test_the_printed_command_is_what_vllm_s_server_understands():
    try:
        from vllm.entrypoints.cli.launch import make_arg_parser  # pyright: ignore[reportPrivateImportUsage]  # its own module moves
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("vllm"):
            raise
        pytest.skip(f"the server of this vLLM wants {missing.name}, which no replay does")
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    params = StockParams.of({KEY: {**LLAMA, "engine_params": {"lead_cap_s": 8}}})
    switch, _, _, _, *words = shlex.split(serve_command(arguments(params, asynchronous=True)))
    parsed: Any = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
    assert switch == f"{SWITCH}=1"
    assert parsed.scheduler_cls == "engines.stock.scheduler.AsyncScheduler"
    assert parsed.middleware == ["engines.stock.live_signals.http"]
    assert StockParams.of(parsed.additional_config) == params


def engine_config(parameters: dict[str, Any], executed: dict[str, Any] | None = None) -> Any:
    """vLLM's configuration for these parameters, on the deployment of `executed` instead if it is given."""
    from vllm.engine.arg_utils import EngineArgs

    args = arguments(StockParams.of({KEY: executed or parameters}))
    return EngineArgs(**{**args, "additional_config": {KEY: parameters}}).create_engine_config()


def test_the_modelled_executor_refuses_another_model():
    with pytest.raises(UserError, match="but the thinker of 'llama_8b_1gpu' has"):
        ModelledExecutor(engine_config(LLAMA, {"deployment": "llama_tiny"}))


def test_slower_multiplies_the_seconds_of_a_step():
    def ends_s(slower: float) -> float:
        executor = ModelledExecutor(engine_config({"deployment": "llama_tiny", "slower": slower}))
        executor._run(Work.of([Row("a", 8, 0, True)]), ModelRunnerOutput([], {}), 0.0)
        return executor._free_at_s

    assert ends_s(1.0) > 0
    assert ends_s(3.0) == pytest.approx(3 * ends_s(1.0))


def test_the_platform_plug_in_is_installed_and_inactive_unless_asked_for(monkeypatch):
    [plugin] = [p for p in entry_points(group="vllm.platform_plugins") if p.name == "rehearsal_modelled"]
    monkeypatch.delenv(SWITCH, raising=False)
    assert plugin.load()() is None
    monkeypatch.setenv(SWITCH, "1")
    assert plugin.load()() == "engines.stock.platform.ModelledPlatform"
