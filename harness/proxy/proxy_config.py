"""Configuration of a proxy: the servers behind it, and its rule of routing."""

import importlib.util
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from engines.composition import Routing
from engines.registry import ROUTINGS
from harness.serving.serve_config import check_entrance
from workloads.errors import UserError, nearest, validate
from workloads.optional import install_command

LIBRARIES = ("aiohttp", "prometheus_client", "uvloop")


class ProxyConfig(BaseModel):
    """The configuration of a proxy; `check` it before use. It holds no secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    urls: tuple[str, ...] = Field(
        description="servers, each http(s)://HOST:PORT, a path in front of /v1 included"
    )
    router: str = Field("omniproxy", description="rule by which a server is chosen")
    settings: dict[str, Any] = Field(default_factory=dict, description="parameters of the rule")
    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535, description="0: any free one")
    max_in_flight: int | None = Field(
        None, ge=1, description="requests at one server; others wait at the proxy; default: no limit"
    )
    drain_s: float = Field(30, ge=0, description="after SIGTERM, for what is under way to be finished, s")
    token_env: str | None = Field(None, description="environment variable with the token that clients show")
    insecure: bool = Field(False, description="let other machines in without a token")


def check(config: ProxyConfig) -> None:
    """Raise UserError when `config` names something impossible, or would be open to other machines without a token."""
    check_router(config.router)
    rule(config)
    if not config.urls:
        raise UserError(
            "a proxy needs a server behind it; name the url of one, such as http://127.0.0.1:8000."
        )
    for url in config.urls:
        try:
            parts = urlsplit(url)
            complete = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            complete = False
        if not complete:
            raise UserError(f"url {url!r} is not a server's address; write http://HOST:PORT.")
    twice = [url for url in config.urls if config.urls.count(url) > 1]
    if twice:
        raise UserError(f"url {twice[0]} is given twice; name each server once.")
    check_entrance(config.host, config.token_env, config.insecure)


def check_router(router: str) -> None:
    """Raise UserError for an unknown rule, or a machine without the packages of a proxy."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"a proxy needs {', '.join(missing)}; run {install_command('live')}.")
    if router not in ROUTINGS:
        raise UserError(f"unknown router {router!r}.{nearest(router, ROUTINGS)}")


def rule(config: ProxyConfig) -> Routing:
    """Return the rule with its parameters. UserError for an unknown parameter or a value that it does not take."""
    routing, values = ROUTINGS[config.router], config.settings
    known = routing.Params.model_fields
    for name in values:
        if name not in known:
            own = nearest(name, known) if known else " It has none; leave it out."
            raise UserError(f"router {config.router}: unknown parameter {name!r}.{own}")
    return routing.given(dict(validate(routing.Params, values, f"router {config.router}")))
