"""Options that change requests: fields, headers and the session; no secret among them is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.live.endpoints.dialects import dialect_of, for_open_microphone
from harness.live.endpoints.synthesis_endpoint import request_body as speech_body
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.text_endpoint import request_body
from harness.live.live_experiment import asked, live_experiment
from reports.cli.live_request import shape
from workloads.errors import UserError, validate

HTTP, WS = "http://h/v1", "ws://h/v1/realtime"
KEY = "sk-not-to-be-kept"


def target(url: str = HTTP, **params: Any) -> TargetParams:
    return validate(TargetParams, {"url": url, **params}, "live")


def shaped(**options: Any) -> dict[str, Any]:
    none = {"preset": None, "extra_body": None, "headers": (), "body_names": (), "session": None}
    return shape(**{**none, **options})


def body(**params: Any) -> dict[str, Any]:
    return json.loads(request_body([b"{}"], 8, target(**params)))


def test_body_options_add_rename_and_leave_out_fields(tmp_path: Path) -> None:
    added = body(**shaped(extra_body='{"temperature": 0.5, "stream_options": null}'))
    assert added == {"messages": [{}], "max_tokens": 8, "stream": True, "temperature": 0.5}
    renamed = body(**shaped(body_names=("max_tokens=max_completion_tokens",)))
    assert renamed["max_completion_tokens"] == 8 and "max_tokens" not in renamed
    assert body(**shaped(preset="openai_reasoning")) == renamed
    file = tmp_path / "body.json"
    file.write_text('{"seed": 7}')
    assert body(**shaped(extra_body=str(file)))["seed"] == 7
    speech = target("http://h/v1/audio/speech", extra_body={"instructions": "calm"})
    assert json.loads(speech_body("hello", speech))["instructions"] == "calm"


def test_a_header_is_sent_with_its_environment_variable_which_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", KEY)
    one = target(headers={"x-route": "blue", "api-key": "${MINE}"}, token_env="MINE")
    assert one.request_headers() == {"Authorization": f"Bearer {KEY}", "x-route": "blue", "api-key": KEY}
    assert KEY not in one.model_dump_json()
    own = target(headers={"authorization": "Basic ${MINE}"}, token_env="MINE")
    assert own.request_headers() == {"authorization": f"Basic {KEY}"}
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    assert target(**shaped(preset="azure")).request_headers() == {"api-key": KEY}


@pytest.mark.parametrize("header", ["api-key: plain", "Authorization: Basic abc", f"x-other: {KEY}", "Cookie: a=b"])
def test_a_secret_in_a_header_option_is_moved_to_the_environment(header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})
    params, value = shaped(headers=(header,)), header.split(": ")[1]
    assert list(target(**params).request_headers().values()) == [value]
    experiment = live_experiment({"url": HTTP, **params}, {}, {2.0: (5.0, None)})
    assert "--header '" in asked(experiment)
    assert value not in asked(experiment) + experiment.model_dump_json()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"headers": {"api-key": KEY}}, "header 'api-key' holds a secret"),
        ({"headers": {"x a": KEY}}, "no header can have"),
        ({"headers": {"x": "a\r\nb"}}, "no header can have"),
        ({"headers": {"Content-Length": "1"}}, "set by the transport"),
        ({"extra_body": {"a": [{"b": KEY}]}}, "extra_body holds what looks like a key"),
        ({"session": {}}, "session is for a ws"),
        ({"url": WS, "extra_body": {}}, "extra_body is for an http"),
    ],
)
def test_a_field_that_cannot_be_sent_or_kept_is_a_usage_error_without_its_value(
    params: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words) as error:
        target(**params)
    assert KEY not in str(error.value)


def test_a_header_with_an_unset_variable_names_the_variable() -> None:
    with pytest.raises(UserError, match="'api-key' takes the environment variable NOBODY_SETS"):
        target(headers={"api-key": "${NOBODY_SETS}"}).request_headers()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"headers": ("x-route",)}, "--header is not 'NAME: VALUE'"),
        ({"body_names": ("max_tokens",)}, "is not FIELD=NAME"),
        ({"extra_body": "{1}"}, "--extra-body is not JSON"),
        ({"preset": "other"}, "openai_reasoning"),
    ],
)
def test_a_malformed_option_is_a_usage_error(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        shaped(**options)


INSTRUCTIONS = {"instructions": "be brief", "audio": {"output": {"voice": "ash"}}}


@pytest.mark.parametrize("file", [INSTRUCTIONS, {"type": "session.update", "session": INSTRUCTIONS}])
def test_session_fields_are_merged_at_every_depth(tmp_path: Path, file: dict[str, Any]) -> None:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(file))
    plain, own = (
        json.loads(dialect_of(target(WS, dialect="openai", **more)).opening()[0])["session"]
        for more in ({}, shaped(session=path))
    )
    assert own.pop("instructions") == "be brief"
    assert own["audio"]["output"].pop("voice") == "ash"
    assert own == plain


def test_an_open_microphone_needs_a_dialect_whose_servers_detect_ends_of_turns() -> None:
    with pytest.raises(UserError, match=r"do not detect the ends of turns; use a server with dialect .*or workload"):
        for_open_microphone(target(WS, dialect="vllm", model="m"))
