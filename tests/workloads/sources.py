"""Files in the layouts of the public sources, with the dirt that the real ones have and content made up from seeds.

Each function writes one source below a folder that is laid out as shared/data, and gives what its loader must find.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

BLOCK = 512
"""Tokens of Mooncake's prompts that a hash id stands for."""
IDLE_S, BUSY = 600, (0.5, 0.9)
"""Windows of ServeGen's clients, and (rate per s, CV of the gaps) of those in which there are requests."""


@dataclass(frozen=True)
class Requests:
    """A file, and its good requests in the order of their times: arrival_s, input_tokens, output_tokens, session and
    history_tokens; `failed` others are in the file as well."""

    path: Path
    rows: pd.DataFrame
    failed: int = 0


def write_all(folder: Path) -> Path:
    """All sources, below `folder`."""
    for write in (
        azure,
        burstgpt_1,
        burstgpt_3,
        mooncake,
        ragpulse,
        streamingbench,
        sharegpt,
        androidlab,
        vcsum,
        servegen,
    ):
        write(folder)
    return folder


def azure(folder: Path) -> Requests:
    """Single requests with stamps of seven decimals."""
    rng, n = np.random.default_rng(1), 1000
    time_s = np.cumsum(rng.exponential(0.2, n)).round(4)
    rows = _requests(time_s, _lengths(rng, n, 900), _lengths(rng, n, 150))
    stamps = pd.DatetimeIndex(pd.Timestamp("2031-03-07 23:58") + pd.to_timedelta(time_s, "s"))
    table = {"TIMESTAMP": stamps.strftime("%Y-%m-%d %H:%M:%S.%f0")}
    table |= {"ContextTokens": rows["input_tokens"], "GeneratedTokens": rows["output_tokens"]}
    return Requests(_csv(folder / "azure2023" / "AzureLLMInferenceTrace_conv.csv", table), rows)


def burstgpt_1(folder: Path) -> Requests:
    """Six columns: single requests with whole seconds, every 20th of them failed."""
    rng, n = np.random.default_rng(2), 300
    good = np.arange(n) % 20 != 7
    rows = _requests(np.cumsum(rng.integers(0, 120, n)), _lengths(rng, n, 350) * good, _lengths(rng, n, 240) * good)
    path = folder / "burstgpt" / "BurstGPT_1_first400.csv"
    return Requests(_burstgpt(path, rows, rows["input_tokens"]), rows.loc[good], int(np.sum(~good)))


