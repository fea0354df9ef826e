"""Comparison of the fitted generators with the real data, one per column.

Every generator runs as a user would run it; its output is compared with the rows of a real file. A note explains a
poor fit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import UserError
from workloads.files.androidlab import read_androidlab
from workloads.files.csv_file import CsvFile
from workloads.files.documents_file import TOKENS_PER_CHAR, read_vcsum
from workloads.files.servegen_file import read_servegen
from workloads.files.sharegpt_file import read_sharegpt
from workloads.files.streamingbench_file import read_streamingbench
from workloads.generators.interactive import READ_MAX_S
from workloads.registry import make_trace
from workloads.replays.csv_logs import read_azure, read_burstgpt
from workloads.replays.replay import ReplayParams, Rows, sessions_of
from workloads.replays.tables import TableParams, read_sessions
from workloads.seeds import stream
from workloads.trace import Columns

TYPED = {"modality": "text", "reply": "text"}


@dataclass(frozen=True)
class Comparison:
    """A column of a real file and the same quantity of a generator; arrays of any lengths.

    ks: largest distance between the two distribution functions, 0 to 1 (Kolmogorov-Smirnov). note: where the fit is
    poor, and why; "" when there is nothing to say.
    """

    workload: str
    source: str
    column: str
    unit: str
    real: np.ndarray
    ours: np.ndarray
    ks: float
    note: str


def compare(data_dir: Path, seed: int = 0) -> list[Comparison]:
    """All comparisons for which `data_dir` has the files; UserError when it has none of them."""
    comparisons = [
        comparison
        for file, of_file in _SOURCES.items()
        if (data_dir / file).exists()
        for comparison in of_file(data_dir / file, seed)
    ]
    if not comparisons:
        files = ", ".join(_SOURCES)
        raise UserError(f"{data_dir} has none of the real files ({files}); give the folder that holds them.")
    return comparisons


def _pair(workload: str, source: str, column: str, unit: str, real: Any, ours: Any, note: str = "") -> Comparison:
    real, ours = np.asarray(real, np.float64), np.asarray(ours, np.float64)
    both = np.sort(np.concatenate([real, ours]))
    shares = [np.searchsorted(np.sort(values), both, side="right") / len(values) for values in (real, ours)]
    ks = float(np.max(np.abs(shares[0] - shares[1])))
    return Comparison(workload, source, column, unit, real, ours, ks, note)


def _made(name: str, seed: int, **params: Any) -> Columns:
    return make_trace(name, params, seed).columns()


def _whole(path: Path) -> ReplayParams:
    return ReplayParams.model_validate({"path": path})


def _relative_gaps(times: np.ndarray) -> np.ndarray:
    """Gaps of ascending times by their mean, as a generator runs at any rate."""
    gaps = np.diff(times)
    return gaps / gaps.mean()


def _turn_gaps(time_s: np.ndarray, session: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows that have an earlier turn, rows of those earlier turns), for rows in the order of time."""
    order = np.lexsort((time_s, session))
    same = session[order[1:]] == session[order[:-1]]
    return order[1:][same], order[:-1][same]


def _burstgpt_1(path: Path, seed: int) -> Iterator[Comparison]:
    rows = read_burstgpt(_whole(path), [])
    slow = "383 requests of half a day: the slow change from night to morning is in no regime of an hour"
    yield from _burstgpt(rows, "BurstGPT_1", seed, gap=slow)


def _burstgpt_3(path: Path, seed: int) -> Iterator[Comparison]:
    rows, name = read_burstgpt(_whole(path), []), "BurstGPT_3"
    held_out = "lengths were fitted on BurstGPT_1: two years later "
    longest = held_out + "the middle is alike, but a few requests reach 25,000 tokens"
    yield from _burstgpt(rows, name, seed, request=longest, response=held_out + "answers are half as long")
    yield from _rounds(rows, name, seed)


