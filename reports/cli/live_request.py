"""The options of `rehearse live` that shape requests, as parameters of a target."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workloads.errors import UserError, printable, unknown


def shape(
    preset: str | None, extra_body: str | None, headers: Sequence[str], body_names: Sequence[str], session: Path | None
) -> dict[str, Any]:
    """Return the parameters that are set. UserError for text that is none of its option's."""
    from harness.live.endpoints.request_shape import PRESETS

    if preset is not None and preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    given = {
        "extra_body": None if extra_body is None else _object("--extra-body", extra_body),
        "headers": dict(map(_header, headers)),
        "body_names": dict(map(_name, body_names)),
        "session": None if session is None else _session(session),
    }
    preset_names = PRESETS.get(preset or "", {})
    return {
        name: {**preset_names.get(name, {}), **(value or {})}
        for name, value in given.items()
        if value or name in preset_names
    }


def _header(text: str) -> tuple[str, str]:
    """Return name and value. A secret as it stands goes to the environment of this process, where the load generators
    find it, and the value names it there."""
    from harness.live.endpoints.request_shape import holds_secret

    name, colon, value = (part.strip() for part in text.partition(":"))
    if not name or not colon or not value:
        raise UserError("--header is not 'NAME: VALUE'; write for example --header 'x-route: blue'.")
    if not holds_secret(name, value):
        return name, value
    variable = "REHEARSAL_HEADER_" + re.sub("[^A-Za-z0-9]", "_", name).upper()
    os.environ[variable] = value
    return name, f"${{{variable}}}"


def _name(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not old or not equals or not new:
        raise UserError(f"--body-name {printable(text, 60)} is not FIELD=NAME; write max_tokens=max_completion_tokens.")
    return old, new


def _object(option: str, text: str) -> dict[str, Any]:
    """Return the object of JSON in `text`, or in the file of that name."""
    from workloads.files.json_file import parse, read_document

    if text.lstrip().startswith("{"):
        try:
            value = parse(text)
        except ValueError as error:
            raise UserError(f"{option} is not JSON ({error}); write for example '{{\"temperature\": 0}}'.") from None
    else:
        value = read_document(text)
    if not isinstance(value, dict):
        raise UserError(f'{option} {printable(text, 60)} is no JSON object; write its fields as {{"NAME": VALUE}}.')
    return value


def _session(path: Path) -> dict[str, Any]:
    """Return the fields of a session: of the file, or of the session.update in it."""
    value = _object("--session", str(path))
    return value["session"] if isinstance(value.get("session"), dict) else value
