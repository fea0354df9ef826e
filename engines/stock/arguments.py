"""Settings of our schedulers and the modelled device inside stock vLLM, through `--additional-config`.

`python -m engines.stock` prints the command that starts vLLM's OpenAI server with them, live signals included.
"""

import json
import shlex
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, Field

from engines.composition import Composition
from engines.core.policy import Policy
from engines.core.stage import ENTRY, Stage
from engines.deployments import Deployment
from engines.registry import ENGINES
from engines.server import DeploymentName, ServerParams, resolve
from engines.stock.plugin import EXECUTOR, SWITCH
from workloads.bounds import MOST_SEED
from workloads.errors import UserError, nearest, validate

KEY = "rehearsal"
"""The key of `StockParams` in vLLM's additional configuration."""


class StockParams(BaseModel):
    """The settings of our parts inside stock vLLM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str = Field("liveserve", description="whose policy schedules")
    engine_params: dict[str, Any] = Field({}, description="the engine's parameters")
    stage: str | None = Field(
        None, description="which stage is served: the one that requests come to first, or talker; default: the former"
    )
    deployment: DeploymentName = Field(
        "qwen3_omni_2gpu",
        description="whose stage the modelled device takes its times from, and whose speech the policy expects",
    )
    speech_s_per_text_token: float | None = Field(
        None, gt=0, le=60, description="seconds of speech a text token becomes; default: as the deployment's model says"
    )
    token_per_frame: bool = Field(
        False, description="the talker takes one text token with each codec frame, so that its lead counts in frames"
    )
    slower: float = Field(1.0, gt=0, le=1e6, description="real seconds in a second of the modelled device")
    seed: int = Field(
        0, ge=0, le=MOST_SEED, description="of the lengths of replies that the modelled device ends itself"
    )

    @classmethod
    def of(cls, additional_config: Any, scheduled: bool = True) -> "StockParams":
        """Read vLLM's `additional_config`. Raises UserError in one sentence. `scheduled`: a policy of ours is to
        schedule the stage; a stage that makes no tokens cannot use one."""
        if not isinstance(additional_config, Mapping):
            raise UserError("additional_config: give a JSON object, or leave it out.")
        values = additional_config.get(KEY, {})
        if not isinstance(values, Mapping):
            raise UserError(f"additional_config: {KEY!r} must be an object, got {values!r}.")
        params = validate(cls, values, f"additional_config {KEY!r}")
        served = params.served
        able = [n for n in served.stages if not scheduled or served.role(n) in (ENTRY, "talker")]
        if params.stage not in (None, *able):
            why = "makes no tokens" if params.stage in served.stages else f"is none of {params.deployment!r}"
            raise UserError(f"additional_config {KEY!r}: stage {params.stage!r} {why}; choose from: {', '.join(able)}.")
        return params

    @cached_property
    def served(self) -> Deployment:
        """The deployment with its KV pools sized."""
        return resolve(ServerParams.model_validate({"deployment": self.deployment}))

    @property
    def limits(self) -> Stage:
        return self.served.stages[self.stage or self.served.entry]

    @property
    def role(self) -> str:
        """The stage's role, for the engine's policy."""
        return self.served.role(self.limits.name)


def policy_of(engine: str, role: str, engine_params: Mapping[str, Any]) -> Policy | None:
    """Return the policy of an engine at the stage of this role; None: vLLM's own order. Raises UserError in one
    sentence."""
    system = ENGINES.get(engine)
    able = [name for name, each in ENGINES.items() if isinstance(each, Composition) and each.kind == "turns"]
    if system is None:
        raise UserError(f"unknown engine '{engine}'.{nearest(engine, able)}")
    if not isinstance(system, Composition) or engine not in able:
        raise UserError(
            f"engine '{engine}' serves {system.kind}, which takes more of vLLM than its order; choose from: "
            f"{', '.join(able)}."
        )
    return system.policy(role, system.read(engine_params, f"engine {engine}"))


def scheduler_class(asynchronous: bool) -> str:
    """Return the argument of `--scheduler-cls`."""
    return f"engines.stock.scheduler.{'AsyncScheduler' if asynchronous else 'Scheduler'}"


def arguments(params: StockParams, asynchronous: bool = False, model: str | None = None) -> dict[str, Any]:
    """Return keyword arguments of vLLM's `AsyncEngineArgs` that serve `params.limits` under `params.engine`.

    `model`: a checkpoint's folder, served by vLLM's own worker on this machine; None: the modelled device.
    `asynchronous` scheduling on a machine without a GPU needs the modelled platform (`engines.stock.plugin`).
    """
    policy_of(params.engine, params.role, params.engine_params)  # reports an error before anything starts
    from engines.core.vllm_adapter import engine_arguments

    of_device = {"distributed_executor_backend": EXECUTOR} if model is None else {"model": model, "load_format": "auto"}
    return {
        **engine_arguments(params.limits),
        **of_device,
        "scheduler_cls": scheduler_class(asynchronous),
        "async_scheduling": asynchronous,
        "additional_config": {KEY: {"engine": params.engine, **params.model_dump(exclude_defaults=True)}},
    }


def serve_command(args: Mapping[str, Any], python: str = "python") -> str:
    """Return the shell command that starts vLLM's OpenAI server with `arguments` and takes live signals over HTTP."""
    words = [python, "-m", "vllm.entrypoints.openai.api_server", "--middleware", "engines.stock.live_signals.http"]
    for name, value in args.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    switch = [f"{SWITCH}=1"] if args["async_scheduling"] and args.get("distributed_executor_backend") else []
    return shlex.join([*switch, *words])


def main(
    engine: Annotated[str, typer.Argument(help="whose policy schedules")] = "liveserve",
    deployment: Annotated[str, typer.Option(help="whose stage is served")] = "llama_8b_1gpu",
    stage: Annotated[str, typer.Option(help="one of its stages; default: the first")] = "",
    model: Annotated[str, typer.Option(help="a checkpoint, for vLLM's own worker; default: modelled")] = "",
    asynchronous: Annotated[bool, typer.Option("--async", help="asynchronous scheduling")] = False,
    params: Annotated[str, typer.Option(help="the engine's parameters, a JSON object")] = "{}",
    speech_s_per_text_token: Annotated[float | None, typer.Option(help="for a text model; s")] = None,
) -> None:
    """Print the command that serves a stage with stock vLLM under an engine's policy.

    `eval "$(python -m engines.stock liveserve --async --speech-s-per-text-token 0.3)"`
    """
    try:
        values = {
            "engine": engine,
            "engine_params": json.loads(params),
            "deployment": deployment,
            "stage": stage or None,
        }
        if speech_s_per_text_token is not None:
            values["speech_s_per_text_token"] = speech_s_per_text_token
        args = arguments(StockParams.of({KEY: values}), asynchronous, model or None)
    except json.JSONDecodeError as error:
        print(f"--params is no JSON object: {error}; give one such as '{{\"lead_cap_s\": 8}}'.", file=sys.stderr)
        raise typer.Exit(2) from None
    except UserError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    print(serve_command(args, sys.executable))
