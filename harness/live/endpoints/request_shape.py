"""The user's own part of requests: fields of bodies, headers, fields of sessions.

A header's value may name environment variables, as `${NAME}`: they are filled in when the request is made, and records
keep the name alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from workloads.errors import UserError, printable

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name. [config: RFC 9110]"""
_OURS = re.compile("host|content-.*|transfer-encoding|connection|upgrade|sec-websocket-.*", re.IGNORECASE)
"""Headers that the transport sets."""
_SECRET = re.compile(
    "key|token|secret|passw|pwd|signature|credential|bearer|jwt|cookie|"
    "^(.*[-_.])?(sig|sas|auth|authorization|pass|ticket|code)$"
)
"""Names of query parameters and headers that hold one. [chosen]"""
_SECRET_VALUE = re.compile(
    "(sk|pk|rk)[-_]|eyJ|AIza|hf_|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|(Bearer|Basic) "
)
"""Common first letters of keys and tokens. [chosen]"""
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "openai_reasoning": {"body_names": {"max_tokens": "max_completion_tokens"}},
    "azure": {"headers": {"api-key": "${AZURE_OPENAI_API_KEY}"}},
}
"""Parameters of targets by the preset that sets them: OpenAI's reasoning models, and Azure's header. [config]"""


def names_secret(name: str) -> bool:
    """Return whether a query parameter or header of this name holds a secret."""
    return _SECRET.search(name.lower()) is not None


def is_secret(value: str) -> bool:
    """Return whether a text begins as keys and tokens do."""
    return _SECRET_VALUE.match(value) is not None


def holds_secret(name: str, value: str) -> bool:
    """Return whether a header has a secret as it stands, which a record would keep."""
    return not _VARIABLE.search(value) and (names_secret(name) or is_secret(value))


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise UserError for a header that cannot be sent or kept. The sentence does not repeat its value."""
    for name, value in headers.items():
        shown = printable(name, 40)
        if not _NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise UserError(f"header {shown!r} has characters that no header can have; correct it.")
        if _OURS.fullmatch(name):
            raise UserError(f"header {shown!r} is set by the transport; leave it out.")
        if holds_secret(name, value):
            raise UserError(
                f"header {shown!r} holds a secret, and records keep headers; put it into an environment variable NAME "
                "and write ${NAME} in its place."
            )


def filled_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with the values of environment variables. UserError for a variable that is not set, or whose
    value a header cannot hold."""
    return {name: _VARIABLE.sub(partial(_value, name), text) for name, text in headers.items()}


def _value(header: str, named: re.Match[str]) -> str:
    variable = named[1]
    value = os.environ.get(variable)
    if not value:
        raise UserError(f"header {header!r} takes the environment variable {variable}, which is not set; set it.")
    return sendable(variable, value)


def sendable(name: str, value: str) -> str:
    """Return `value`. UserError, which does not repeat it, for a value that a header cannot hold."""
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise UserError(
            f"the environment variable {name} has a character that a header cannot hold, such as a line break; export "
            "it again without."
        )
    return value


def check_body(body: Mapping[str, Any], name: str) -> None:
    """Raise UserError where a text in it begins as keys do: records keep it. `name`: its parameter."""
    pending: list[Any] = [body]
    for value in pending:  # which grows meanwhile
        if isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and is_secret(value):
            raise UserError(f"{name} holds what looks like a key, and records keep it; send it as a header.")


def shaped(options: dict[str, Any], names: Mapping[str, str] | None, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a body: with other `names`, and with `extra` fields, and a field is left out by None."""
    if names:
        options = {names.get(name, name): value for name, value in options.items()}
    if extra:
        options = {name: value for name, value in {**options, **extra}.items() if value is not None}
    return options


def merged(fields: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fields` with `extra` at every depth; what is not an object is replaced."""
    both = dict(fields)
    for name, value in extra.items():
        old = both.get(name)
        both[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both
