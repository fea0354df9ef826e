"""`rehearse live` against a server whose times are known: the verdict, its exit status, and what keeps them."""

import json
from pathlib import Path

import pytest

from harness.null_server.null_server import NullServer
from tests.conftest import Rehearse

pytestmark = pytest.mark.usefixtures("unrendered", "no_floor")
FIRST_S = 0.05


def test_a_text_server_passes_fails_and_is_not_called_long_enough(rehearse: Rehearse, tmp_path: Path) -> None:
    def live(*arguments: str) -> tuple[int, str]:
        """Exit status and stdout; the generator may be as late as this machine makes it."""
        return rehearse("live", "--set", "slip_limit_ms=5000", *arguments)[:2]

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
