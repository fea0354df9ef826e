"""The workloads of the published systems: each makes the users that its source describes."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.golden.pinned import check_trace
from tests.workloads.small_files import CHUNK, FILES, LENGTHS, MULTIMODAL
from workloads.arrival_statistics import dispersion, gap_cv, lag_1, rate
from workloads.classes import in_order
from workloads.dialogues import cut_history, number_turns, sum_before
from workloads.errors import UserError
from workloads.lengths import SHAREGPT_REPLY, LengthModel, Part, QuantileTable
from workloads.registry import WORKLOADS, make_trace
from workloads.trace import Trace

WITHOUT_FILE = sorted(
    name
    for name, workload in WORKLOADS.items()
    if not any(field.is_required() for field in workload.Params.model_fields.values())
)


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], str]:
    def write(name: str) -> str:
        file, text = FILES[name]
        (tmp_path / file).write_text(text)
        return str(tmp_path / file)

    return write


@pytest.mark.parametrize("name", WITHOUT_FILE)
def test_every_workload_makes_a_trace_that_its_seed_decides(name: str, tmp_path: Path) -> None:
    trace = make_trace(name, {}, 0)
    assert trace == make_trace(name, {}, 0)
    assert trace != make_trace(name, {}, 1)
    assert trace.header.generator == name
    trace.save(tmp_path / "t.parquet")
    assert Trace.load(tmp_path / "t.parquet") == trace


@pytest.mark.parametrize("name", FILES)
def test_every_workload_with_a_file_makes_a_trace_of_it(name: str, source) -> None:
    extra = {"shape": "vcsum"} if name == "offline" else {}
    assert len(make_trace(name, {"path": source(name), **extra}, 0)) >= 1


PINNED = (
    "weibull",
    "constant",
    "ramp",
    "burstgpt_fit",
    "sharegpt",
    "servegen",
    "interactive",
    "streamingbench",
    "omni_mix",
    "metronome",
    "gui",
    "gui_episodes",
    "offline",
    "novel",
)


@pytest.mark.parametrize("name", PINNED)
def test_golden_trace(name: str) -> None:
    """The same on every machine; a change here makes old and new results incomparable and needs a reason."""
    check_trace(f"trace_{name}", make_trace(name, {}, 0))


def starts(trace: Trace) -> np.ndarray:
    columns = trace.columns()
    return columns["arrival_s"][columns["turn"] == 0]


def test_burstgpt_fit_is_bursty_and_matches_a_peak() -> None:
    typed = {"modality": "text", "reply": "text", "requests": 20_000}
    trace = make_trace("burstgpt_fit", {**typed, "rate": 4}, 0)
    times = starts(trace)
    assert rate(times) == pytest.approx(4, rel=0.25)
    assert (gap_cv(times) or 0) > 1.7
    assert (dispersion(times, 10.0) or 0) > 10
    assert np.median(trace.columns()["input_tokens"]) == pytest.approx(353, rel=0.05)
    few = starts(make_trace("burstgpt_fit", {"requests": 32, "peak_rate": 4, "peak_window_s": 4}, 0))
    held = np.searchsorted(few, few + 4 + 1e-5, side="right") - np.arange(32)
    assert held.max() == 16
    with pytest.raises(UserError, match="takes more than requests=32; shorten peak_window_s"):
        make_trace("burstgpt_fit", {"requests": 32, "peak_rate": 4}, 0)
    with pytest.raises(UserError, match="rate and peak_rate both set the speed"):
        make_trace("burstgpt_fit", {"rate": 4, "peak_rate": 4}, 0)


def test_sharegpt_short_and_long_meet_at_the_median() -> None:
    def replies(kind: str) -> np.ndarray:
        params = {"kind": kind, "modality": "text", "reply": "text", "requests": 4000}
        return make_trace("sharegpt", params, 0).columns()["output_tokens"]

    assert replies("short").max() <= 300 <= replies("long").min()
    assert np.median(replies("all")) == pytest.approx(300, rel=0.05)


def test_sharegpt_layouts_agree(tmp_path: Path) -> None:
    talk = [
        ("gpt", "x" * 8),
        ("human", "a" * 40),
        ("gpt", "b" * 400),
        ("human", "c"),
        ("human", "d" * 4),
        ("gpt", "e" * 8),
    ]
    v3 = [{"id": "1", "conversations": [{"from": role, "value": text} for role, text in talk]}]
    share_ai = {
        "conversation_id": 1,
        "conversation": [
            {"human": "a" * 40, "assistant": "b" * 400},
            {"human": "d" * 4, "assistant": "e" * 8},
        ],
    }
    chat = [{"role": {"gpt": "assistant", "human": "user"}[role], "content": text} for role, text in talk]
    custom = [{"prompt": "a" * 40, "output_tokens": 100}, {"prompt": "d" * 4, "output_tokens": 2}]
    rows = [f"1,{i},{role},{len(text)},1" for i, (role, text) in enumerate(talk)]
    (tmp_path / "v3.json").write_text(json.dumps(v3))
    (tmp_path / "share_ai.jsonl").write_text(json.dumps(share_ai) + "\n")
    for column in ("conversations", "conversation", "messages"):
        (tmp_path / f"{column}.json").write_text(json.dumps([{column: chat}]))
    (tmp_path / "custom.jsonl").write_text("\n".join(map(json.dumps, custom)))
    (tmp_path / "lengths.csv").write_text("\n".join(["conv_id,msg_index,from,n_chars,n_words", *rows]))
    hashes = set()
    without_dirt = ("share_ai.jsonl", "custom.jsonl")
    chats = ("conversations.json", "conversation.json", "messages.json")
    for name in ("v3.json", "lengths.csv", *chats, *without_dirt):
        trace = make_trace("sharegpt", {"path": str(tmp_path / name), "modality": "text", "reply": "text"}, 0)
        pairs = zip(trace.columns()["input_tokens"], trace.columns()["output_tokens"], strict=True)
        assert set(pairs) == {(10, 100), (1, 2)}
        hashes.add(trace.header.hash)
        left_out = [note for note in trace.header.notes if "left out" in note]
        kinds = [
            "1 of 6 messages left out: answer at the start",
            "1 of 6 messages left out: question without an answer",
        ]
        assert left_out == ([] if name in without_dirt else kinds)
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            {"messages": [{"role": "user"}]},
            "'messages': [{'role': 'user'}] has messages without the texts 'from' and",
        ),
        ({"messages": "Hello"}, "'messages': 'Hello' is not a list of messages;"),
        ({"prompt": 5, "output_tokens": 3}, "'prompt': 5 is not a text;"),
        ({"prompt": "Why?", "output_tokens": "x"}, "'output_tokens': 'x' is not a number;"),
        ({"prompt": "Why?"}, "has no column 'output_tokens';"),
        ({"text": "Why?"}, "has no column 'conversations' or 'conversation' or 'messages' or 'prompt';"),
    ],
)
def test_conversations_that_cannot_be_read(tmp_path: Path, row: dict, sentence: str) -> None:
    (tmp_path / "talk.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError) as error:
        make_trace("sharegpt", {"path": str(tmp_path / "talk.jsonl")}, 0)
    assert sentence in str(error.value)


def test_lengths_from_a_table_of_pairs_stay_pairs(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("input_tokens,output_tokens,weight\n10,1,3\n20,2,1\n30,3,0\n")
    params = {"lengths": str(tmp_path / "l.csv"), "modality": "text", "requests": 4000}
    columns = make_trace("poisson", params, 0).columns()
    assert set(zip(columns["input_tokens"].tolist(), columns["output_tokens"].tolist(), strict=True)) == {
        (10, 1),
        (20, 2),
    }
    assert np.mean(columns["input_tokens"] == 10) == pytest.approx(0.75, abs=0.03)
    with pytest.raises(UserError, match=r"replaces reply_tokens; leave one of them out"):
        make_trace("poisson", {**params, "reply_tokens": 5}, 0)
    (tmp_path / "l.csv").write_text("input_tokens,output_tokens\n10,0\n")
    with pytest.raises(UserError, match="row 2, column 'output_tokens': '0' is less than 1 token"):
        make_trace("poisson", params, 0)


def test_servegen_pool_is_skewed_and_burstier_than_poisson() -> None:
    params = {"pool": "m-large", "duration_s": 3600, "rate": 20}
    trace = make_trace("servegen", params, 0)
    times = starts(trace)
    assert rate(times) == pytest.approx(20, rel=0.1)
    assert (dispersion(times, 1.0) or 0) > 1.5
    columns = trace.columns()
    assert np.percentile(columns["output_tokens"], [50, 99]) == pytest.approx([53, 872], rel=0.1)


def test_servegen_reads_windows_of_clients(tmp_path: Path) -> None:
    (tmp_path / "chunk-1-trace.csv").write_text(CHUNK)
    (tmp_path / "chunk-1-dataset.json").write_text(LENGTHS)
    trace = make_trace("servegen", {"path": str(tmp_path), "duration_s": 1800, "rate": None}, 0)
    times = starts(trace)
    counts = np.histogram(times, [0, 600, 1200, 1800])[0]
    assert counts[1] == 0
    assert counts[[0, 2]] == pytest.approx([300, 240], rel=0.3)
    assert set(trace.columns()["input_tokens"]) == {39, 40}
    with pytest.raises(UserError, match="no client sends a request in this time"):
        make_trace("servegen", {"path": str(tmp_path), "start_s": 600, "duration_s": 600}, 0)
    with pytest.raises(UserError, match="requests are more than 10000000"):
        make_trace("servegen", {"duration_s": 1e6, "rate": 1000}, 0)


def test_servegen_multimodal_clients_attach_what_they_attached(tmp_path: Path) -> None:
    (tmp_path / "chunk-0-trace.csv").write_text(CHUNK)
    entries = {"0": MULTIMODAL, "21600": dict.fromkeys(MULTIMODAL, "{}")}  # no requests in the second quarter
    (tmp_path / "chunk-0-dataset.json").write_text(json.dumps(entries))
    trace = make_trace("servegen", {"path": str(tmp_path), "duration_s": 600, "rate": 10}, 0)
    columns = trace.columns()
    assert set(columns["visual_tokens"]) == {1196, 3 * 1196}
    assert set(columns["input_tokens"] - columns["visual_tokens"]) == {136 + 50, 372 + 50}
    assert set(columns["output_tokens"]) == {19, 20}
    assert np.mean(columns["visual_tokens"] == 1196) == pytest.approx(0.5, abs=0.03)
    assert (
        "1 clients attach images, sounds or videos, whose tokens are part of the input" in trace.header.notes
    )
    (tmp_path / "chunk-1-trace.csv").write_text(CHUNK)
    (tmp_path / "chunk-1-dataset.json").write_text(LENGTHS)  # beside one who only types
    mixed = make_trace("servegen", {"path": str(tmp_path), "duration_s": 600, "rate": 10}, 0).columns()
    assert set(mixed["visual_tokens"]) == {0, 1196, 3 * 1196}
    assert set(mixed["input_tokens"][mixed["visual_tokens"] == 0]) == {39, 40}
    entries = {"0": MULTIMODAL | {"image_tokens": "{}", "image_count": "{}"}}  # one who sent no picture then
    (tmp_path / "chunk-0-dataset.json").write_text(json.dumps(entries))
    heard = make_trace("servegen", {"path": str(tmp_path), "duration_s": 600, "rate": 10}, 0).columns()
    assert set(heard["visual_tokens"]) == {0}
    assert set(heard["input_tokens"]) == {39, 40, 136 + 50, 372 + 50}


@pytest.mark.parametrize(
    ("field", "table", "sentence"),
    [
        ("image_count", "{1001: 1.0}", "image_count: a number is not between 0 and 1000"),
        ("image_tokens", "{-5: 1.0}", "image_tokens: a number is not between 0 and 10000000"),
        ("video_tokens", "{5: -1.0}", "video_tokens: a share is negative or no number"),
        ("audio_count", None, "audio_count: no quoted dictionary of numbers and their shares"),
        ("text_tokens", "[1]", "text_tokens: '[1]' is not a dictionary of numbers and their shares"),
    ],
)
def test_servegen_names_the_wrong_field(tmp_path: Path, field: str, table: str | None, sentence: str) -> None:
    (tmp_path / "chunk-0-trace.csv").write_text(CHUNK)
    path = tmp_path / "chunk-0-dataset.json"
    path.write_text(json.dumps({"0": MULTIMODAL | {field: table}}))
    with pytest.raises(UserError) as error:
        make_trace("servegen", {"path": str(tmp_path)}, 0)
    assert str(error.value) == f"{path}, '0': {sentence}; correct or remove this entry."


def test_interactive_users_stay_for_many_rounds_and_read_long_answers_longer() -> None:
    trace = make_trace("interactive", {"sessions": 4000}, 0)
    columns = trace.columns()
    rounds = np.bincount(columns["session"])
    assert rounds.mean() == pytest.approx(22.4, rel=0.06)
    more = rounds - 1
    assert more.mean() ** 2 / (more.var() - more.mean()) == pytest.approx(0.4, rel=0.15)
    later = columns["turn"] > 0
    before = np.roll(columns["output_tokens"], 1)[later]
    think = columns["think_s"][later]
    assert np.median(think[before < 100]) < 0.5 * np.median(think[before > 500])
    assert np.isnan(columns["arrival_s"][later]).all()


def test_interactive_in_an_open_loop_has_every_time() -> None:
    closed = make_trace("interactive", {}, 0).columns()
    open_ = make_trace("interactive", {"loop": "open"}, 0).columns()
    assert not np.isnan(open_["arrival_s"]).any()
    later = closed["turn"] > 0
    gaps = open_["arrival_s"][later] - np.roll(open_["arrival_s"], 1)[later]
    assert np.allclose(gaps, closed["think_s"][later], atol=1e-4)
    spoken = make_trace("interactive", {"loop": "open", "modality": "audio", "reply": "speech"}, 0).columns()
    gaps = spoken["arrival_s"][later] - np.roll(spoken["arrival_s"], 1)[later]
    taken = np.roll(spoken["audio_s"] + spoken["reply_audio_s"], 1)[later]
    assert np.all(gaps >= taken - 1e-3)


def test_a_conversation_that_grows_too_long_is_cut_and_sent_anew() -> None:
    trace = make_trace("interactive", {"max_history_tokens": 1000}, 0)
    columns = trace.columns()
    assert columns["history_tokens"].max() <= 1000
    again = (columns["turn"] > 0) & (columns["history_tokens"] == 0)
    assert (columns["input_tokens"][again] > 500).all()
    assert f"{again.sum()} turns after the older half was dropped, of 1000" in trace.header.notes
    with pytest.raises(UserError, match="set modality=text or leave it out"):
        make_trace("interactive", {"max_history_tokens": 1000, "modality": "audio", "reply": "speech"}, 0)


def test_history_grows_until_it_is_cut() -> None:
    new, replies, turn = np.array([10, 10, 10, 10]), np.array([40, 40, 40, 40]), np.arange(4)
    inputs, history = cut_history(new, replies, turn, most=120)
    assert history.tolist() == [0, 50, 100, 0]
    assert inputs.tolist() == [10, 10, 10, 70]
    session, turn = number_turns(np.array([2, 3]))
    assert (session.tolist(), turn.tolist()) == ([0, 0, 1, 1, 1], [0, 1, 0, 1, 2])
    assert sum_before(np.array([1, 2, 3, 4, 5]), turn).tolist() == [0, 1, 0, 3, 7]


def test_viewers_ask_at_the_times_of_the_questions(source) -> None:
    trace = make_trace("streamingbench", {"sessions": 2000}, 0)
    columns = trace.columns()
    assert set(np.bincount(columns["session"])) == {5}
    later = columns["turn"] > 0
    gaps = columns["arrival_s"][later] - np.roll(columns["arrival_s"], 1)[later]
    assert [np.median(gaps), np.percentile(gaps, 90)] == pytest.approx([122, 197], rel=0.05)
    assert columns["visual_tokens"].max() == 60 * 220
    assert np.all(columns["input_tokens"] > columns["visual_tokens"])
    one = make_trace("streamingbench", {"path": source("streamingbench"), "sessions": 3, "shown_s": 1000}, 0)
    assert set(one.columns()["visual_tokens"]) == {31 * 220}


@pytest.mark.parametrize(
    ("stamp", "note"),
    [
        ("00:12450", "1 of 2 questions dropped: their time stamp cannot be read"),
        ("05:11:00", "1 of 2 questions dropped: their time stamp is after 7200 s"),
        ("-00:00:05", "1 of 2 questions with a negative time stamp, set to 0"),
        ("00:24", None),
        ("00:00:8", None),
        ("0:07:40", None),
    ],
)
def test_dirty_time_stamps(tmp_path: Path, stamp: str, note: str | None) -> None:
    questions = [{"question": "Why?", "time_stamp": text} for text in ("00:00:31", stamp)]
    (tmp_path / "q.json").write_text(json.dumps([{"questions": questions, "video_path": "v"}]))
    trace = make_trace("streamingbench", {"path": str(tmp_path / "q.json"), "sessions": 1}, 0)
    counted = [text for text in trace.header.notes if "questions d" in text or "questions w" in text]
    assert counted == ([note] if note else [])
    assert len(trace) == (1 if note and "dropped" in note else 2)


def test_a_mix_holds_both_kinds_by_the_ratio() -> None:
    trace = make_trace("omni_mix", {"sessions": 400, "rate": 2, "video_share": 0.25, "p": 0.5}, 0)
    columns = trace.columns()
    opening = columns["turn"] == 0
    shows = ~np.isnan(columns["visual_tokens"])
    assert np.sum(opening & shows) == 100
    talks = columns["arrival_s"][opening & ~shows]
    assert rate(talks) == pytest.approx(1.5, rel=0.2)
    assert abs(lag_1(talks) or 0) < 0.2
    assert {name.partition("/")[0] for name in trace.header.streams} == {"streamingbench", "voice"}


def test_phone_agents_see_a_screen_and_act() -> None:
    trace = make_trace("gui", {"requests": 2000}, 0)
    columns = trace.columns()
    assert set(columns["visual_tokens"]) == {1600}
    assert (columns["output_tokens"].min(), columns["output_tokens"].max()) >= (30, 60)
    assert columns["output_tokens"].max() <= 80
    assert rate(starts(trace)) == pytest.approx(0.5, rel=0.1)


def test_an_episode_is_a_loop_of_steps_that_the_agent_closes() -> None:
    def made(**params: object) -> dict[str, np.ndarray]:
        return make_trace("gui_episodes", {"episodes": 2000, **params}, 0).columns()

    own = made()
    first = own["turn"] == 0
    assert np.bincount(own["session"]).mean() == pytest.approx(5.6, rel=0.05)
    assert np.isnan(own["arrival_s"][~first]).all() and np.isnan(own["think_s"][first]).all()
    assert own["think_s"][~first].min() >= 2 and own["think_s"][~first].max() <= 8
    assert np.median(own["think_s"][~first]) == pytest.approx(3.0, rel=0.03)
    # A prompt has the actions before it; each screenshot is new, so that nothing of the last prompt is reused.
    second = np.flatnonzero(own["turn"] == 1)
    assert (
        own["input_tokens"][second] == own["input_tokens"][second - 1] + own["output_tokens"][second - 1]
    ).all()
    assert set(own["history_tokens"]) == {0}
    # Who changes what a step shows changes no task, and no time.
    alone, whole = made(history="none"), made(history="all")
    for name in ("session", "turn", "output_tokens", "think_s"):
        assert np.array_equal(own[name], alone[name], equal_nan=True)
    assert (alone["input_tokens"][second] == alone["input_tokens"][second - 1]).all()
    assert set(whole["input_tokens"][second]) == {1600} and np.isnan(whole["history_tokens"]).all()


@pytest.mark.parametrize("mean", [1, 4.8, 15.3])
def test_episodes_take_as_many_steps_as_asked_for(mean: float) -> None:
    steps = np.bincount(make_trace("gui_episodes", {"episodes": 4000, "steps": mean}, 0).columns()["session"])
    assert steps.min() >= 1 and steps.mean() == pytest.approx(mean, rel=0.05)


def test_tasks_come_singly_or_in_bursts() -> None:
    def cv(**params: object) -> float:
        times = starts(make_trace("gui_episodes", {"episodes": 5000, "rate": 2, **params}, 0))
        assert rate(times) == pytest.approx(2, rel=0.25)
        return gap_cv(times) or 0

    assert cv() == pytest.approx(1, rel=0.1)
    assert cv(arrivals="gamma", cv=3) == pytest.approx(3, rel=0.2)
    assert cv(arrivals="burstgpt") > 1.7
    with pytest.raises(UserError, match="cv=3 is for arrivals=gamma, not poisson; leave it out"):
        cv(cv=3)


def test_recorded_episodes_are_played(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    rows = [
        {"episode_id": n, "goal": "g" * 40, "actions": [{"action_type": "click"}] * (n + 1)} for n in range(3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"goal": "", "actions": []}]))
    with pytest.raises(UserError, match=r"line 4, column 'goal': '' is empty; correct or remove this line"):
        make_trace("gui_episodes", {"path": str(path)}, 0)
    for name in ("gui", "gui_episodes"):
        trace = make_trace(name, {"path": str(path), "skip_bad": True}, 0)
        columns = trace.columns()
        assert set(columns["input_tokens"][columns["turn"] == 0]) == {1610}
        assert "1 of 4 lines skipped: 'goal' is empty" in trace.header.notes
    assert set(np.bincount(columns["session"])) == {1, 2, 3}


@pytest.mark.parametrize(
    ("shape", "means"),
    [("dureader", (21776, 166)), ("multinews", (6916, 394)), ("vcsum", (18803, 337))],
)
def test_offline_documents_have_the_lengths_of_table_1(shape: str, means: tuple[int, int]) -> None:
    columns = make_trace("offline", {"shape": shape, "requests": 20_000}, 0).columns()
    assert columns["input_tokens"].mean() == pytest.approx(means[0], rel=0.01)
    assert columns["output_tokens"].mean() == pytest.approx(means[1], rel=0.02)
    assert set(columns["arrival_s"]) == {0.0}
    assert columns["input_tokens"].max() <= 32_768


def test_novel_stays_under_its_cap() -> None:
    columns = make_trace("novel", {"requests": 20_000}, 0).columns()
    assert (columns["input_tokens"] + columns["output_tokens"]).max() <= 16_384
    assert columns["input_tokens"].mean() == pytest.approx(3500, rel=0.02)
    assert columns["output_tokens"].mean() == pytest.approx(1000, rel=0.02)
    with pytest.raises(UserError, match="pass cap=2000; raise it"):
        make_trace("novel", {"cap": 2000}, 0)


def test_laws_of_lengths() -> None:
    law = LengthModel.through(166, 754, 10_000, "x")
    drawn = law.sample(np.random.default_rng(0), 200_000)
    assert [drawn.mean(), np.percentile(drawn, 99)] == pytest.approx([166, 754], rel=0.02)
    with pytest.raises(ValueError, match="no lognormal"):
        LengthModel.through(1, 100, 1000, "x")
    table = QuantileTable((0.0, 0.5, 1.0), (1, 10, 1000), "x")
    assert np.median(table.sample(np.random.default_rng(0), 20_000)) == pytest.approx(10, abs=1)
    assert table.adjusted(None, None, 50).sample(np.random.default_rng(0), 1000).max() == 50
    assert table.adjusted(20, None, None).median == pytest.approx(20)
    assert isinstance(table.adjusted(None, 0.5, None), LengthModel)
    long = Part(SHAREGPT_REPLY, 0.5, 1.0)
    assert long.sample(np.random.default_rng(0), 1000).min() >= 300


def test_co_serving_is_its_two_classes() -> None:
    trace = make_trace("co_serving", {"requests": 2000, "rate": 4, "cv": 3, "documents": 60}, 0)
    columns = trace.columns()
    online, batch = in_order(columns).items()
    assert (online[0], batch[0]) == ("online", "batch")
    assert [int(rows.sum()) for _, rows in (online, batch)] == [2000, 60]
    arrivals = columns["arrival_s"]
    assert not arrivals[batch[1]].any()
    assert rate(arrivals[online[1]]) == pytest.approx(4, rel=0.1)
    assert gap_cv(np.sort(arrivals[online[1]])) == pytest.approx(3, rel=0.15)
    assert np.median(columns["input_tokens"][batch[1]]) > 50 * np.median(columns["input_tokens"][online[1]])
    assert set(columns["priority"][online[1]]) == {0} and set(columns["priority"][batch[1]]) == {10}
    assert set(columns["ttft_deadline_s"][online[1]]) == {1.5}
    assert np.isnan(columns["ttft_deadline_s"][batch[1]]).all()
    assert set(columns["modality"]) == {"text"} and np.isnan(columns["reply_audio_s"]).all()


def test_a_class_of_co_serving_does_not_change_the_other() -> None:
    def class_(name: str, **params) -> list[tuple]:
        columns = make_trace("co_serving", params, 0).columns()
        rows = in_order(columns)[name]
        return [tuple(row) for row in np.array([columns[n][rows] for n in LENGTHS_AND_TIMES]).T.tolist()]

    assert class_("online") == class_("online", documents=3, shape="vcsum", batch_priority=2)
    assert class_("batch") == class_("batch", requests=5, rate=9, tbt_deadline_s=None)
    short = make_trace("co_serving", {"max_input_tokens": 500, "max_output_tokens": 50}, 0).columns()
    assert (short["input_tokens"].max(), short["output_tokens"].max()) == (500, 50)


def test_online_requests_come_and_are_as_long_as_chosen() -> None:
    def online(**params) -> dict[str, np.ndarray]:
        columns = make_trace("co_serving", {"requests": 4000, "documents": 0, **params}, 0).columns()
        assert set(columns["request_class"]) == {"online"}
        return columns

    plain, chat = online(), online(chat="burstgpt")
    assert (plain["arrival_s"] == chat["arrival_s"]).all()
    for name, mean, p99 in (("input_tokens", 2747, 3446), ("output_tokens", 267, 481)):  # ConServe, Table 1
        assert chat[name].mean() == pytest.approx(mean, rel=0.02)
        assert np.percentile(chat[name], 99) == pytest.approx(p99, rel=0.05)
    fixed = online(input_tokens=4096, output_tokens=256, cv=0.5)
    assert set(fixed["input_tokens"]) == {4096} and set(fixed["output_tokens"]) == {256}
    assert gap_cv(fixed["arrival_s"]) == pytest.approx(0.5, rel=0.1)
    bursts = online(online="burstgpt", rate=2.0)
    assert (bursts["input_tokens"] == plain["input_tokens"]).all()
    assert gap_cv(bursts["arrival_s"]) > 1.5


def test_a_pool_of_co_serving_has_documents_for_longer_than_users_come() -> None:
    params = {"requests": 100, "rate": 2.0, "pool": 6, "pool_tps": 10_000.0}
    trace = make_trace("co_serving", params, 0)
    columns = trace.columns()
    batch = in_order(columns)["batch"]
    assert set(columns["pool"][batch]) == {6} and np.isnan(columns["pool"][~batch]).all()
    assert not columns["arrival_s"][batch].any()
    tokens = (columns["input_tokens"] + columns["output_tokens"])[batch].sum()
    users_s = columns["arrival_s"].max()
    assert 10_000 * (users_s + 60) * 0.9 < tokens < 10_000 * (users_s + 60) * 1.3
    alone = make_trace("co_serving", {"requests": 100, "rate": 2.0, "documents": 0}, 0).columns()
    assert (alone["arrival_s"] == columns["arrival_s"][~batch]).all()


def test_co_serving_without_what_is_new_has_the_hash_and_the_parameters_from_before_it() -> None:
    header = make_trace("co_serving", {}, 0).header
    assert header.hash.startswith("00e07edbacebf097")
    assert not {"online", "chat", "pool", "pool_tps", "path", "input_tokens"} & set(header.params)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"pool": 4, "documents": 7}, "leave one of them out"),
        ({"pool_tps": 5.0}, "set pool too"),
        ({"input_tokens": 5}, "set both or leave both out"),
        ({"input_tokens": 5, "output_tokens": 5, "chat": "burstgpt"}, "leave one out"),
        ({"online": "burstgpt", "cv": 2.0}, "leave one out"),
        ({"path": "x.jsonl"}, "set shape to which it is"),
    ],
)
def test_two_ways_to_say_what_co_serving_is_are_refused(params: dict, told: str) -> None:
    with pytest.raises(UserError, match=told):
        make_trace("co_serving", params, 0)


LENGTHS_AND_TIMES = ("arrival_s", "input_tokens", "output_tokens", "network_s")
