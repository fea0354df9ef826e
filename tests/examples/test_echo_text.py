"""The text system that docs/extend.md points to, with a gateway of its own."""

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engines.deployments import load_deployment
from engines.registry import ENGINES
from tests.engines.replays import run
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "echo_text"
SERVER = {"deployment": "llama_8b_1gpu"}


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    (system,) = import_module("echo_text").SYSTEMS
    monkeypatch.setitem(ENGINES, system.name, system)


def trace(**columns: object) -> Trace:
    made = make_trace("poisson", {"reply": "text", "modality": "text", "requests": 20}, 1)
    return Trace.from_turns(turn.changed(**columns) for session in made.sessions for turn in session.turns)


def tokens_of(asked: Trace, **params: Any) -> list[float]:
    """The text tokens that each session received with a complete reply; the log has its first as `first_text`."""
    events = run(asked, "echo", server=SERVER, **params).events.to_pylist()
    received: Counter[int] = Counter()
    for row in events:
        received[row["session"]] += {"first_text": 1, "text": row["value"]}.get(row["kind"], 0)
    return [received[row["session"]] for row in events if row["kind"] == "reply_done"]


@pytest.mark.parametrize(
    ("columns", "params", "answered"),
    [
        ({}, {}, 50),
        ({}, {"longest": 7}, 7),
        ({"history_tokens": 200_000}, {}, 50),  # a context longer than the model takes is cut
    ],
)
def test_every_turn_is_answered_to_its_length(columns: dict[str, int], params: dict[str, int], answered: int):
    assert tokens_of(trace(output_tokens=50, **columns), **params) == [answered] * 20


def test_a_deployment_of_several_stages_is_refused():
    system = ENGINES["echo"]
    with pytest.raises(UserError, match="deployments of one stage, such as llama_8b_1gpu"):
        system.check_deployment(system.read({}), load_deployment("qwen3_omni_2gpu"))
    system.check_deployment(system.read({}), load_deployment("llama_8b_1gpu"))
