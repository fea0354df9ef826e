"""The route to a server: proxies of the environment, Unix sockets, and certificates."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.connect_diagnosis import client_certificate_fault
from harness.live.endpoints.transport.get import get
from harness.live.endpoints.transport.http import HttpPool
from harness.live.endpoints.transport.route import Route, proxy_of
from harness.live.endpoints.transport.websocket import ConnectFailed, connect
from harness.live.live_experiment import by_environment
from harness.live.run.preflight import asked_path, check_answers
from tests.builders import refused, say, web_server
from tests.live.gateways import Authority, Proxy, Socks, in_a_thread, listening, server_tls
from tests.live.receivers import Receiver, Stream
from tests.waiting import in_a_loop
from workloads.errors import UserError, validate

Environment = Callable[..., None]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Sets these variables, and no other of proxies."""

    def put(**values: str) -> None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
            monkeypatch.delenv(name.lower(), raising=False)
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


def target(**params: str | bool) -> TargetParams:
    return validate(TargetParams, params, "live")


class Hello:
    """A server that answers any request over HTTP, and a WebSocket's handshake with an error."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 404 Hello\r\nContent-Length: 2\r\n\r\nhi")


hello = partial(listening, Hello())


async def status(url: str, route: Route) -> tuple[int | None, int | None, int]:
    """The status of a POST, of a handshake and of a GET by `route`."""
    answer, pool = Stream(), HttpPool(url, route=route)
    pool.post(b"", answer)
    async with asyncio.timeout(20):
        await answer.ended.wait()
    await pool.aclose()
    with pytest.raises(ConnectFailed) as handshake:
        await connect(url.replace("http", "ws", 1), Receiver(), timeout_s=20, route=route)
    got = await asyncio.to_thread(get, url, timeout_s=20, most_bytes=10, route=route)
    return answer.code, handshake.value.status, got.status


@in_a_loop
async def test_all_transports_go_by_a_unix_socket_and_through_a_proxy(tmp_path: Path, environment: Environment) -> None:
    authority = Authority(tmp_path)
    tls, ca, path = server_tls(authority.certificate("llm.test")), str(authority.ca), tmp_path / "socket"
    environment()
    async with hello(path=path):
        assert await status("http://localhost/v1", Route(unix_socket=str(path))) == (404, 404, 404)
    async with hello(tls, path=path):
        assert await status("https://llm.test/v1", Route(ca, unix_socket=str(path))) == (404, 404, 404)
    async with hello(tls) as port, hello() as plain:
        proxy = Proxy({"llm.test": port, "plain.test": plain})
        async with listening(proxy) as proxy_port:
            address = f"http://127.0.0.1:{proxy_port}"
            environment(ALL_PROXY=f"http://me:pass%20word@127.0.0.1:{proxy_port}")
            assert await status("https://llm.test/v1", Route(ca, proxy=address)) == (404, 404, 404)
            assert await status("http://plain.test:8000/v1", Route(proxy=address)) == (404, 404, 404)
    assert {first for first, _ in proxy.asked} == {"CONNECT llm.test:443 HTTP/1.1", "CONNECT plain.test:8000 HTTP/1.1"}
    assert {sent for _, sent in proxy.asked} == {"Basic bWU6cGFzcyB3b3Jk"}  # me:pass word


@in_a_loop
async def test_a_socks_proxy_gets_the_host_name() -> None:
    async with hello() as port:
        proxy = Socks({"llm.test": port})
        async with listening(proxy) as proxy_port:
            route = Route(proxy=f"socks5://127.0.0.1:{proxy_port}")
            assert await status("http://llm.test:8000/v1", route) == (404, 404, 404)
    assert {*proxy.asked} == {("llm.test", 8000)}


EXCEPT = {"HTTPS_PROXY": "http://me:secret@proxy:3128", "NO_PROXY": "inner.test, .pod,10.0.0.0/8,other.test:8443"}


@pytest.mark.parametrize(
    ("variables", "urls", "proxy"),
    [
        (EXCEPT, ["https://llm.test/v1", "wss://llm.test:8443/x", "https://other.test/v1"], "http://proxy:3128"),
        (EXCEPT, ["https://11.0.0.1/v1", "https://9.255.255.255/v1"], "http://proxy:3128"),
        (EXCEPT, ["http://llm.test/v1", "https://localhost/v1", "https://127.0.0.1/v1", "https://[::1]/v1"], None),
        (EXCEPT, ["wss://inner.test/v1", "wss://a.inner.test/v1", "wss://a.pod/v1"], None),
        (EXCEPT, ["https://10.0.0.0/v1", "https://10.255.255.255/v1", "wss://other.test:8443/v1"], None),
        ({"ALL_PROXY": "socks5h://proxy", "NO_PROXY": ""}, ["ws://llm.test/v1"], "socks5://proxy:1080"),
        ({"HTTP_PROXY": "proxy:3128"}, ["http://llm.test/v1"], "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "*"}, ["https://llm.test/v1"], None),
    ],
)
def test_the_proxy_is_read_from_the_environment(
    variables: dict[str, str], urls: list[str], proxy: str | None, environment: Environment
) -> None:
    environment(**variables)
    assert {url: proxy_of(url) for url in urls} == dict.fromkeys(urls, proxy)


def test_a_proxy_is_recorded_without_its_password(environment: Environment) -> None:
    environment(HTTPS_PROXY="http://me:secret@proxy:3128", NO_PROXY="inner.test")
    url = {"url": "https://llm.test/v1"}
    assert by_environment(url, {}) == {**url, "proxy": "http://proxy:3128"}
    assert by_environment(url, {"proxy": "http://other:1"}) == url
    assert by_environment({**url, "unix_socket": "s"}, {}) == {**url, "unix_socket": "s"}
    with refused("name both hosts in NO_PROXY, or one proxy for both"):
        by_environment({"url": "wss://llm.test/v1/realtime", "text_url": "https://inner.test/v1"}, {})
    environment(HTTPS_PROXY="https://me:secret@proxy:3128")
    with refused("write http or socks5://HOST:PORT") as error:
        by_environment(url, {})
    assert "secret" not in str(error.value)
    with refused("without user and password; export HTTPS_PROXY") as error:
        target(**url, proxy="http://me:secret@proxy:3128")
    assert "secret" not in str(error.value)


def test_each_fault_of_a_server_certificate_has_its_fix(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ca = str(authority.ca)

    def fault(certificate: Path, **params: str | bool) -> str:
        with in_a_thread(hello(server_tls(certificate))) as port:
            url = f"https://127.0.0.1:{port}/v1"
            try:
                check_answers(target(url=url, **params))
            except UserError as error:
                return str(error)
        return ""

    good, other = authority.certificate("127.0.0.1"), authority.certificate("other.test")
    expired = authority.certificate("127.0.0.1", expired_days=3)
    assert fault(good, ca=ca) == fault(expired, insecure=True) == ""
    assert "give its authority with --ca FILE" in fault(good)
    assert "(certificate has expired); renew it" in fault(expired, ca=ca)
    assert "give a name that it is for as the host of the url" in fault(other, ca=ca)
    assert "no certificates in PEM format" in fault(good, ca=str(tmp_path / "socket"))


def test_a_server_that_wants_a_client_certificate_gets_it(tmp_path: Path) -> None:
    authority, others = Authority(tmp_path), Authority(tmp_path, "others")
    mine, stranger = authority.certificate("client"), others.certificate("stranger")
    tls = server_tls(authority.certificate("127.0.0.1"), clients=authority.ca)
    with web_server(lambda asked: say(asked, "hi"), wrap=partial(tls.wrap_socket, server_side=True)) as address:
        url = f"https://{address}/v1"

        def fault(**params: str) -> str | None:
            return client_certificate_fault(url, target(url=url, ca=str(authority.ca), **params).route())

        assert fault(client_cert=str(mine)) is None
        assert "give it with --client-cert FILE and --client-key FILE" in str(fault())
        assert f"refuses the client's certificate in {stranger}" in str(fault(client_cert=str(stranger)))
        with pytest.raises(UserError, match="are no certificate and its key"):
            fault(client_cert=str(authority.ca))


def test_a_missing_unix_socket_or_proxy_is_named(tmp_path: Path, environment: Environment) -> None:
    environment()
    with pytest.raises(UserError, match=r"the Unix socket .*gone \(No such file or directory\)"):
        check_answers(target(url="http://localhost/v1", unix_socket=str(tmp_path / "gone")))
    with pytest.raises(UserError, match=r"the proxy http://127\.0\.0\.1:9 does not answer; correct HTTPS_PROXY"):
        check_answers(target(url="https://llm.test/v1", proxy="http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("params", "fix"),
    [
        ({"client_key": "k"}, "client_key is the key of client_cert"),
        ({"insecure": True, "ca": "c"}, "leave one of them out"),
        ({"unix_socket": "s", "proxy": "http://p:1"}, "two ways to one host"),
    ],
)
def test_contradicting_options_are_a_usage_error(params: dict[str, Any], fix: str) -> None:
    with refused(fix):
        target(url="https://llm.test/v1", **params)


@pytest.mark.parametrize(
    ("path", "metrics"),
    [("/v1", "/metrics"), ("/team-a/v1/realtime", "/team-a/metrics"), ("/ws", "/metrics"), ("", "/metrics")],
)
def test_the_metrics_path_keeps_the_prefix_of_a_gateway(path: str, metrics: str) -> None:
    assert asked_path(f"https://gateway{path}", "metrics") == metrics
