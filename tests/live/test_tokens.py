"""Tokens and keys are sent to their own server and nowhere else."""

from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.live.endpoints.mixed_endpoint import text_target
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.connect_diagnosis import asked
from harness.live.live_experiment import live_experiment
from tests.builders import refused, say, web_server
from tests.live.test_preflight import STREAM, look

KEY, TOKEN, MINE = "key-of-openai", "token-of-rehearsal", "token-of-mine"


@pytest.fixture(autouse=True)
def exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's shell."""
    monkeypatch.delenv("REHEARSAL_TOKEN", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MINE", MINE)


def test_no_key_of_openai_is_sent_and_no_redirect_is_followed_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    target: list[str | None] = []
    thief: list[str | None] = []

    def send_away(request: BaseHTTPRequestHandler) -> None:
        target.append(request.headers["Authorization"])
        request.send_response(302)
        request.send_header("Location", f"http://{elsewhere}/steal")
        request.end_headers()

    def reply(request: BaseHTTPRequestHandler) -> None:
        target.append(request.headers["Authorization"])
        request.rfile.read(int(request.headers["Content-Length"]))
        say(request, STREAM)

    steal = web_server(lambda request: thief.append(request.headers["Authorization"]))
    with steal as elsewhere, web_server(send_away, reply) as address:
        look(f"http://{address}/v1", dialect="text")
        assert set(target) == {None}, "the key of OpenAI is for OpenAI"
        target.clear()
        monkeypatch.setenv("REHEARSAL_TOKEN", TOKEN)
        look(f"http://{address}/v1", dialect="text")
        answer = asked(f"http://{address}/v1", False, "/v1/models", {"Authorization": "Bearer x"})
    assert set(target) == {f"Bearer {TOKEN}", "Bearer x"} and thief == []
    assert answer is not None and answer.status == 302


OWN = ("wss://api.openai.com/v1/realtime", "https://api.openai.com/v1", "https://EU.api.OpenAI.com/v1")
OTHERS = (
    "ws://api.openai.com/v1/realtime",
    "http://api.openai.com/v1",
    "https://openai.com/v1",
    "https://notopenai.com/v1",
    "https://api.openai.com.example.org/v1",
    "https://example.org/api.openai.com/v1",
    "https://example.org?.openai.com",
    "https://mine.openai.azure.com/openai/v1",
)


@pytest.mark.parametrize("url", OWN + OTHERS)
def test_only_openai_s_own_urls_get_its_key_by_default(url: str) -> None:
    sent = {"Authorization": f"Bearer {KEY}"} if url in OWN else {}
    assert TargetParams.model_validate({"url": url}).request_headers() == sent


@given(
    st.from_regex(r"(wss?|https?)://[a-z0-9.-]{1,20}(:[1-9][0-9]{0,3})?(/[a-z.]{0,12})?", fullmatch=True)
    | st.from_regex(r"(wss|https)://[a-z.-]{0,6}openai\.?com(\.[a-z]{2,9})?(:443)?(/\.openai\.com)?", fullmatch=True)
)
def test_another_host_gets_the_openai_key_only_by_token_env(url: str) -> None:
    host = url.partition("//")[2].partition("/")[0].partition(":")[0]
    is_openai = host.endswith(".openai.com") and url.startswith(("https", "wss"))
    target = TargetParams.model_construct(url=url)
    assert (target.token() == KEY) is is_openai and target.token_name() in ("OPENAI_API_KEY", None)
    named = target.model_copy(update={"token_env": "OPENAI_API_KEY"})
    assert named.request_headers() == {"Authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("url", "scrape", "shown"),
    [
        ("ws://h:8000/v1/realtime", "http://h:8000/metrics", True),
        ("wss://h/v1/realtime", "https://h:443/metrics", True),
        ("https://h/v1", "https://H/metrics", True),
        ("wss://h:8000/v1/realtime", "http://h:8000/metrics", False),
        ("http://h:8000/v1", "http://h:9090/metrics", False),
        ("http://h:8000/v1", "http://other:8000/metrics", False),
    ],
)
def test_metrics_get_the_token_at_the_target_s_own_origin_alone(
    url: str, scrape: str, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REHEARSAL_TOKEN", TOKEN)
    for name, value in (("MINE", MINE), (None, TOKEN)):
        target = TargetParams.model_validate({"url": url, "scrape": scrape, "token_env": name})
        assert target.scrape_token() == (value if shown else None)


@pytest.mark.parametrize(
    ("url", "other", "shown"),
    [
        ("ws://h:8091/v1/realtime", "http://h:8000/v1", MINE),
        ("wss://h/v1/realtime", "https://h:8443/v1", MINE),
        ("wss://h/v1/realtime", "http://h:8000/v1", TOKEN),
        ("wss://h/v1/realtime", "https://other/v1", TOKEN),
        ("ws://h/v1/realtime", "https://api.openai.com/v1", TOKEN),
    ],
)
def test_token_env_is_for_the_url_s_host_and_text_url_elsewhere_has_the_default(
    url: str, other: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetParams.model_validate({"url": url, "token_env": "MINE", "text_url": other})
    second = text_target(target)
    monkeypatch.setenv("REHEARSAL_TOKEN", TOKEN)
    assert (target.token(), second.token()) == (MINE, shown)
    monkeypatch.delenv("REHEARSAL_TOKEN")
    openai = KEY if "openai" in other else None
    assert second.token() == (MINE if shown == MINE else openai)


@pytest.mark.parametrize("name", ["text_url", "scrape"])
def test_a_password_in_any_url_of_a_run_is_a_usage_error(name: str) -> None:
    target = {"url": "ws://h/v1/realtime", name: "http://user:S3CRET@h/v1"}
    with refused("the url holds a secret (user or password)") as excinfo:
        live_experiment(target, {}, {1: (1, None)})
    assert "S3CRET" not in str(excinfo.value)