def burstgpt_3(folder: Path) -> Requests:
    """Eight columns: conversations, some of them with a history that was cut, and requests without a session."""
    rng = np.random.default_rng(3)
    made: list[tuple[float, int, int, str, int]] = []
    for session in range(100):
        time_s, context = float(rng.integers(0, 20_000)), 0
        for _ in range(rng.integers(1, 7) if session < 60 else 1):
            new, reply = rng.integers(5, 300, 2).tolist()
            if context and rng.random() < 0.15:  # the history was cut: all that is left is taken as new
                context, new = 0, max(1, context // 2)
            made.append((time_s, new, reply, f"0000{session:04d}-made-up", context))
            context += new + reply
            time_s += float(rng.integers(30, 900))
    rows = _requests(*(np.array(values) for values in zip(*sorted(made), strict=True)))
    path = folder / "burstgpt" / "BurstGPT_3_first400.csv"
    alone = rows["session"] >= "00000060"
    names = {"Session ID": rows["session"].where(~alone, ""), "Elapsed time": 3}
    return Requests(_burstgpt(path, rows, rows["history_tokens"] + rows["input_tokens"], names), rows)


def _burstgpt(path: Path, rows: pd.DataFrame, asked: Any, more: dict[str, Any] | None = None) -> Path:
    said = rows["output_tokens"]
    table = {"Timestamp": rows["arrival_s"], **(more or {}), "Model": "GPT-4", "Request tokens": asked}
    table |= {"Response tokens": said, "Total tokens": asked + said, "Log Type": "Conversation log"}
    return _csv(path, table)


def mooncake(folder: Path) -> Requests:
    """Ten requests a stamp, three seconds apart, half of them continuing an earlier one block for block."""
    rng, ids = np.random.default_rng(4), count(1)
    open_: list[tuple[list[int], int]] = []  # blocks of the prompt and tokens of prompt and reply
    lines = []
    for request in range(400):
        old, context = open_.pop(0) if request >= 100 and request % 2 else ([0], BLOCK)
        prompt, reply = context + int(rng.integers(600, 3000)), int(rng.integers(20, 800))
        blocks = old + [next(ids) for _ in range(-(-prompt // BLOCK) - len(old))]
        open_.append((blocks[: prompt // BLOCK], prompt + reply))
        line = {"timestamp": request // 10 * 3000, "input_length": prompt, "output_length": reply, "hash_ids": blocks}
        lines.append(line)
    table = pd.DataFrame(lines)
    rows = _requests(table["timestamp"] / 1000, table["input_length"], table["output_length"])
    return Requests(_json_lines(folder / "mooncake" / "conversation_trace.jsonl", lines), rows)


def ragpulse(folder: Path) -> Requests:
    """Sessions, as the join of RAGPulse's tables; one row comes a row too late."""
    rng, prompt_tokens = np.random.default_rng(6), 1400
    made: list[tuple[int, int, int, str, int, int]] = []
    for session, time_s in enumerate(np.cumsum(rng.integers(2, 120, 120)).tolist()):
        history = 11
        for _ in range(rng.geometric(0.5)):
            query, passages, reply = (int(rng.integers(*span)) for span in ((2, 20), (800, 2500), (30, 700)))
            name = f"{1_700_000_000_000 + session}-madeup"
            made.append((time_s, prompt_tokens + passages + query, reply, name, history, query))
            history += query + reply // 2
            time_s += int(rng.integers(5, 600))
    *columns, query = (np.array(values) for values in zip(*sorted(made), strict=True))
    rows = _requests(*columns)
    table = pd.DataFrame({"t": rows["arrival_s"], "session_id": rows["session"], "q_tok": query})
    table = table.assign(h_tok=rows["history_tokens"], input_length=rows["input_tokens"] + rows["history_tokens"])
    table = table.assign(output_length=rows["output_tokens"])
    late = 50 + int(np.argmax(np.diff(rows["arrival_s"])[50:] > 0))
    order = [*range(late), late + 1, late, *range(late + 2, len(table))]
    return Requests(_csv(folder / "ragpulse" / "sessions_derived.csv", table.iloc[order]), rows)


@dataclass(frozen=True)
class Dialogues:
    """(prompt, reply) tokens of each exchange by its conversation, and what the loader must say that it left out."""

    path: Path
    exchanges: list[tuple[int, int, int]]
    notes: list[str]


def sharegpt(folder: Path) -> Dialogues:
    """Lengths in characters; a third of the conversations begin with an answer, and others end with a question."""
    rng = np.random.default_rng(7)
    rows: list[tuple[str, int, str, int, int]] = []
    exchanges: list[tuple[int, int, int]] = []
    for conversation in range(90):
        turns = 0 if conversation % 30 == 0 else int(rng.integers(1, 6))
        lengths = [(conversation, int(rng.integers(1, 100)), int(rng.integers(1, 500))) for _ in range(turns)]
        talk = [("gpt", 800)] if conversation % 3 == 0 else []
        for _, asked, said in lengths:
            talk += [("human", 4 * asked), ("gpt", 4 * said - 3)]  # 4 characters a token, rounded up
        talk += [("human", 40)] if conversation % 5 == 0 else []
        exchanges += lengths
        rows += [(f"made{conversation:03d}_0", at, *message, 0) for at, message in enumerate(talk)]
    table = pd.DataFrame(rows, columns=["conv_id", "msg_index", "from", "n_chars", "n_words"])
    notes = [
        f"30 of {len(rows)} messages left out: answer at the start",
        f"18 of {len(rows)} messages left out: question without an answer",
        "3 conversations without a question and its answer",
    ]
    path = _csv(folder / "sharegpt" / "sharegpt_v3_sample1000_lengths.csv.gz", table)
    return Dialogues(path, exchanges, notes)


def streamingbench(folder: Path, layout: str = "real_stream") -> tuple[Path, list[list[int]]]:
    """Five questions a video, an entry for each or, in the layout `real_stream`, for all of them; one stamp of all is
    unreadable, one video has its questions in another order, and hours have one digit or two. (The file, the readable
    times in s of each video, ascending.)"""
    rng = np.random.default_rng(8)
    times = [np.cumsum(rng.integers(4, 240, 5)).tolist() for _ in range(40)]
    videos = []
    for video, (first, second, *rest) in enumerate(times):
        order = [second, first, *rest] if video == 20 else [first, second, *rest]
        stamps = [f"{t // 3600:0{1 + video % 2}d}:{t // 60 % 60:02d}:{t % 60:02d}" for t in order]
        if video == 30:
            stamps[4] = f"00:{times[video].pop():05d}"
        asked = [_question(layout, stamp) for stamp in stamps]
        parts = [asked] if layout == "real_stream" else [[one] for one in asked]
        videos.append([{"questions": part, "video_path": f"./videos/made_{video:02d}.mp4"} for part in parts])
    document = videos if layout == "sqa" else [entry for entries in videos for entry in entries]
    path = folder / "streamingbench" / f"questions_{layout}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=4))
    return path, times


def _question(layout: str, stamp: str) -> dict[str, Any]:
    question = {"task_type": "Made Up", "question": "Which of the lamps is lit now?", "time_stamp": stamp}
    if layout == "proactive":
        return question | {"ground_truth_time_stamp": stamp, "ground_truth_output": "the left one"}
    return question | {"answer": "B", "options": ["A. None.", "B. The left one.", "C. Both.", "D. All."]}


def androidlab(folder: Path) -> tuple[Path, list[int]]:
    """Tasks of three apps; (the folder, steps of each task)."""
    path = folder / "androidlab"
    path.mkdir(parents=True, exist_ok=True)
    steps: dict[str, int] = {}
    for app, wanted in (("kettle", [2, 3, 16]), ("lamp", [1, 4]), ("radio", [5, 5, 6, 9])):
        own = {f"{app}_{number}": n for number, n in enumerate(wanted, 1)}
        tasks = [{"task_id": name, "task": f"Open the {app}: press “{n}”."} for name, n in own.items()]
        (path / f"{app}.yaml").write_text(yaml.safe_dump({"APP": app, "tasks": tasks}, allow_unicode=True), "utf-8")
        steps |= own
    (path / "ground_truth_length.json").write_text(json.dumps(steps))
    return path, list(steps.values())


def vcsum(folder: Path) -> tuple[Path, list[tuple[int, int]]]:
    """Parts of meetings, a meeting's not always together; (the file, characters of transcript and summary of each)."""
    sentence, summary = "大家好，今天我们讨论新的灯。", "讨论了灯。"
    parts = [(103, 1), (101, 3), (102, 7), (101, 40), (103, 2), (103, 30)]
    lines = [
        {"id": f"{meeting}_{at}", "av_num": meeting, "context": [[sentence] * n, [sentence]], "discussion": summary}
        for at, (meeting, n) in enumerate(parts)
    ]
    path = _json_lines(folder / "vcsum" / "short_test.txt", lines)
    sentences = [[n + 1 for meeting, n in parts if meeting == each] for each in (101, 102, 103)]
    return path, [(sum(ns) * len(sentence), len(ns) * len(summary)) for ns in sentences]


def servegen(folder: Path) -> tuple[Path, list[str]]:
    """Clients with idle windows, one of them without lengths; (the folder, the names of the clients)."""
    path, (rate, cv) = folder / "servegen", BUSY
    clients = {
        "language/m-small/chunk-1": ("Gamma", None),
        "reason/deepseek-r1/chunk-1": ("Weibull", 600),
        "reason/deepseek-r1/chunk-2": ("Gamma", 900),
    }
    for name, (law, output) in clients.items():
        table = path / f"{name}-trace.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        windows = [f"{w * IDLE_S},{rate},{cv},{law},1.2,1.7" if w % 3 else f"{w * IDLE_S},0,0,,0,0" for w in range(36)]
        table.write_text("\n".join(windows) + "\n")
        if output is not None:
            lengths = {"input_tokens": "{70: 0.5, 90: 0.5}", "output_tokens": f"{{{output}: 1.0}}"}
            idle = {"input_tokens": "{}", "output_tokens": "{}"}
            (path / f"{name}-dataset.json").write_text(json.dumps({"0": lengths, "21600": idle}))
    return path, [*clients]


def _requests(time_s: Any, inputs: Any, outputs: Any, session: Any = None, history: Any = 0) -> pd.DataFrame:
    """Without `session` each request is alone in one."""
    rows = pd.DataFrame({"arrival_s": np.asarray(time_s) - np.asarray(time_s)[0], "input_tokens": inputs})
    alone = rows.index.astype(str)
    return rows.assign(output_tokens=outputs, session=alone if session is None else session, history_tokens=history)


def _lengths(rng: np.random.Generator, n: int, median: float) -> np.ndarray:
    return np.ceil(rng.lognormal(np.log(median), 0.8, n)).astype(int)


def _csv(path: Path, table: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(table).to_csv(path, index=False)
    return path


def _json_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", "utf-8")
    return path
