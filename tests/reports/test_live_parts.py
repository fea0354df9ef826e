from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.live.live_slo import Asked
from harness.live.verdict import Judgement, LoadVerdict
from harness.slo.targets import INCONCLUSIVE, parse_targets
from reports.live import latencies, live_prompts, live_scrape
from reports.live.live_prompts import prompt_notes
from reports.live.live_verdict import LiveVerdict, Load, rows
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
    run: Any = Run
    monkeypatch.setattr(latencies, "loads", lambda run: [load, voice])
    found = latencies.section(run)
    assert found is not None and "P99 100" in found["note"]
    assert found["rows"] == [
        ["c = 4", "TTFT", "200", "400", "600*", "50"],
        ["c = 4", "time between tokens", "200.0", "400.0", "600.0*", "50"],
        ["c = 4", "E2E", "200.0", "400.0", "600.0*", "50"],
    ]
    monkeypatch.setattr(latencies, "loads", lambda run: [voice])
    assert latencies.section(run) is None


def said(monkeypatch: pytest.MonkeyPatch, generator: str = "sharegpt", url: str = "http://h/v1", **known: Any) -> str:
    """The sentences on the prompts of a run with these settings and metrics."""
    metrics = {name: known.pop(name) for name in ("cached_prompt_share", "prefix_cache_hits") if name in known}
    header = SimpleNamespace(generator=generator, params={"path": "chats.json"})
    record = SimpleNamespace(trace=lambda: SimpleNamespace(header=header))
    point = SimpleNamespace(has=lambda name: True, record=record, kept=metrics)
    load = SimpleNamespace(label=lambda run: "c = 4", points=[point])
    monkeypatch.setattr(live_prompts, "loads", lambda run: [load])
    run: Any = SimpleNamespace(experiment=SimpleNamespace(set={"url": url, **known}), points=[point])
    return " ".join(prompt_notes(run))


SAME = {"users_seed": 7, "same_users": True}


@pytest.mark.parametrize(
    ("known", "words", "absent"),
    [
        ({}, "Sent: words drawn", ["seed", "cache"]),
        (
            {"generator": "conversations"},
            "the conversations of chats.json, turn by turn, with the server's own replies",
            [],
        ),
        ({"generator": "conversations", "chat_history": "recorded"}, "with the recorded replies", []),
        ({"generator": "speech", "url": "ws://h/v1/realtime"}, "", ["Sent"]),
        ({"users_seed": 7}, "--seed 7 repeats them", ["the same users"]),
        (SAME, "the same users", []),
        (SAME, "prefix cache may find the prompts of earlier loads", []),
        ({"cached_prompt_share": 0.25, "prefix_cache_hits": 0.5}, "25 % (c = 4), as its replies state", ["50 %"]),
        ({"prefix_cache_hits": 0.5}, "50 % (c = 4), by its own counters", []),
    ],
)
def test_a_note_says_what_was_sent_by_whom_and_what_a_cache_held(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, Any], words: str, absent: list[str]
) -> None:
    text = said(monkeypatch, **known)
    assert words in text and not [word for word in absent if word in text]


def test_a_duplex_load_names_the_late_sends_and_not_the_turns_that_it_lacks() -> None:
    targets = parse_targets("end_of_turn_delay_p50<=800ms interruption_recall>=80%", "--slo")
    why = "FAIL as measured, PASS without the load generator's own send delay; give it more --shards"
    late = Judgement(targets[0], INCONCLUSIVE, 0.81, (0.79, 0.83), 40, (0.81,), why, None, True)
    few = Judgement(targets[1], INCONCLUSIVE, 1.0, (0.6, 1.0), 6, (1.0,), "rests on n=6 where 16 are needed", 3)
    load = Load(2.0, "2 calls", "2", LoadVerdict(INCONCLUSIVE, (late, few), (), (), True), 2.0, 60.0)
    verdict = LiveVerdict("ws://host/v1/realtime", Asked(targets, True), None, (load,), None)
    assert verdict.sentence == f"INCONCLUSIVE at 2 calls: P50 end of turn delay 810 ms: INVALID, {why}."
    judged = [(row["verdict"], row["why"]) for row in rows(verdict)]
    assert judged == [("INVALID", ""), ("INCONCLUSIVE", few.why)]  # the sentence gives the first reason


@pytest.mark.parametrize(
    ("name", "title", "factor"),
    [
        ("vllm:kv_cache_usage_perc", "KV cache usage, %", 100.0),
        ("vllm:generation_tokens_total", "Generation tokens, 1/s", 1.0),
        ("rehearsal_process_cpu_seconds_total", "Process CPU, s per s", 1.0),
        ("process_resident_memory_bytes", "Process resident memory, MiB", 2.0**-20),
    ],
)
def test_a_series_of_a_server_has_a_name_and_a_unit(name: str, title: str, factor: float) -> None:
    assert live_scrape.readable(name) == (title, factor)


COLUMNS = ["t_s", "name", "labels", "value"]


def test_known_series_come_first_then_series_that_moved() -> None:
    still = {"up": 1.0, "zzz_still": 1.0, "vllm:num_requests_running": 2.0, "vllm:num_preemptions_total": 0.0}
    rows = [(t, name, "{}", value) for t in (0.0, 1.0, 2.0) for name, value in still.items()]
    rows += [(t, name, "{}", t) for t in (0.0, 1.0, 2.0) for name in ("aaa_moves", "ttft_bucket", "ttft_sum")]
    assert live_scrape.chosen(pd.DataFrame(rows, columns=COLUMNS)) == ["vllm:num_requests_running", "aaa_moves"]


def rates(**polls: dict[float, float]) -> dict[str, pd.Series]:
    """The rates of a counter with a label for each stage, from its values by time."""
    labels = {stage: f'{{"engine":"e","stage":"{stage}"}}' for stage in polls}
    rows = [(t, "n_total", labels[stage], value) for stage, values in polls.items() for t, value in values.items()]
    return dict(live_scrape.series_of(pd.DataFrame(rows, columns=COLUMNS), "n_total"))


def test_a_counter_is_a_rate_and_a_restart_of_the_server_a_gap() -> None:
    found = rates(thinker={0.0: 0.0, 2.0: 10.0, 3.0: 1.0, 4.0: 3.0}, talker={0.0: 0.0, 1.0: 7.0})
    assert set(found) == {"thinker", "talker"}  # labels that are the same everywhere are left out
    assert found["thinker"].to_dict() == pytest.approx({2.0: 5.0, 3.0: np.nan, 4.0: 2.0}, nan_ok=True)
    assert found["talker"].tolist() == [7.0]


def test_a_poll_right_after_another_makes_no_rate() -> None:
    (series,) = rates(thinker={0.0: 0.0, 1.0: 4.0, 2.0: 8.0, 2.01: 9.0}).values()
    assert series.to_dict() == pytest.approx({1.0: 4.0, 2.01: 5 / 1.01})
