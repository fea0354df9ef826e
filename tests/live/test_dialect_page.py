"""What docs/dialects.md shows as sent is what the dialects send."""

import json
import re
from inspect import signature
from pathlib import Path

import pytest

from harness.live.endpoints.dialects import DIALECTS, dialect_of
from harness.live.endpoints.dialects.dialect import Cut, Dialect
from harness.live.endpoints.dialects.events import Mark
from harness.live.endpoints.dialects.synthesis import Synthesis
from harness.live.endpoints.synthesis_endpoint import request_body
from harness.live.endpoints.target import DIALECTS as OURS
from harness.live.endpoints.target import OFFERS, TargetParams
from harness.live.endpoints.transport.rtp import AUDIO
from reports.cli.live import live
from tests.live.scripted import spoken

PAGE = (Path(__file__).parents[2] / "docs" / "dialects.md").read_text()
TURN = spoken().sessions[0].turns[0]
MODELLESS = ("openai", "openai_webrtc", "rtvi_webrtc")
OF_ITS_OWN = ("rehearsal",)
"""Described on the pages of our server."""


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def shown(name: str) -> list[str]:
    return [line[2:] for line in section(name).splitlines() if line.startswith("→ ")]


def without_audio(message: bytes) -> str:
    text = re.sub(r'"(audio|payload|data)":"[\w/+=]+"', r'"\1":"…"', message.decode())
    return re.sub("(MZ|CA|v3:)[0-9a-f]{32}", r"\1…", text)


def messages_of(dialect: Dialect) -> list[str]:
    interruption = dialect.interrupt(Cut("resp_1", "item_1", 1.2))
    write = dialect.writer() or bytes
    messages = [*dialect.hello(), *dialect.begin_of_turn(), dialect.append(bytes(6))]
    messages += [*dialect.end_of_turn(TURN), *dialect.ack(Cut("resp_1", "item_1", 0.5), playing=True)]
    messages += interruption if isinstance(interruption, list) else []
    messages += [*dialect.answer(Mark("m1")), *dialect.goodbye()]
    return [without_audio(write(message)) for message in messages if not message.startswith(AUDIO)]


@pytest.mark.parametrize("name", [name for name, cls in DIALECTS.items() if not cls.binary and name not in OF_ITS_OWN])
def test_the_page_shows_the_messages_that_a_dialect_sends(name: str) -> None:
    url, model = ("http" if name in OFFERS else "ws") + "://h/", None if name in MODELLESS else "m"
    target = {"url": url, "dialect": name, "model": model}
    assert shown(name) == messages_of(dialect_of(TargetParams.model_validate(target)))


def test_the_page_shows_the_first_message_of_rtvi() -> None:
    target = {"url": "ws://h/ws", "dialect": "rtvi", "turn_detection": "server"}
    [hello] = dialect_of(TargetParams.model_validate(target)).hello()
    assert hello.decode(errors="replace").endswith(shown("rtvi")[0])


def test_the_page_shows_the_requests_for_speech() -> None:
    target = TargetParams.model_validate({"url": "ws://h/v1/audio/speech/stream", "model": "m", "voice": "v"})
    http, *stream = shown("synthesis")
    asked = json.loads(http)
    assert json.loads(request_body(asked["input"], target)) == asked
    dialect = Synthesis(target)
    sent = [*dialect.hello(), *dialect.pieces("cold text"), dialect.flush()]
    assert stream == [message.decode() for message in sent]


def test_every_dialect_has_a_page_and_is_named_by_the_help() -> None:
    assert all(section(name) for name in DIALECTS if name not in OF_ITS_OWN)
    words = set(re.findall(r"\w+", signature(live).parameters["dialect"].default.help))
    assert {"auto", *OURS} <= words
