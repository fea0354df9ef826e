"""Files in the layouts of the public sources, with the dirt that the real ones have and content made up from seeds.

Each function writes one source below a folder that is laid out as shared/data, and gives what its loader must find.
"""

import csv
import gzip
import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import yaml

BLOCK = 512
"""Tokens of Mooncake's prompts that a hash id stands for."""

STEP_S = 3
"""Of the clock that stamped Mooncake's conversations."""

IDLE_S, BUSY = 600, (0.5, 0.9)
"""Windows of ServeGen's clients, and (rate per s, CV of the gaps) of those in which there are requests."""


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their times, arrays of shape (requests,); `failed` others are in the file as well."""

    path: Path
    time_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    session: np.ndarray
    history_tokens: np.ndarray
    failed: int = 0


def write_all(folder: Path) -> Path:
    """All sources, below `folder`."""
    for write in (azure, burstgpt_1, burstgpt_3, mooncake_conversation, mooncake_synthetic, ragpulse):
        write(folder)
    for layout in ("real", "real_stream", "sqa", "proactive"):
        streamingbench(folder, layout)
    for write in (sharegpt, androidlab, vcsum, servegen):
        write(folder)
    return folder


def azure(folder: Path) -> Requests:
    """Single requests with stamps of seven decimals."""
    rng, n = np.random.default_rng(1), 1000
    ticks = np.cumsum(rng.exponential(0.2, n) * 1e4).astype(np.int64)
    inputs, outputs = _lengths(rng, n, 900), _lengths(rng, n, 150)
    midnight = np.datetime64("2031-03-07T23:58:00")
    stamps = [
        f"{midnight + np.timedelta64(int(tick // 10**4), 's')}".replace("T", " ") + f".{tick % 10**4:04d}000"
        for tick in ticks
    ]
    path = folder / "azure2023" / "AzureLLMInferenceTrace_conv.csv"
    _csv(path, ["TIMESTAMP", "ContextTokens", "GeneratedTokens"], zip(stamps, inputs, outputs, strict=True))
    time_s = (ticks - ticks[0]) / 1e4
    return Requests(path, time_s, inputs, outputs, np.full(n, ""), np.zeros(n, int))


def burstgpt_1(folder: Path) -> Requests:
    """Six columns: single requests with whole seconds, every 20th of them failed."""
    rng, n = np.random.default_rng(2), 300
    time_s = np.cumsum(rng.integers(0, 120, n))
    inputs, outputs = _lengths(rng, n, 350), _lengths(rng, n, 240)
    good = np.arange(n) % 20 != 7
    inputs, outputs = inputs * good, outputs * good
    names = ["Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"]
    path = folder / "burstgpt" / "BurstGPT_1_first400.csv"
    rows = zip(time_s, inputs, outputs, strict=True)
    _csv(path, names, ([t, "ChatGPT", i, o, i + o, "Conversation log"] for t, i, o in rows))
    alone = np.full(n, "")[good]
    time_s = time_s[good] - time_s[good][0]
    return Requests(path, time_s, inputs[good], outputs[good], alone, np.zeros(good.sum(), int), int(np.sum(~good)))


def burstgpt_3(folder: Path) -> Requests:
    """Eight columns: conversations, some of them with a history that was cut, and requests without a session."""
    rng = np.random.default_rng(3)
    rows: list[tuple[float, str, int, int, int]] = []  # time in s, session, history, new and reply tokens
    for session in range(60):
        time_s, context = float(rng.integers(0, 20_000)), 0
        for _ in range(rng.integers(1, 7)):
            new, reply = rng.integers(5, 300, 2).tolist()
            if context and rng.random() < 0.15:  # the history was cut: all that is left is taken as new
                context, new = 0, max(1, context // 2)
            rows.append((time_s, f"0000{session:04d}-made-up", context, new, reply))
            context += new + reply
            time_s += float(rng.integers(30, 900))
    rows += [(float(rng.integers(0, 20_000)), "", 0, *rng.integers(5, 300, 2).tolist()) for _ in range(40)]
    rows.sort(key=lambda row: row[0])
    names = ["Timestamp", "Session ID", "Elapsed time", "Model", "Request tokens", "Response tokens"]
    path = folder / "burstgpt" / "BurstGPT_3_first400.csv"
    written = (
        [t, name, 3, "GPT-4", old + new, reply, old + new + reply, "Conversation log" if name else "API log"]
        for t, name, old, new, reply in rows
    )
    _csv(path, [*names, "Total tokens", "Log Type"], written)
    time_s, session, history, new, reply = (np.array(values) for values in zip(*rows, strict=True))
    return Requests(path, time_s - time_s[0], new, reply, session, history)


def mooncake_conversation(folder: Path) -> Requests:
    """Ten requests a stamp, three seconds apart, half of them continuing an earlier one block for block."""
    rng, ids = np.random.default_rng(4), count(1)
    open_: list[tuple[list[int], int]] = []  # blocks of the prompt and tokens of prompt and reply
    stamps, prompts, replies, blocks = [], [], [], []
    for request in range(400):
        old, context = open_.pop(0) if request >= 100 and request % 2 else ([0], BLOCK)
        prompt, reply = context + int(rng.integers(600, 3000)), int(rng.integers(20, 800))
        here = old + [next(ids) for _ in range(-(-prompt // BLOCK) - len(old))]
        open_.append((here[: prompt // BLOCK], prompt + reply))
        stamps.append(request // 10 * STEP_S * 1000)
        prompts.append(prompt)
        replies.append(reply)
        blocks.append(here)
    return _mooncake(folder / "mooncake" / "conversation_trace.jsonl", stamps, prompts, replies, blocks)


def mooncake_synthetic(folder: Path) -> Requests:
    """Stamps of milliseconds, requests that share a document of four blocks and nothing else."""
    rng, n = np.random.default_rng(5), 400
    stamps = np.cumsum(rng.exponential(250, n).astype(int) + 1).tolist()
    prompts, replies = (4 * BLOCK + _lengths(rng, n, 2000)).tolist(), _lengths(rng, n, 70).tolist()
    ids = count(4)
    blocks = [[0, 1, 2, 3, *(next(ids) for _ in range(-(-prompt // BLOCK) - 4))] for prompt in prompts]
    return _mooncake(folder / "mooncake" / "synthetic_trace.jsonl", stamps, prompts, replies, blocks)


def _mooncake(path: Path, stamps: list[int], prompts: list[int], replies: list[int], blocks: Any) -> Requests:
    rows = zip(stamps, prompts, replies, blocks, strict=True)
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    _json_lines(path, (dict(zip(names, row, strict=True)) for row in rows))
    time_s = (np.array(stamps) - stamps[0]) / 1000
    nothing = np.zeros(len(stamps), int)
    return Requests(path, time_s, np.array(prompts), np.array(replies), nothing.astype(str), nothing)


def ragpulse(folder: Path) -> Requests:
    """Sessions, as the join of RAGPulse's tables; one row comes a row too late."""
    rng = np.random.default_rng(6)
    rows: list[tuple[int, str, int, int, int, int]] = []  # s, session, query, history, passages, reply tokens
    starts = np.cumsum(rng.integers(2, 120, 120)).tolist()
    for session, begin in enumerate(starts):
        time_s, history = begin, 11
        for _ in range(rng.geometric(0.5)):
            query, passages, reply = (
                int(rng.integers(2, 20)),
                int(rng.integers(800, 2500)),
                int(rng.integers(30, 700)),
            )
            rows.append((time_s, f"{1_700_000_000_000 + session}-madeup", query, history, passages, reply))
            history += query + reply // 2
            time_s += int(rng.integers(5, 600))
    rows.sort(key=lambda row: row[0])
    path = folder / "ragpulse" / "sessions_derived.csv"
    prompt_tokens = 1400
    turns: dict[str, int] = {}
    joined = []
    for time_s, session, query, history, passages, reply in rows:
        turns[session] = turns.get(session, 0) + 1
        whole = prompt_tokens + passages + history + query
        joined.append([float(time_s - rows[0][0]), session, turns[session], query, history, passages, whole, reply])
    late = next(at for at in range(50, len(rows)) if rows[at][0] < rows[at + 1][0])
    joined[late], joined[late + 1] = joined[late + 1], joined[late]
    names = ["t", "session_id", "turn", "q_tok", "h_tok", "p_tok", "input_length", "output_length"]
    _csv(path, names, joined)
    time_s, session, query, history, passages, reply = (np.array(values) for values in zip(*rows, strict=True))
    return Requests(path, time_s - time_s[0], prompt_tokens + passages + query, reply, session, history)


