"""`rehearse live` through a proxy and a gateway, with certificates of an authority of one's own."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.live.null_server.null_server import NullServer
from harness.live.run import measure_live
from harness.records.record import load_record
from tests.conftest import Rehearse
from tests.live.gateways import Authority, Gateway, Proxy, in_a_thread, listening, server_tls

HOST, KEY, PASSWORD = "llm.test", "key-not-to-be-kept", "password-not-to-be-kept"
LOOSE = ("--set", "send_delay_limit_ms=10000")
SHORT = ("--set", "max_reply_tokens=4")
LOAD = ("--sessions", "2", "--duration", "3", *LOOSE, *SHORT)
Behind = tuple[str, Proxy, Gateway, Path]
VOICE = ("--workload", "voice", "--set", "utterance_s=0.5", "--set", "turns=1")


@pytest.fixture(params=["text", pytest.param("voice", marks=pytest.mark.slow("calls in real time"))])
def behind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behind]:
    """The url of a server of text or voice that is behind all of it, and the file of its authority."""
    monkeypatch.setattr(measure_live, "cached_floor", lambda *_: {})
    for name in ("HTTP_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    own = tmp_path / "certificates"
    own.mkdir()
    authority = Authority(own)
    with NullServer(request.param, own) as server:
        gateway = Gateway(urlsplit(server.url).port or 0, "/team-a", {"api-key": KEY})
        tls = server_tls(authority.certificate(HOST))
        with in_a_thread(listening(gateway, tls)) as port:
            proxy = Proxy({HOST: port})
            with in_a_thread(listening(proxy)) as proxy.port:
                monkeypatch.setenv("HTTPS_PROXY", f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}")
                scheme, path = ("https", "v1") if request.param == "text" else ("wss", "v1/realtime")
                yield f"{scheme}://{HOST}/team-a/{path}", proxy, gateway, authority.ca


def test_a_run_keeps_no_secret(rehearse: Rehearse, behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    url, proxy, gateway, ca = behind
    kind = VOICE if url.startswith("wss") else ()
    monkeypatch.setenv("LLM_KEY", KEY)
    status, out, err = rehearse(
        "live", url, "--ca", str(ca), "--header", "api-key: ${LLM_KEY}", *LOAD, *kind, "--out", "out"
    )
    assert status in (0, 1, 3), out + err  # what a few turns on a busy machine decide is not the matter here
    assert f"through the proxy http://127.0.0.1:{proxy.port}" in " ".join(out.split())
    assert {first for first, _ in proxy.asked} == {f"CONNECT {HOST}:443 HTTP/1.1"}
    assert all(authorization for _, authorization in proxy.asked)
    assert "/team-a/metrics" in gateway.paths or url.startswith("wss")
    (folder,) = (Path("out") / "points").iterdir()
    record = load_record(folder)
    assert len(record.table("requests")) and not len(record.table("failures")), out + err
    kept = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert kept
    for secret in (KEY, PASSWORD):
        assert secret not in out + err
        assert [path for path, content in kept.items() if secret.encode() in content] == []


def test_a_secret_of_the_command_line_is_not_kept(rehearse: Rehearse, behind: Behind) -> None:
    url, proxy, _, ca = behind
    status, out, err = rehearse(
        "live", url, "--ca", str(ca), "--header", f"api-key: {KEY}", *LOAD, "--dry-run", "--out", "plan"
    )
    assert status == 0, err
    assert f"through the proxy http://127.0.0.1:{proxy.port}" in out and f"authorities in {ca}" in out
    text = out + err + "".join(path.read_text() for path in Path("plan").rglob("*") if path.is_file())
    assert KEY not in text and PASSWORD not in text


def test_what_is_wrong_on_the_way_is_said_in_a_sentence(rehearse: Rehearse, behind: Behind, tmp_path: Path) -> None:
    url, proxy, _, ca = behind

    def refused(*options: Path | str) -> str:
        status, _, err = rehearse("live", url, "--header", f"api-key: {KEY}", *map(str, options), *LOAD)
        assert status == 2, err
        return err

    assert "is not accepted (unable to get local issuer certificate); give its authority with --ca" in refused()
    assert "is not accepted" in refused("--ca", Authority(tmp_path, "other").ca)
    missing = tmp_path / "missing.pem"
    assert f"--ca {missing} has no certificates in PEM format" in refused("--ca", missing)
    proxy.refuses = "407 Proxy Authentication Required"
    sentence = refused("--ca", ca)
    assert "refuses the connection (407 Proxy Authentication Required); correct HTTPS_PROXY" in sentence
    assert PASSWORD not in sentence
