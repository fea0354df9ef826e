"""Every loader on files in the layout of its source, dirt included: made up ones, of which it is known what is in them,
and the real ones, whose figures are those that their description states."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.workloads import sources
from tests.workloads.sources import Requests
from workloads.distributions.lengths import BURSTGPT_REQUEST, BURSTGPT_RESPONSE, RAGPULSE_QUERY, RAGPULSE_REPLY
from workloads.files.androidlab import read_androidlab
from workloads.files.csv_file import CsvFile
from workloads.files.documents_file import read_vcsum
from workloads.files.servegen_file import read_servegen
from workloads.files.sharegpt_file import read_sharegpt
from workloads.files.streamingbench_file import read_streamingbench
from workloads.registry import make_trace
from workloads.statistics.describe import gap_cv
from workloads.statistics.generator_fit import compare
from workloads.trace import Trace


def replayed(name: str, path: Path, **params) -> tuple[dict, list[str]]:
    trace = make_trace(name, {"path": str(path), "reply": "text", **params}, 0)
    return trace.columns(), trace.header.notes


def request_tokens(columns: dict) -> np.ndarray:
    return columns["input_tokens"] + np.nan_to_num(columns["history_tokens"])


def is_the_record(columns: dict, wanted: Requests) -> bool:
    """Whether exactly these requests are replayed, each at its time, in its session and with its history."""
    names = ("arrival_s", "input_tokens", "output_tokens", "history_tokens")
    found = sorted(zip(*(np.nan_to_num(columns[name]).round(4).tolist() for name in names), strict=True))
    times = wanted.time_s.round(4)
    values = (times, wanted.input_tokens, wanted.output_tokens, wanted.history_tokens)
    turns: dict[str, int] = {}
    for session in wanted.session.tolist():
        turns[session or f"alone {len(turns)}"] = turns.get(session, 0) + 1
    of_sessions = sorted(np.bincount(columns["session"]).tolist())
    return found == sorted(zip(*(v.tolist() for v in values), strict=True)) and of_sessions == sorted(turns.values())


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("azure", sources.azure),
        ("burstgpt", sources.burstgpt_1),
        ("burstgpt", sources.burstgpt_3),
        ("sessions", sources.ragpulse),
    ],
)
def test_a_record_is_replayed_as_it_was(tmp_path: Path, name: str, write) -> None:
    wanted = write(tmp_path)
    columns, notes = replayed(name, wanted.path)
    assert is_the_record(columns, wanted)
    dropped = [note for note in notes if "dropped" in note]
    total = len(wanted.time_s) + wanted.failed
    assert dropped == [f"{wanted.failed} of {total} rows dropped: zero request or response tokens"] * (
        wanted.failed > 0
    )
    late = [note for note in notes if "sorted by time" in note]
    assert late == ["1 rows earlier than the row before them: sorted by time"] * (name == "sessions")


def test_mooncake_conversations_are_dequantised_and_found_again(tmp_path: Path) -> None:
    wanted = sources.mooncake_conversation(tmp_path)
    raw, _ = replayed("mooncake", wanted.path, jitter_s=0)
    assert sorted(raw["arrival_s"].tolist()) == wanted.time_s.tolist()
    columns, notes = replayed("mooncake", wanted.path)
    n = len(wanted.time_s)
    assert f"recorded on {n // 10} distinct times, 3 s apart: each request moved by a uniform draw within 3 s" in notes
    assert gap_cv(np.sort(raw["arrival_s"])) > 2.5
    assert gap_cv(np.sort(columns["arrival_s"])) == pytest.approx(1.0, abs=0.15)
    assert sorted(request_tokens(columns).tolist()) == sorted(wanted.input_tokens.tolist())
    assert sorted(columns["output_tokens"].tolist()) == sorted(wanted.output_tokens.tolist())
    joined = (n - 100) // 2
    assert notes[0].startswith(f"conversations=strict: {joined} of {n} requests joined to an earlier one ")
    assert np.sum(columns["turn"] > 0) == joined


def test_a_mooncake_trace_whose_stamps_differ_is_left_as_it_is(tmp_path: Path) -> None:
    wanted = sources.mooncake_synthetic(tmp_path)
    columns, notes = replayed("mooncake", wanted.path)
    assert is_the_record(columns, Requests(**{**vars(wanted), "session": np.full(len(wanted.time_s), "")}))
    blocks = -(-wanted.input_tokens // sources.BLOCK)
    assert f"{4 * (len(blocks) - 1) / blocks.sum():.1%} of the blocks came before" in notes[0]
    assert not any("moved" in note for note in notes)


def test_sharegpt_lengths(tmp_path: Path) -> None:
    wanted, notes = sources.sharegpt(tmp_path), []
    found = read_sharegpt(wanted.path, notes)
    columns = (found.conversation, found.prompt_tokens, found.reply_tokens)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == wanted.exchanges
    assert notes == wanted.notes


@pytest.mark.parametrize("layout", ["real", "real_stream", "sqa", "proactive"])
def test_streamingbench(tmp_path: Path, layout: str) -> None:
    wanted, notes = sources.streamingbench(tmp_path, layout), []
    found = read_streamingbench(wanted.path, notes)
    times = [found.time_s[found.video == video].tolist() for video in range(found.video.max() + 1)]
    assert times == list(wanted.time_s.values())
    assert notes == wanted.notes
    with_options = found.typed_tokens > found.spoken_tokens
    assert with_options.all() if layout != "proactive" else not with_options.any()


def test_androidlab(tmp_path: Path) -> None:
    folder, steps = sources.androidlab(tmp_path)
    notes: list[str] = []
    assert read_androidlab(folder, notes).steps.tolist() == steps
    assert notes == [f"{len(steps)} tasks of 3 apps"]


def test_vcsum(tmp_path: Path) -> None:
    path, lengths = sources.vcsum(tmp_path)
    notes: list[str] = []
    documents, summaries = read_vcsum(path, notes)
    assert sorted(zip(documents.tolist(), summaries.tolist(), strict=True)) == sorted(lengths)
    assert notes == ["3 meetings of 6 parts"]


def test_servegen(tmp_path: Path) -> None:
    folder, names = sources.servegen(tmp_path)
    notes: list[str] = []
    clients = read_servegen(folder, notes)
    assert [client.name for client in clients] == names
    assert notes[-1] == "3 clients, 1 of them without lengths of their own"
    for client in clients:
        busy = client.rate > 0
        assert (busy.sum(), len(busy)) == (24, 36)
        assert set(zip(client.rate[busy].tolist(), client.cv[busy].tolist(), strict=True)) == {sources.BUSY}
    assert [bool(client.weibull[1]) for client in clients] == [False, True, False]


def test_every_fitted_generator_is_set_beside_its_source(tmp_path: Path) -> None:
    """How close they are is a figure of the real data; of Poisson's arrivals it is known here as well."""
    found = compare(sources.write_all(tmp_path))
    assert {one.source for one in found} == {
        "AndroidLab",
        "Azure 2023",
        "BurstGPT_1",
        "BurstGPT_3",
        "Mooncake",
        "RAGPulse",
        "ServeGen r1, client 1",
        "ShareGPT V3",
        "StreamingBench",
        "VCSum",
    }
    for one in found:
        assert len(one.real) and np.isfinite(one.real).all() and np.isfinite(one.ours).all()
        assert 0 <= one.ks <= 1
        if one.workload == "poisson":
            assert one.ks < 1.63 * np.sqrt(1 / len(one.real) + 1 / len(one.ours))  # the test's bound at 1 %


