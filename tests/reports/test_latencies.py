"""What a text engineer looks for in a live run: percentiles of each latency, and the columns of the load."""

from types import SimpleNamespace
from typing import Any

import pytest

from reports.live import latencies
from reports.runs.measured import Run
from reports.tables.columns import shown

SOCKETS = {"send_delay_p99": 0.001, "shed": 0.0, "failed": 0.0, "on_line_mean": 4.0, "sessions_rps": 1.0}
TEXT = {"ttft_p50": 0.1, "ttft_p90": 0.2, "text_tps": 80.0, "completed_rps": 2.0, "reply_tokens_mean": 40.0}


def names(**values: float | None) -> list[str]:
    return [column.metric for column in shown([SOCKETS | TEXT | values])]


def test_a_live_run_of_text_shows_its_throughput_and_one_share_of_cached_prompts() -> None:
    assert names()[2:7] == [*TEXT]
    assert "wasted_token_ratio" not in names(wasted_token_ratio=0.0)
    assert [name for name in names(cached_prompt_share=0.5, prefix_cache_hits=0.4) if "cache" in name] == [
        "cached_prompt_share"
    ]
    assert "prefix_cache_hits" in names(prefix_cache_hits=0.4)
    assert "text_tps" not in [column.metric for column in shown([TEXT])]  # a replay is as it was


def point(scale: float, **other: Any) -> SimpleNamespace:
    values = {
        f"{name}_{statistic}": scale * (i + 1)
        for name in ("ttft", "tbt", "e2e")
        for i, statistic in enumerate(latencies.STATISTICS)
    } | other
    return SimpleNamespace(error=None, value=values.get, count=lambda name: 50 if name in values else 0)


def test_each_latency_has_its_percentiles_at_each_load(monkeypatch: pytest.MonkeyPatch) -> None:
    load = SimpleNamespace(label=lambda run: "c = 4", points=[point(0.1), point(0.3), point(0.2)])
    voice = SimpleNamespace(label=lambda run: "c = 8", points=[point(0.1, audio_ttfp_p50=0.3)])
    monkeypatch.setattr(latencies, "loads", lambda run: [load, voice])
    found = latencies.section(Run)  # type: ignore[arg-type]
    assert found is not None and "P99 100" in found["note"]
    assert found["rows"] == [
        ["c = 4", "TTFT", "200", "400", "600*", "50"],
        ["c = 4", "time between tokens", "200.0", "400.0", "600.0*", "50"],
        ["c = 4", "E2E", "200.0", "400.0", "600.0*", "50"],
    ]
    monkeypatch.setattr(latencies, "loads", lambda run: [voice])
    assert latencies.section(Run) is None  # type: ignore[arg-type]