def _burstgpt(
    rows: Rows, source: str, seed: int, gap: str = "", request: str = "", response: str = ""
) -> Iterator[Comparison]:
    """Return the fitted generator next to a file of BurstGPT, with a note on each column."""
    ours = _made("burstgpt_fit", seed, requests=10_000, **TYPED)
    gaps = _relative_gaps(rows.time_s), _relative_gaps(ours["arrival_s"])
    yield _pair("burstgpt_fit", source, "gap / mean gap", "", *gaps, gap)
    lengths = rows.input_tokens, ours["input_tokens"]
    yield _pair("burstgpt_fit", source, "request", "tokens", *lengths, request)
    lengths = rows.output_tokens, ours["output_tokens"]
    yield _pair("burstgpt_fit", source, "response", "tokens", *lengths, response)


def _rounds(rows: Rows, source: str, seed: int) -> Iterator[Comparison]:
    """Turns per session, at the mean of the source; only the spread was fitted."""
    named = rows.session != ""
    turns = np.bincount(sessions_of(rows.session[named])[0])
    ours = _made("interactive", seed, sessions=5000, turns=float(turns.mean()))
    note = f"mean set to the source's {turns.mean():.2f}; Bidaw's users stay for 22.4, without public data"
    yield _pair("interactive", source, "turns per session", "", turns, np.bincount(ours["session"]), note)


def _azure(path: Path, seed: int) -> Iterator[Comparison]:
    rows = read_azure(_whole(path), [])
    ours = _made("poisson", seed, requests=len(rows.time_s))
    note = "one gap is nearly Poisson's; the rate changes over minutes (dispersion 16 at 60 s), which no gap shows"
    yield _pair(
        "poisson",
        "Azure 2023",
        "gap / mean gap",
        "",
        _relative_gaps(rows.time_s),
        _relative_gaps(ours["arrival_s"]),
        note,
    )


def _mooncake(path: Path, seed: int) -> Iterator[Comparison]:
    real = make_trace("mooncake", {"path": str(path)}, seed).columns()
    ours = _made("poisson", seed, requests=len(real["turn"]))
    note = "true only of the de-quantised times: within its 3 s clock the record says nothing"
    gaps, our_gaps = (_relative_gaps(np.sort(columns["arrival_s"])) for columns in (real, ours))
    yield _pair("poisson", "Mooncake", "gap / mean gap", "", gaps, our_gaps, note)


def _ragpulse(path: Path, seed: int) -> Iterator[Comparison]:
    rows, name = read_sessions(TableParams.model_validate({"path": path}), []), "RAGPulse"
    ours = _made("interactive", seed, sessions=2000, loop="open")
    later, before = _turn_gaps(rows.time_s, sessions_of(rows.session)[0])
    gaps = rows.time_s[later] - rows.time_s[before]
    near = (gaps > 0) & (gaps <= READ_MAX_S)
    our_later, our_before = _turn_gaps(ours["arrival_s"], ours["session"])
    our_gaps = ours["arrival_s"][our_later] - ours["arrival_s"][our_before]
    yield _pair("interactive", name, "gap between turns", "s", gaps[near], our_gaps)
    for what, low, high in (("short", 0, 150), ("long", 400, 10**6)):
        chosen = (rows.output_tokens[before] >= low) & (rows.output_tokens[before] < high) & near
        our_chosen = (ours["output_tokens"][our_before] >= low) & (ours["output_tokens"][our_before] < high)
        column = f"gap after a {what} answer"
        note = "one factor for answers of all lengths: after long ones people vary less" if low else ""
        yield _pair("interactive", name, column, "s", gaps[chosen], our_gaps[our_chosen], note)
    yield _pair("interactive", name, "reply", "tokens", rows.output_tokens, ours["output_tokens"])
    yield from _rounds(rows, name, seed)
    queries = CsvFile(path).counts("q_tok")
    ours = _made("interactive", seed, sessions=500)
    yield _pair("interactive", name, "query", "tokens", queries, ours["input_tokens"])


def _sharegpt(path: Path, seed: int) -> Iterator[Comparison]:
    exchanges, name = read_sharegpt(path, []), "ShareGPT V3"
    ours = _made("sharegpt", seed, requests=10_000, **TYPED)
    note = "a lognormal has too few very short and too few very long prompts: greetings, and pasted documents"
    yield _pair("sharegpt", name, "prompt", "tokens", exchanges.prompt_tokens, ours["input_tokens"], note)
    note = "fitted to whole conversations; V3 cuts them at about 2,000 tokens, so its answers end near 1,000"
    yield _pair("sharegpt", name, "reply", "tokens", exchanges.reply_tokens, ours["output_tokens"], note)


