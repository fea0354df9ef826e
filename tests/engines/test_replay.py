"""Whole replays: what must hold for every engine, and golden hashes that pin each variant's behaviour."""

import hashlib
from typing import Any

import pytest

from engines.core.vllm_adapter import StageScheduler
from tests.builders import turn, typed_turn
from tests.engines.replays import cut_short, run, voice_trace
from tests.golden.pinned import check
from workloads.trace import Trace, Turn

ENGINES = ["vllm_omni_wo", "vllm_omni", "liveserve"]


def events_of(replayed) -> Any:
    events = replayed.events.to_pandas()
    return events.astype({"kind": str, "stage": str})


def check_events(name: str, replayed) -> None:
    """Compare the hash of the event log, with times to the microsecond, with the pinned one."""
    events = events_of(replayed)
    events[["t", "value"]] = events[["t", "value"]].round(6) + 0.0
    written = events.to_csv(index=False, float_format="%.6f").encode()
    check(name, events, hashlib.sha256(written).hexdigest()[:16])


def packets_of(events: Any) -> Any:
    """Frames of each packet, by session and turn."""
    frames = (events.query("kind == 'audio'").set_index(["session", "turn"])["value"] / 0.08).round()
    return frames.groupby(level=[0, 1]).apply(list)


def turns_of(trace: Trace) -> dict[tuple[int, int], Turn]:
    return {(each.session, each.turn): each for session in trace.sessions for each in session.turns}


def frames_of(turn: Turn) -> int:
    """Codec frames of a spoken reply."""
    return max(1, round((turn.reply_audio_s or 0.0) / 0.08))