def test_servegen_replays_the_recorded_rate_of_its_clients(data: Path) -> None:
    path = data / "servegen" / "reason" / "deepseek-r1"
    clients = read_servegen(path, [])
    trace: Trace = make_trace("servegen", {"path": str(path), "duration_s": 86_400, "rate": None}, 0)
    recorded = sum(client.rate.sum() * sources.IDLE_S for client in clients)
    assert len(trace) == pytest.approx(recorded, rel=0.05)


def test_burstgpt_peak_is_matched(data: Path) -> None:
    path = data / "burstgpt" / "BurstGPT_1_first400.csv"
    columns, notes = replayed("burstgpt", path, peak_rate=4, peak_window_s=4)
    times = np.sort(columns["arrival_s"])
    held = np.searchsorted(times, times + 4 + 1e-6, side="right") - np.arange(len(times))
    assert held.max() == 16
    assert notes[-1].endswith("the busiest 4 s have 4 per second")
    busy, notes = replayed("burstgpt", path, start_s="busiest", duration_s=600)
    assert len(busy["turn"]) == held_in(replayed("burstgpt", path)[0]["arrival_s"], 600)
    assert notes[-1].startswith("busiest 600 s of the record: from ")


def held_in(times: np.ndarray, window_s: float) -> int:
    times = np.sort(times)
    return int(np.max(np.searchsorted(times, times + window_s, side="left") - np.arange(len(times))))


