"""Dialects of other packages: they are found by entry point, checked for their promises, and called."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from runpy import run_path
from typing import Any, ClassVar

import pytest

from harness.live.endpoints import dialects, target
from harness.live.endpoints.conformance import check_dialect
from harness.live.endpoints.dialects.events import Event, Other
from harness.live.endpoints.target import TargetParams
from reports.cli.listing import KINDS
from tests.live.scripted import Peer, play, spoken, table, tone
from workloads import plugins
from workloads.errors import UserError, validate

EXAMPLE = Path(__file__).parents[2] / "examples" / "walkie"
sys.path.insert(0, str(EXAMPLE))
from walkie import Walkie, op  # noqa: E402

Server: Any = run_path(str(EXAMPLE / "tests" / "test_walkie.py"))["Server"]
URL = "ws://127.0.0.1:9/"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a package with these dialects, by name."""

    def with_dialects(**named: str) -> None:
        entries = [EntryPoint(name, value, target.GROUP) for name, value in named.items()]
        for module in (target, dialects, plugins):
            monkeypatch.setattr(module, "entry_points", lambda group: entries if group == target.GROUP else [])
        dialects.dialects.cache_clear()

    yield with_dialects
    dialects.dialects.cache_clear()


@dataclass(frozen=True)
class Broken(Walkie):
    name: ClassVar[str] = "broken"
    fault: ClassVar[Callable[..., Event]]

    def reader(self) -> Callable[[bytes], Event]:
        return partial(type(self).fault, super().reader())


def unread(read: Callable[[bytes], Event], data: bytes) -> Event:
    return read(data) if json.loads(data) else Other()


def without(kind: str, read: Callable[[bytes], Event], data: bytes) -> Event:
    return Other() if f'"{kind}"'.encode() in data else read(data)


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        (unread, "its reader raises JSONDecodeError"),
        (partial(without, "end"), "timeout: no response.done"),
        (partial(without, "sound"), "call 0: "),
        (partial(without, "word"), "0 of 4 replies have text"),
        (partial(without, "error"), "an error of the server is"),
    ],
)
def test_the_check_of_a_dialect_names_the_broken_promise(
    fault: Callable[..., Event], promise: str, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "fault", staticmethod(fault), raising=False)
    install(broken=f"{__name__}:Broken")
    with pytest.raises(AssertionError, match=promise):
        check_dialect(TargetParams.model_validate({"url": URL, "dialect": "broken"}), Server())


async def push_to_talk(peer: Peer) -> None:
    """Answers each turn, once it has heard all of it."""
    while True:
        message = json.loads(await peer.socket.recv())
        peer.call.received.append({"type": message["op"]})
        replies = {"hello": [op("ready")], "over": [op("begin"), op("word")]}.get(message["op"], [])
        if message["op"] == "over":
            replies += [*Server().audio(0, tone(0.1)) * 3, op("end")]
        for reply in replies:
            await peer.socket.send(reply.decode())


def test_a_call_in_another_package_s_dialect_which_is_recognised(install: Callable[..., None]) -> None:
    install(walkie="walkie:Walkie")
    out = play(spoken(turns=2), push_to_talk)
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.1] * 6
    assert out.calls[-1].kinds == ["hello", "sound", "over", "sound", "over"]


def test_a_package_s_dialect_is_listed_and_an_unusable_one_is_refused(install: Callable[..., None]) -> None:
    install(walkie="walkie:Walkie")
    [row] = [row for row in KINDS["dialects"].brief() if row["name"] == "walkie"]
    assert row["summary"] == "Servers of an example protocol: push to talk"
    for named, fault in (
        ({"talk": "walkie:Walkie"}, "no subclass of rehearsal.Dialect with name = 'talk'"),
        ({"walkie": "walkie:op"}, "no subclass of rehearsal.Dialect"),
        ({"walkie": "walkie:nothing"}, "cannot load walkie:nothing"),
    ):
        install(**named)
        with pytest.raises(UserError, match=fault):
            dialects.dialects()
    with pytest.raises(UserError, match="unknown dialect 'wakie'"):
        validate(TargetParams, {"url": URL, "dialect": "wakie"}, "the target")