GOLDEN = {
    "vllm_omni_wo": "replay_vllm_omni",  # the same: nothing is evicted, so nothing has to come back
    "vllm_omni": "replay_vllm_omni",
    "liveserve": "replay_liveserve",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_golden_trace(engine: str):
    """A change of behaviour, ours or vLLM's, shows here first; look at why before pinning the new hash."""
    check_events(GOLDEN[engine], run(voice_trace(), engine))


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_every_reply_is_heard_in_full_in_packets_of_4_and_25_frames(engine: str):
    trace = voice_trace(p=0.0)
    events = events_of(run(trace, engine, {"c": 5}))
    frames = {key: frames_of(each) for key, each in turns_of(trace).items()}
    packets = packets_of(events)
    assert set(packets.index) == set(frames)
    for key, got in packets.items():
        assert (sum(got), got[0]) == (frames[key], min(4, frames[key]))
        assert set(got[1:-1]) <= {25}
    tokens = events.query("kind == 'token'").groupby("stage")["value"].sum()
    assert tokens["thinker"] == sum(each.output_tokens for each in turns_of(trace).values())
    assert tokens["talker"] == sum(frames.values())


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_nothing_comes_after_a_barge_in_and_all_blocks_return(engine: str):
    """T-k: no token behind the abort is delivered, and the blocks are free."""
    replayed = run(cut_short(voice_trace(turns=3.0), after_s=1.0), engine)
    events, steps = events_of(replayed), replayed.steps.to_pandas()
    cuts = events.query("kind == 'barge_in'").set_index(["session", "turn"])["t"]
    assert len(cuts) >= 5
    for (session, index), cut_s in cuts.items():
        of_turn = events[(events["session"] == session) & (events["turn"] == index)]
        assert not (of_turn.query("kind in ['audio', 'text', 'first_text', 'reply_done']")["t"] > cut_s).any()
        for stage in ("thinker", "talker"):
            of_stage = of_turn[of_turn["stage"] == stage]
            ended = of_stage.query("kind in ['abort', 'finish']")
            assert len(ended) == 1
            tokens = of_stage.query("kind == 'token'")
            assert not (tokens["t"] > ended["t"].item()).any()
            heard = of_stage.query("kind == 'heard'")["value"].item()
            # The step under way at the abort had computed at most one more token.
            assert heard <= tokens["value"].sum() <= ended["value"].item() <= tokens["value"].sum() + 1
    last = steps.groupby(["stage", "replica"], observed=True).last()
    assert (last["kv_used"] == 0).all()


@pytest.fixture
def prompts(monkeypatch) -> dict[str, list[int]]:
    """Every prompt that reaches a scheduler, by request id."""
    seen: dict[str, list[int]] = {}

    def add_request(self, request):
        seen[request.request_id] = list(request.prompt_token_ids)
        super(StageScheduler, self).add_request(request)

    monkeypatch.setattr(StageScheduler, "add_request", add_request)
    return seen


def test_a_stated_history_of_the_session_s_length_is_its_own_history(prompts):
    stated = enumerate((0, 100, 70))
    run(Trace.from_turns(typed_turn(index=i, input_tokens=40, history_tokens=tokens) for i, tokens in stated))
    first, second, cut = (prompts[f"0.{i}.thinker"] for i in range(3))
    assert second[:40] == first  # 40 said + 60 answered = the 100 that are stated
    assert [len(prompt) for prompt in (first, second, cut)] == [40, 140, 110]
    assert cut[:40] != first


def test_a_stated_context_begins_as_the_turn_or_the_prefix_that_it_names(prompts):
    turns = [
        typed_turn(input_tokens=40, history_tokens=20, prefix=5),
        typed_turn(index=1, input_tokens=40, history_tokens=70, prefix=0, waits="1:0"),
        typed_turn(1, input_tokens=40, history_tokens=90, prefix=0, waits="-1:0", think_s=0.0),
        typed_turn(2, input_tokens=40, history_tokens=200, prefix=0, waits="-2:0", think_s=0.0),
        typed_turn(3, input_tokens=40, history_tokens=10, prefix=5),
    ]
    run(Trace.from_turns(turns))
    names = ("0.0", "0.1", "1.0", "2.0", "3.0")
    first, cut, called, longer, stranger = (prompts[f"{name}.thinker"] for name in names)
    assert [len(prompt) for prompt in (first, cut, called, longer, stranger)] == [60, 110, 130, 240, 50]
    assert cut[:60] == called[:60] == longer[:60] == first and cut[:70] == called[:70]
    assert longer[:90] == called[:90] and longer[:120] != called[:120]
    assert stranger[:10] == first[:10] and stranger[10:20] != first[10:20]


def test_visual_tokens_add_to_the_tokens_of_speech(prompts):
    run(Trace.from_turns([turn(visual_tokens=200, input_tokens=226)]))
    assert len(prompts["0.0.thinker"]) == 26 + 200


def test_the_next_turn_hits_the_heard_history_in_the_prefix_cache():
    """T-k."""
    trace = Trace.from_turns([turn(audio_s=20.0, barge_in_after_s=10.0), turn(index=1)])
    steps = run(trace, server={"prefix_caching": True}).steps.to_pandas()
    prefills = steps.query("stage == 'thinker' and prefill_tokens > 1")["prefill_tokens"].to_list()
    heard = 26 + 260 + 35  # second turn's speech, first turn's, about 10 s of the reply
    assert prefills[0] == 260
    assert prefills[1] <= heard - (260 + 32) // 16 * 16 + 16


@pytest.mark.parametrize(("deployment", "most"), [("qwen3_omni_2gpu", 1), ("qwen3_omni_8gpu", 4)])
def test_a_closed_loop_may_have_c_sessions_for_each_replica(deployment: str, most: int):
    trace = voice_trace(rate=50.0, turns=1.0)
    events = events_of(run(trace, client={"c": 1, "c_scope": "replica"}, server={"deployment": deployment}))
    online = events.query("kind in ['session_start', 'session_end']").sort_values("t", kind="stable")
    assert online["kind"].map({"session_start": 1, "session_end": -1}).cumsum().max() == most


def lead_s(engine: str, server: dict | None = None, **params: float) -> float:
    """Seconds by which the talker ends one long, uninterrupted reply before its listener has heard it."""
    trace = Trace.from_turns([turn(output_tokens=235, reply_audio_s=65.84)])
    paced = {"pacing": "always", **params} if engine == "liveserve" else {}
    events = events_of(run(trace, engine, server=server, **paced))
    finished = events.query("kind == 'finish' and stage == 'talker'")["t"].max()
    return events.query("kind == 'audio'")["t"].min() + 65.84 - finished


def test_liveserve_holds_generation_near_playback():
    """Fig. 15 right: one long reply. The baseline finishes early; LiveServe keeps a lead of about 10.6 s."""
    assert lead_s("vllm_omni") > 50.0
    assert lead_s("liveserve") == pytest.approx(10.6, abs=2.0)
    assert lead_s("liveserve", lead_cap_s=2.0, lead_growth=0.16) == pytest.approx(10.6, abs=2.0)
    assert lead_s("liveserve", lead_cap_s=2.0) == pytest.approx(2.0, abs=2.0)
