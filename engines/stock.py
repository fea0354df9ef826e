"""How our schedulers and the modelled device are set up inside stock vLLM, through ``--additional-config``.

`python -m engines.stock` prints the command that serves a deployment's stage on the modelled device.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from engines.plugin import EXECUTOR
from engines.registry import ENGINES, EngineSpec
from engines.server import Deployment, ServerParams, Stage, deployment_names, resolve
from workloads.errors import UserError, nearest, validate

KEY = "rehearsal"
"""The key in vLLM's additional configuration under which ``StockParams`` stand."""


class StockParams(BaseModel):
    """What our parts inside stock vLLM are told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: Literal["thinker", "talker"] = Field("thinker", description="which stage this engine serves")
    engine_params: dict[str, Any] = Field({}, description="the variant's parameters")
    deployment: str = Field(
        "qwen3_omni_2gpu",
        description="whose stage the modelled device takes its times from, and whose speech the policy expects",
    )
    speech_s_per_text_token: float | None = Field(
        None,
        gt=0,
        description="seconds of speech a text token becomes; default: as the deployment's model says",
    )

    @field_validator("deployment")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in deployment_names():
            raise ValueError(f"unknown deployment '{name}'.{nearest(name, deployment_names())}".rstrip("."))
        return name

    @classmethod
    def of(cls, additional_config: Any) -> "StockParams":
        """Read vLLM's ``additional_config``. Raises UserError in one sentence."""
        if not isinstance(additional_config, Mapping):
            raise UserError("additional_config: give a JSON object, or leave it out.")
        values = additional_config.get(KEY, {})
        if not isinstance(values, Mapping):
            raise UserError(f"additional_config: {KEY!r} must be an object, got {values!r}.")
        params = validate(cls, values, f"additional_config {KEY!r}")
        if params.stage not in params.served.stages:
            stages = ", ".join(params.served.stages)
            raise UserError(
                f"additional_config {KEY!r}: the deployment {params.deployment!r} has no stage "
                f"{params.stage!r}; choose from: {stages}."
            )
        return params

    @cached_property
    def served(self) -> Deployment:
        """The deployment with its KV pools sized."""
        return resolve(ServerParams.model_validate({"deployment": self.deployment}))

    @property
    def limits(self) -> Stage:
        """The stage this engine serves."""
        return self.served.stages[self.stage]

    def parameters(self, spec: EngineSpec) -> BaseModel:
        """The variant's parameters. Raises UserError in one sentence."""
        return validate(spec.Params, self.engine_params, f"engine {spec.name}")


def scheduler_class(engine: str, asynchronous: bool) -> str:
    """What ``--scheduler-cls`` takes. Raises UserError for an unknown engine."""
    if engine not in ENGINES:
        raise UserError(f"unknown engine '{engine}'.{nearest(engine, ENGINES)}")
    return f"engines.{engine}.vllm.{'AsyncScheduler' if asynchronous else 'Scheduler'}"


def arguments(
    engine: str, params: StockParams, asynchronous: bool = False, model: str | None = None
) -> dict[str, Any]:
    """Keyword arguments of vLLM's ``AsyncEngineArgs`` that serve ``params.limits`` under ``engine``.

    ``model``: a checkpoint's folder, served by vLLM's own worker on this machine; None: the modelled device.
    ``asynchronous`` scheduling on a machine without a GPU needs the modelled platform (``engines.plugin``).
    """
    from engines.core.vllm_adapter import engine_arguments

    params.parameters(ENGINES[engine])
    of_device = (
        {"distributed_executor_backend": EXECUTOR}
        if model is None
        else {"model": model, "load_format": "auto"}
    )
    return {
        **engine_arguments(params.limits),
        **of_device,
        "scheduler_cls": scheduler_class(engine, asynchronous),
        "async_scheduling": asynchronous,
        "additional_config": {KEY: params.model_dump(exclude_defaults=True)},
    }
