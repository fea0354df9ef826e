"""The configuration of a server, and checks that it can be served."""

import importlib.util
import os
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engines.composition import owners
from engines.deployments import Deployment, load_deployment
from engines.deployments.available import check as check_device
from engines.endpoint.limits import Limits
from engines.frames.call_params import CallParams
from engines.models.token_ids import frame_tokens
from engines.registry import ENGINES
from engines.server import ServerParams, check_modelled, resolve, stated_defaults
from harness.live.kinds import named
from harness.replays.profiles import profile_of
from workloads.bounds import MOST_SEED
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError, nearest, validate
from workloads.host_names import is_loopback
from workloads.optional import install_command

SMALL_DEPLOYMENT = "speech_tiny"
"""Deployment that really runs on any machine. Real devices serve it where no deployment is set."""

DEVICES = ("virtual", *REAL_DEVICES)
"""Devices of a server; virtual: modelled GPUs on the wall clock."""

LIBRARIES = ("vllm", "websockets", "msgspec", "prometheus_client", "uvloop")


class ServeConfig(BaseModel):
    """The configuration of a server: system, place and limits; `check` it before use. It holds no secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str
    device: Literal["virtual", "cpu", "cuda"] = "virtual"
    settings: dict[str, Any] = Field(default_factory=dict, description="engine and server parameters, by name")
    profile: dict[str, Any] | None = Field(None, description="content of a profile file, for device virtual")
    seed: int = Field(0, ge=0, le=MOST_SEED)
    frame_s: float = Field(2.0, gt=0, le=60, description="audio of a frame, s, of engines that serve frames")
    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535, description="0: any free one")
    limits: Limits = Field(default_factory=lambda: Limits.model_validate({}))
    drain_s: float = Field(30, ge=0, le=86_400, description="after SIGTERM, for replies under way to be finished, s")
    token_env: str | None = Field(None, description="environment variable with the token that clients show")
    insecure: bool = Field(False, description="serve others than this machine without a token")


def check(config: ServeConfig) -> None:
    """Raise UserError when `config` names something unknown, cannot run on this machine or would be open to other
    machines without a token."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"a server needs {', '.join(missing)}; run {install_command('cpu', 'live')}.")
    engine_params, server_params = parameters(config)
    named(ENGINES[config.engine].kind)
    deployment = resolve(server_params)
    check_device(config.device, deployment)
    replayed = profile(config, server_params, deployment)
    if server_params.vllm is not None:
        raise UserError(f"vllm={server_params.vllm} is for replays; a server runs on the vLLM that is installed.")
    check_modelled(server_params, config.device, replayed["stages"] if replayed is not None else ())
    if isinstance(engine_params, CallParams) and not (
        frame_tokens(deployment.model, config.frame_s) + engine_params.template_tokens
    ):
        raise UserError(
            f"deployment {deployment.name!r} takes no audio and template_tokens is 0, so a frame would feed "
            "nothing; set template_tokens to 1 or more."
        )
    if token(config.token_env) is None and not config.insecure and not is_loopback(config.host):
        raise UserError(
            f"host {config.host} is open to other machines, and there is no token; name the environment variable "
            "of one with --token-env, or add --insecure."
        )


def parameters(config: ServeConfig) -> tuple[BaseModel, ServerParams]:
    """Return the engine's parameters and the server's. UserError for an unknown engine or setting. A real device serves
    `SMALL_DEPLOYMENT` unless another is set."""
    if config.engine not in ENGINES:
        raise UserError(f"unknown engine {config.engine!r}.{nearest(config.engine, ENGINES)}")
    settings = dict(config.settings)
    system = ENGINES[config.engine]
    engine_fields = system.fields(settings)
    fields = {**engine_fields, **ServerParams.model_fields}
    for name in settings:
        if name not in fields:
            having = owners(name)
            if having:
                raise UserError(
                    f"{name} is a parameter of {' and of '.join(having)}, which {config.engine} does not have; set "
                    "that too."
                )
            raise UserError(f"unknown parameter {name!r} for {config.engine}.{nearest(name, fields)}")
    if config.device in REAL_DEVICES:
        settings.setdefault("deployment", SMALL_DEPLOYMENT)
    engine_params = system.read({name: value for name, value in settings.items() if name in engine_fields})
    system.check(engine_params)
    server = {name: value for name, value in settings.items() if name not in engine_fields}
    params = validate(ServerParams, server, "server parameters")
    stated = stated_defaults(load_deployment(params.deployment))
    for name, reason in system.unused(engine_params).items():
        default = ServerParams.model_fields[name].default
        if config.settings.get(name, default) not in (default, stated.get(name)):
            raise UserError(f"{name} is set and changes nothing: {reason}; leave it out.")
    return engine_params, params


def token(token_env: str | None) -> str | None:
    """Return the token that clients must send; None: none. UserError when the variable that should hold it is empty."""
    if token_env is None:
        return None
    value = os.environ.get(token_env, "")
    if not value or not value.isascii() or not value.isprintable() or value != value.strip():
        wrong = "is not set" if not value else "has a character that a header cannot hold"
        raise UserError(f"--token-env {token_env}: the variable {wrong}; export {token_env}=TOKEN.")
    return value


def profile(config: ServeConfig, server: ServerParams, deployment: Deployment) -> dict[str, Any] | None:
    """Return the profile that the modelled device replays with: the given one, or the deployment's own."""
    if config.profile is not None:
        return config.profile
    shipped = profile_of(None, None, config.device, server, deployment)
    return None if shipped is None else shipped.model_dump(mode="json")
