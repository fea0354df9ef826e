"""`rehearse live` against a server whose times are known: the verdict and its exit status."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.live.null_server.null_server import NullServer
from tests.conftest import Rehearse

pytestmark = pytest.mark.usefixtures("unrendered", "no_floor")
FIRST_S = 0.05


@pytest.mark.slow("calls in real time")
def test_a_limit_of_users_at_once_is_reported_with_the_users_who_waited_and_the_goodput(
    rehearse: Rehearse, tmp_path: Path
) -> None:
    short = ("--set", "max_reply_tokens=4", "--set", "send_delay_limit_ms=5000", "--out", "limited")
    asked = ("--rate", "2,40", "--sessions", "2", "--duration", "3", "--slo", "ttft_p90<=9s", *short)
    with NullServer("text", tmp_path / "null", "--first-s", "0.3") as server:
        status, out, _ = rehearse("live", server.url, *asked)

    kept = json.loads(Path("limited/verdict.json").read_text())
    slow, fast = kept["loads"]
    assert status in (0, 3) and fast["load"] == "40 requests a second with at most 2 at once"
    assert 0 < slow["goodput_rps"] < fast["goodput_rps"] < 10  # two at once, 0.3 s each: 6.7 and its edges
    text = " ".join(out.split())
    assert re.search(r"At most 2 at once: (\d+) of \d+ users \(rate = 40\) had to wait for a place", text)
    assert "It is highest at 40 requests a second with at most 2 at once, the largest load that was tried." in text


@pytest.mark.slow("calls in real time")
def test_a_sweep_measures_rates_up_to_the_throughput(rehearse: Rehearse, tmp_path: Path) -> None:
    short = ("--set", "max_reply_tokens=4", "--set", "send_delay_limit_ms=5000", "--out", "swept")
    asked = ("--sweep", "2", "--sessions", "6", "--duration", "4", "--slo", "ttft_p90<=9s", *short)
    with NullServer("text", tmp_path / "null", "--first-s", "0.8") as server:
        status, out, err = rehearse("live", server.url, *asked)

    assert status in (0, 3), out + err
    assert {path.name for path in Path("swept-ends/points").iterdir()}
    low, high = json.loads(Path("swept/experiment.json").read_text())["grid"]["rate"]
    assert 1 < low < high < 10  # one user gets 1.2 a second, six get 7.3, and edges of the window
    assert "one user at a time" in err and "It is highest at" in " ".join(out.split())


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A text server whose first token comes after `FIRST_S`."""
    with NullServer("text", tmp_path / "null", "--first-s", str(FIRST_S)) as server:
        yield server.url


MANY = ("--rate", "50", "--duration", "1.5", "--set", "send_delay_limit_ms=5000")
"""The generator may be as late as this machine makes it."""


def test_a_text_server_passes_and_its_finished_run_is_not_measured_again(rehearse: Rehearse, url: str) -> None:
    asked = ("live", url, *MANY, "--slo", "ttft_p90<=9s", "--label", "build 7", "--out", "many")
    status, out, _ = rehearse(*asked)
    first, second = out.splitlines()[:2]
    assert status == 0 and first.startswith(f"PASS: {url} can handle 50 requests a second: P90 TTFT "), out
    assert ", server build build 7." in second
    kept = json.loads(Path("many/verdict.json").read_text())
    target, failed = kept["loads"][0]["targets"]
    assert (failed["metric"], failed["value"], failed["bound"]) == ("failed_share", 0, 0.01)
    assert kept["verdict"] == target["verdict"] == "PASS" and target["n"] >= 36
    low, high = target["interval"]
    assert FIRST_S <= low <= target["value"] <= high <= 9

    status, out, err = rehearse(*asked)
    assert status == 2 and "many holds a run already; give a new folder with --out" in err and not out
    status, out, err = rehearse(*asked, "--resume")
    assert status == 2 and "many is finished, with 1 of 1 points measured; leave --resume out" in err


def test_too_few_turns_are_inconclusive_and_the_duration_that_decides_is_named(rehearse: Rehearse, url: str) -> None:
    status, out, _ = rehearse("live", url, "--rate", "4", "--duration", "1", *MANY[4:])
    sentence = r"INCONCLUSIVE at 4 requests a second: \d turns?, 36 needed; --duration \d+ decides it\."
    assert status == 3 and re.fullmatch(sentence, out.splitlines()[0]), out
    assert "is the default for text" in out and "INCONCLUSIVE" not in out.splitlines()[1]