@dataclass(frozen=True)
class Dialogues:
    """(prompt, reply) tokens of each exchange by its conversation, and what the loader must say that it left out."""

    path: Path
    exchanges: list[tuple[int, int, int]]
    notes: list[str]


def sharegpt(folder: Path) -> Dialogues:
    """Lengths in characters; a third of the conversations begin with an answer, and others end with a question."""
    rng = np.random.default_rng(7)
    rows: list[list[Any]] = []
    exchanges: list[tuple[int, int, int]] = []
    at_start = unanswered = without = 0
    for conversation in range(90):
        talk: list[tuple[str, int]] = []
        if conversation % 3 == 0:
            talk.append(("gpt", int(rng.integers(100, 2000))))
            at_start += 1
        turns = 0 if conversation % 30 == 0 else int(rng.integers(1, 6))
        for _ in range(turns):
            asked, said = int(rng.integers(1, 100)), int(rng.integers(1, 500))
            talk += [("human", 4 * asked), ("gpt", 4 * said - 3)]  # 4 characters a token, rounded up
            exchanges.append((conversation, asked, said))
        if conversation % 5 == 0:
            talk.append(("human", 40))
            unanswered += 1
        without += not turns
        rows += [[f"made{conversation:03d}_0", at, *message, 0] for at, message in enumerate(talk)]
    path = folder / "sharegpt" / "sharegpt_v3_sample1000_lengths.csv.gz"
    _csv(path, ["conv_id", "msg_index", "from", "n_chars", "n_words"], rows)
    notes = [
        f"{at_start} of {len(rows)} messages left out: answer at the start",
        f"{unanswered} of {len(rows)} messages left out: question without an answer",
        f"{without} conversations without a question and its answer",
    ]
    return Dialogues(path, exchanges, notes)