def _streamingbench(path: Path, seed: int) -> Iterator[Comparison]:
    asked, name = read_streamingbench(path, []), "StreamingBench"
    opening = np.diff(asked.video, prepend=-1) > 0
    gaps = np.diff(asked.time_s)[~opening[1:]]
    watched = _made("streamingbench", seed, sessions=2000, rate=1e-4, shown_s=1e5, video_tokens_per_s=100.0)
    shown_s = watched["visual_tokens"] / 100
    first = watched["turn"] == 0
    yield _pair("streamingbench", name, "first question", "s", asked.time_s[opening], shown_s[first])
    note = "drawn one by one, though in a video long and short gaps make up for each other"
    yield _pair("streamingbench", name, "gap between questions", "s", gaps, shown_s[~first], note)
    typed = _made("streamingbench", seed, sessions=2000, modality="text", video_tokens_per_s=0.0)
    yield _pair("streamingbench", name, "question and options", "tokens", asked.typed_tokens, typed["input_tokens"])


def _androidlab(path: Path, seed: int) -> Iterator[Comparison]:
    tasks = read_androidlab(path, [])
    ours = _made("gui_episodes", seed, episodes=5000)
    instructions = (ours["input_tokens"] - ours["visual_tokens"])[ours["turn"] == 0]
    yield _pair("gui_episodes", "AndroidLab", "instruction", "tokens", tasks.instruction_tokens, instructions)
    note = "steps of a person; agents of today take more, and fail"
    yield _pair("gui_episodes", "AndroidLab", "steps", "", tasks.steps, np.bincount(ours["session"]), note)


def _vcsum(path: Path, seed: int) -> Iterator[Comparison]:
    documents, _ = read_vcsum(path, [])
    tokens = documents * TOKENS_PER_CHAR
    ours = _made("offline", seed, requests=5000, shape="vcsum")
    note = (
        "poor: fitted to mean and P99 of ConServe's Table 1, whose documents are twice as long in tokens and far "
        "more alike than these 26 meetings; give the file by path= for their true spread"
    )
    yield _pair("offline", "VCSum", "input of vcsum", "tokens", tokens, ours["input_tokens"], note)


def _servegen(path: Path, seed: int) -> Iterator[Comparison]:
    client = next(one for one in read_servegen(path, []) if any(one.lengths.values()))
    ours = _made("servegen", seed, pool="deepseek-r1", rate=5.0, duration_s=3600.0)
    notes = {
        "input": "poor: one client, with one kind of prompt, compared with all 73 of its pool",
        "output": "one client compared with all 73 of its pool, whose longest answers it does not need",
    }
    draw = stream(seed, "fidelity")
    for column, note in notes.items():
        windows = [laws for laws in client.lengths.values() if laws]
        tables = [laws.text if column == "input" else laws.output for laws in windows]
        real = np.concatenate([law.sample(draw, 1000) for law in tables])
        source = "ServeGen r1, client 1"
        yield _pair("servegen", source, column, "tokens", real, ours[f"{column}_tokens"], note)


_SOURCES: dict[str, Callable[[Path, int], Iterator[Comparison]]] = {
    "burstgpt/BurstGPT_1_first400.csv": _burstgpt_1,
    "burstgpt/BurstGPT_3_first400.csv": _burstgpt_3,
    "ragpulse/sessions_derived.csv": _ragpulse,
    "sharegpt/sharegpt_v3_sample1000_lengths.csv.gz": _sharegpt,
    "streamingbench/questions_real_stream.json": _streamingbench,
    "androidlab": _androidlab,
    "vcsum/short_test.txt": _vcsum,
    "servegen/reason/deepseek-r1": _servegen,
    "azure2023/AzureLLMInferenceTrace_conv.csv": _azure,
    "mooncake/conversation_trace.jsonl": _mooncake,
}