Find = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "file", "requests", "burstiness", "tokens", "reply_tokens", "notes"),
    [
        ("azure", "azure2023/AzureLLMInferenceTrace_conv.csv", 19366, 1.09, 1155, 211, []),
        (
            "mooncake",
            "mooncake/conversation_trace.jsonl",
            12031,
            1.0,
            12035,
            343,
            [
                "recorded on 1180 distinct times, 3 s apart: each request moved by a uniform draw within 3 s",
                "conversations=strict: 3338 of 12031 requests joined to an earlier one ",
                "36.6% of the blocks came before, 27.0% in the same conversation",
            ],
        ),
        ("mooncake", "mooncake/synthetic_trace.jsonl", 3993, 1.01, 15325, None, ["64.0% of the blocks came before"]),
        ("burstgpt", "burstgpt/BurstGPT_1_first400.csv", 383, 4.46, 544, None, ["17 of 400 rows dropped: "]),
        ("burstgpt", "burstgpt/BurstGPT_3_first400.csv", None, None, 619, None, []),
        ("sessions", "ragpulse/sessions_derived.csv", 7106, None, 2944, 283, []),
    ],
)
def test_figures_of_real_records(
    real_file: Find,
    name: str,
    file: str,
    requests: int | None,
    burstiness: float | None,
    tokens: float,
    reply_tokens: float | None,
    notes: list[str],
) -> None:
    columns, said = replayed(name, real_file(file))
    assert requests in (None, len(columns["turn"]))
    if burstiness is not None:
        assert gap_cv(np.sort(columns["arrival_s"])) == pytest.approx(burstiness, abs=0.1)
    assert request_tokens(columns).mean() == pytest.approx(tokens, abs=1)
    if reply_tokens is not None:
        assert columns["output_tokens"].mean() == pytest.approx(reply_tokens, abs=1)
    assert [note for note in notes if note not in " ".join(said)] == []


def test_tables_of_lengths_are_the_quantiles_of_their_records(real_file: Find) -> None:
    columns, _ = replayed("burstgpt", real_file("burstgpt/BurstGPT_1_first400.csv"))
    ragpulse = CsvFile(real_file("ragpulse/sessions_derived.csv"))
    for table, values in (
        (BURSTGPT_REQUEST, columns["input_tokens"]),
        (BURSTGPT_RESPONSE, columns["output_tokens"]),
        (RAGPULSE_QUERY, ragpulse.numbers("q_tok")),
        (RAGPULSE_REPLY, ragpulse.numbers("output_length")),
    ):
        assert np.quantile(values, table.shares).tolist() == pytest.approx(table.values, abs=0.5)