@dataclass(frozen=True)
class Watched:
    """Times in s of the readable questions of each video, ascending."""

    path: Path
    time_s: dict[str, list[int]]
    notes: list[str]


def streamingbench(folder: Path, layout: str) -> Watched:
    """Five questions a video, an entry for each or, in the layout `real_stream`, for all of them; one stamp of all
    is unreadable, one video has its questions in another order, and hours have one digit or two."""
    rng = np.random.default_rng(8)
    videos: list[list[dict[str, Any]]] = []
    time_s: dict[str, list[int]] = {}
    for video in range(40):
        times = np.cumsum(rng.integers(4, 240, 5)).tolist()
        path = f"./videos/made_{video:02d}_{layout}.mp4"
        time_s[path] = list(times)
        if video == 20:
            times = [times[1], times[0], *times[2:]]
        stamps = [f"{t // 3600:0{1 + video % 2}d}:{t // 60 % 60:02d}:{t % 60:02d}" for t in times]
        if video == 30:
            stamps[4] = f"00:{times[4]:05d}"
            del time_s[path][4]
        videos.append([_question(layout, stamp) | {"video_path": path} for stamp in stamps])
    entries = [[_entry(one["video_path"], [one]) for one in asked] for asked in videos]
    document: list[Any]
    if layout == "sqa":
        document = entries
    elif layout == "real_stream":
        document = [_entry(asked[0]["video_path"], asked) for asked in videos]
    else:
        document = [entry for of_video in entries for entry in of_video]
    path = folder / "streamingbench" / f"questions_{layout}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=4))
    notes = [
        "1 of 200 questions dropped: their time stamp cannot be read",
        "1 questions earlier in their video than the one before: sorted by time",
    ]
    return Watched(path, time_s, notes)


