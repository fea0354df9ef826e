"""`rehearse live` against a server whose times are known: the verdict, its exit status, and what keeps them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.live.run import measure_live as live_measure
from harness.null_server.null_server import NullServer
from tests.conftest import Rehearse

pytestmark = pytest.mark.usefixtures("unrendered")
FIRST_S = 0.05


@pytest.fixture
def live(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Exit status and stdout of a run; the generator may be as late as this machine makes it."""
    monkeypatch.setattr(live_measure, "_floor_of", lambda *_: {})
    return lambda *arguments: rehearse("live", "--set", "slip_limit_ms=5000", *arguments)[:2]


def test_a_text_server_passes_fails_and_is_not_called_long_enough(
    live: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    with NullServer("text", tmp_path / "null", "--first-s", str(FIRST_S)) as server:
        url = server.url if server.url.startswith("http") else f"http://{server.url.partition('//')[2]}"
        many = (url, "--rate", "25", "--duration", "3", "--out", "many")
        status, out = live(*many, "--slo", "ttft_p90<=9s", "--price", "3")
        first = out.splitlines()[0]
        assert status == 0 and first.startswith(f"PASS: {url} holds 25 requests a second: P90 TTFT "), out
        assert "price a" in out
        kept = json.loads(Path("many/verdict.json").read_text())
        (target,) = kept["loads"][0]["targets"]
        assert kept["verdict"] == target["verdict"] == "PASS" and target["n"] >= 36
        low, high = target["interval"]
        assert FIRST_S <= low <= target["value"] <= high <= 9

        # Another target takes what is there; so does the report, by what was asked last.
        status, out = live(*many, "--slo", f"ttft_p90<={1000 * FIRST_S - 20:g}ms")
        first = out.splitlines()[0]
        assert status == 1 and first.startswith(f"FAIL: {url} does not hold 25 requests a second: "), out
        assert first.endswith(" ms, not ≤ 30 ms.") and first in Path("many/report.html").read_text()

        few = (url, "--rate", "4", "--duration", "1", "--out", "few")
        status, out = live(*few)
        assert status == 3 and "where a P90 takes 36" in out.splitlines()[0], out
        assert "is the default for text" in out and "Further turns like these would decide it" in out


def test_a_generator_that_is_late_leaves_it_open(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(live_measure, "_floor_of", lambda *_: {})
    with NullServer("text", tmp_path / "null", "--first-s", str(FIRST_S)) as server:
        late = (server.url, "--rate", "4", "--duration", "1", "--set", "slip_limit_ms=0.0001")
        status, out, _ = rehearse("live", *late, "--json")
    told = json.loads(out)
    assert status == 3 and told["verdict"] == "INCONCLUSIVE" and told["holds"] is None
    assert told["loads"][0]["lost"][0].startswith("INVALID: the P99 of the send slip is ")
