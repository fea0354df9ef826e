"""What an answer says of the prompts: what was sent, whose users asked, what a cache held."""

from types import SimpleNamespace
from typing import Any

import pytest

from reports.live import live_prompts
from reports.live.live_prompts import prompt_notes


def said(monkeypatch: pytest.MonkeyPatch, generator: str = "sharegpt", url: str = "http://h/v1", **known: Any) -> str:
    """Return the sentences of a run with these settings and metrics."""
    metrics = {name: known.pop(name) for name in ("cached_prompt_share", "prefix_cache_hits") if name in known}
    header = SimpleNamespace(generator=generator, params={"path": "chats.json"})
    record = SimpleNamespace(trace=lambda: SimpleNamespace(header=header))
    point = SimpleNamespace(has=lambda name: True, record=record, kept=metrics)
    load = SimpleNamespace(label=lambda run: "c = 4", points=[point])
    monkeypatch.setattr(live_prompts, "loads", lambda run: [load])
    run: Any = SimpleNamespace(experiment=SimpleNamespace(set={"url": url, **known}), points=[point])
    return " ".join(prompt_notes(run))


def test_the_answer_says_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Sent: words drawn" in said(monkeypatch)
    own = said(monkeypatch, "conversations")
    assert "the conversations of chats.json, turn by turn, with the server's own replies" in own
    assert "with the recorded replies" in said(monkeypatch, "conversations", chat_history="recorded")
    assert "Sent" not in said(monkeypatch, "speech", "ws://h/v1/realtime")


def test_the_answer_names_the_seed_and_what_the_same_users_do_to_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--seed 7 repeats them" in said(monkeypatch, users_seed=7)
    same = said(monkeypatch, users_seed=7, same_users=True)
    assert "the same users" in same and "prefix cache may find the prompts of earlier loads" in same
    assert "seed" not in said(monkeypatch)  # a run of an earlier version


def test_the_replies_say_what_a_cache_held_or_else_its_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    both = said(monkeypatch, cached_prompt_share=0.25, prefix_cache_hits=0.5)
    assert "25 % (c = 4), as its replies state" in both and "50 %" not in both
    assert "50 % (c = 4), by its own counters" in said(monkeypatch, prefix_cache_hits=0.5)
    assert "cache" not in said(monkeypatch)