def _question(layout: str, stamp: str) -> dict[str, Any]:
    question = {"task_type": "Made Up", "question": "Which of the lamps is lit now?", "time_stamp": stamp}
    if layout == "proactive":
        return question | {"ground_truth_time_stamp": stamp, "ground_truth_output": "the left one"}
    return question | {"answer": "B", "options": ["A. None.", "B. The left one.", "C. Both.", "D. All."]}


def _entry(video: str, questions: list[dict[str, Any]]) -> dict[str, Any]:
    asked = [{name: value for name, value in one.items() if name != "video_path"} for one in questions]
    return {"time": "[0:00:00 - 0:20:00]", "questions": asked, "video_categories": "made_up", "video_path": video}


def androidlab(folder: Path) -> tuple[Path, list[int]]:
    """Tasks of three apps; (the folder, steps of each task)."""
    path = folder / "androidlab"
    path.mkdir(parents=True, exist_ok=True)
    steps: dict[str, int] = {}
    for app, wanted in (("kettle", [2, 3, 16]), ("lamp", [1, 4]), ("radio", [5, 5, 6, 9])):
        tasks = []
        for number, n in enumerate(wanted, 1):
            steps[f"{app}_{number}"] = n
            text = f"Open the {app}: press {number} and then {n}, “twice”."
            tasks.append({"task_id": f"{app}_{number}", "task": text, "metric_type": "operation"})
        document = {"APP": app, "package": f"org.example.{app}", "tasks": tasks}
        (path / f"{app}.yaml").write_text(yaml.safe_dump(document, allow_unicode=True), "utf-8")
    (path / "ground_truth_length.json").write_text(json.dumps(steps))
    return path, list(steps.values())


def vcsum(folder: Path) -> tuple[Path, list[tuple[int, int]]]:
    """Parts of meetings, a meeting's not always together; (the file, characters of transcript and summary of each)."""
    sentence, summary = "大家好，今天我们讨论新的灯。", "讨论了灯。"
    parts = {101: [3, 40], 102: [7], 103: [1, 2, 30]}
    order = [(103, 0), (101, 0), (102, 0), (101, 1), (103, 1), (103, 2)]
    lines = [
        {
            "id": f"{meeting}_{part}",
            "av_num": meeting,
            "context": [[sentence] * parts[meeting][part], [sentence]],
            "speaker": [1, 2],
            "discussion": summary,
        }
        for meeting, part in order
    ]
    path = folder / "vcsum" / "short_test.txt"
    _json_lines(path, lines)
    lengths = [(sum(n + 1 for n in ns) * len(sentence), len(ns) * len(summary)) for ns in parts.values()]
    return path, lengths


def servegen(folder: Path) -> tuple[Path, list[str]]:
    """Clients with idle windows, one of them without lengths; (the folder, the names of the clients)."""
    path = folder / "servegen"
    rate, cv = BUSY
    for name, law, output in (
        ("language/m-small/chunk-1", "Gamma", None),
        ("reason/deepseek-r1/chunk-1", "Weibull", 600),
        ("reason/deepseek-r1/chunk-2", "Gamma", 900),
    ):
        table = path / f"{name}-trace.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        windows = [f"{w * IDLE_S},{rate},{cv},{law},1.2,1.7" if w % 3 else f"{w * IDLE_S},0,0,,0,0" for w in range(36)]
        table.write_text("\n".join(windows) + "\n")
        if output is not None:
            lengths = {"input_tokens": "{70: 0.5, 90: 0.5}", "output_tokens": f"{{{output}: 1.0}}"}
            idle = {"input_tokens": "{}", "output_tokens": "{}"}
            (path / f"{name}-dataset.json").write_text(json.dumps({"0": lengths, "21600": idle}, indent=2))
    return path, ["language/m-small/chunk-1", "reason/deepseek-r1/chunk-1", "reason/deepseek-r1/chunk-2"]


def _lengths(rng: np.random.Generator, n: int, median: float) -> np.ndarray:
    return np.ceil(rng.lognormal(np.log(median), 0.8, n)).astype(int)


def _csv(path: Path, names: list[str], rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)


def _json_lines(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", "utf-8")
