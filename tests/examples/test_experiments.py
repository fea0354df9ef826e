"""The commands in the head of each example's YAML name points that can be measured."""

import re
import shlex
from pathlib import Path

import pytest

from harness.by_device import expand
from reports.cards.source import resolve
from tests.examples.test_examples import EXAMPLES, ROOT

COMMAND = re.compile(r"^#.*\brehearse run (examples/.*)$", re.MULTILINE)
FILES = sorted(path for path in EXAMPLES.glob("*.yaml") if path.stem != "agents")  # which needs a user's file


@pytest.mark.parametrize("file", FILES, ids=[path.stem for path in FILES])
def test_its_commands_expand(file: Path) -> None:
    commands = [shlex.split(found[1]) for found in COMMAND.finditer(file.read_text())]
    assert commands
    for source, *options in commands:
        assert ROOT / source == file
        settings = [options[i + 1].partition("=") for i, option in enumerate(options) if option == "--set"]
        assert expand(resolve(ROOT / source, {name: value for name, _, value in settings}, seeds=1))
