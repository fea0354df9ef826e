"""The urgency scheduler against its specification: classes, order, utility, strict break, deferral, wake-up."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.policy import StageView
from engines.systems.liveserve import liveserve_params, urgency
from engines.systems.liveserve.liveserve_params import Params
from engines.systems.liveserve.scheduler import UrgencyPolicy
from engines.systems.liveserve.urgency import U0, U1, U2
from engines.turns.monitor import SessionView
from engines.turns.reply import Progress, SpeechView
from tests.engines.replays import run, voice_trace
from workloads.trace import Trace

NOW = 100.0
DEFAULTS = Params.model_validate({})
SHARING = {"u2_mode": "yielding"}
KEPT_UP = {"keep_up": True}
PACED = {"pacing": "always"}
UNDELIVERED = {"frames": 60, "played_s": 2.0}
DELIVERED = {"delivered_safe_s": 0.05, "buffer_basis": "delivered"}


def request(
    name: str,
    *,
    frames: int = 0,
    played_s: float | None = None,
    delivered_s: float | None = None,
    sent: int | None = None,
    text: int = 0,
    **fields: Any,
) -> SpeechView:
    """A talker request: `played_s` None means no first audio yet; by default all frames are delivered."""
    session = SessionView(session=0, speech_s_per_token=0.28)
    if played_s is not None:
        delivered = frames * 0.08 if delivered_s is None else played_s + delivered_s
        session.first_audio_s, session.last_ack_s, session.playing = 50.0, NOW, True
        session.audio_sent_s, session.played_s = delivered, played_s
    progress = Progress(spoken=True, chunk_end=frames + 25, frame_s=0.08, frames=frames, text_tokens=text)
    progress.frames_sent = frames if sent is None else sent
    defaults = {"ready_s": 0.0, "running": True, "tokens": 100, "computed": 99, "blocks": 7}
    return SpeechView(name, **{**defaults, **fields}, progress=progress, session=session)


def newcomer(name: str, ready_s: float = 0.0, tokens: int = 400) -> SpeechView:
    """A request that has not begun."""
    return request(name, ready_s=ready_s, running=False, tokens=tokens, computed=0, blocks=0)


def view(*requests: SpeechView, stage: str = "talker", **budgets) -> StageView:
    defaults = {
        "token_budget": 2048,
        "slot_budget": 64,
        "free_blocks": 500,
        "allocatable_blocks": 1000,
        "block_size": 16,
        "step_s": lambda work: 0.001,
    }
    return StageView(stage=stage, now=NOW, requests=list(requests), **{**defaults, **budgets})


def plan(*requests: SpeechView, params: dict | None = None, stage: str = "talker", **budgets):
    return UrgencyPolicy(stage, Params.model_validate(params or {})).plan(view(*requests, stage=stage, **budgets))


def rank(r: SpeechView, stage: str = "talker", **params) -> int:
    return urgency.assess(stage, r, NOW, Params.model_validate(params))[0]


@pytest.mark.parametrize(
    ("fields", "params", "expected"),
    [
        pytest.param({"frames": 4}, {}, U1, id="before first audio, although its buffer is 0 s"),
        pytest.param({"frames": 50, "played_s": 2.0}, {}, U0, id="P_safe exactly"),
        pytest.param({"frames": 51, "played_s": 2.0}, {}, U2, id="above P_safe"),
        pytest.param({**UNDELIVERED, "delivered_s": 0.1}, {}, U0, id="generated, too little delivered"),
        pytest.param({**UNDELIVERED, "delivered_s": 0.125}, {"delivered_safe_s": 0.125}, U0, id="delivered exactly"),
        pytest.param({**UNDELIVERED, "delivered_s": 0.1}, {"delivered_safe_s": 0.05}, U2, id="enough is delivered"),
        pytest.param({**UNDELIVERED, "delivered_s": 0.1}, DELIVERED, U0, id="delivered audio alone counts"),
    ],
)
def test_classes_of_the_talker(fields: dict[str, Any], params: dict[str, Any], expected: int):
    """T-a: U1 is tested before the buffer is; equality is U0."""
    assert rank(request("a", **fields), **params) == expected


@pytest.mark.parametrize(("field", "value"), [("spoken", False), ("voiced", True)])
def test_unspoken_text_is_u1_until_its_first_token_and_then_never_held(field: str, value: bool):
    a = request("a", frames=10, played_s=0.8)
    setattr(a.progress, field, value)
    assert rank(a, "thinker") == U1
    a.progress.text_tokens = a.progress.text_arrived = 400
    assert (rank(a, "thinker"), plan(a, stage="thinker", params=PACED).order) == (U2, ["a"])


def test_the_thinker_s_buffer_is_the_text_that_the_talker_has_not_taken():
    ahead = request("a", frames=10, played_s=0.0, text=20)
    ahead.progress.text_arrived = 20
    assert urgency.assess("thinker", ahead, NOW, DEFAULTS)[1] == pytest.approx((20 - 10) * 0.28)
    both = urgency.assess("thinker", ahead, NOW, Params.model_validate({"thinker_buffer": "cumulative"}))[1]
    assert both == pytest.approx(10 * 0.28 + 0.8)


def test_a_reply_whose_text_outlasts_its_audio_ends():
    turns = [turn for session in voice_trace().sessions for turn in session.turns]
    long = {"output_tokens": 400, "reply_audio_s": 2.0, "barge_in_after_s": None}
    events = run(Trace.from_turns(replace(turn, **long) for turn in turns), "liveserve").events.to_pandas()
    assert (events["kind"] == "turn_done").sum() == len(turns)


def test_played_time_is_extrapolated_from_the_last_ack_and_bounded_by_what_was_sent():
    session = SessionView(0, 0.28, audio_sent_s=3.0, last_ack_s=10.0, played_s=1.0, playing=True)
    assert session.played(10.5) == pytest.approx(1.5)
    assert session.played(99.0) == 3.0
    assert replace(session, playing=False).played(99.0) == 1.0


seconds = st.floats(0, 30)
anybody = st.builds(
    request,
    st.uuids().map(str),
    frames=st.integers(0, 400),
    played_s=st.none() | seconds,
    delivered_s=st.none() | seconds,
    ready_s=seconds,
    blocks=st.integers(7, 60),
    text=st.integers(0, 400),
)
settings_of_order = st.fixed_dictionaries(
    {
        "pacing": st.sampled_from(["always", "never"]),
        "buffer_basis": st.sampled_from(["generated", "delivered"]),
        "thinker_buffer": st.sampled_from(["local", "cumulative"]),
        "talker_alpha": st.sampled_from([None, 0.3]),
        "thinker_beta": st.sampled_from([None, 20.0]),
        "lead_growth": st.sampled_from([0.0, 0.3]),
    }
)


def by_parts(policy: UrgencyPolicy, r: SpeechView) -> tuple:
    """Return (held, class, its place there) of a request, by `urgency` and the session's view alone."""
    params, weights = policy.params, policy.weights
    assessed, buffer, _ = urgency.assess(policy.stage, r, NOW, params)
    exposure = urgency.barge_in_exposure(buffer, weights.safe_s)
    utility = urgency.utility(exposure, r.blocks / 1000, 0.5, weights)
    within = buffer if assessed == U0 else r.ready_s
    if assessed == U2 and utility is not None:
        within = -utility
    heard_s = r.session.played(NOW) if r.progress.spoken and not r.progress.voiced else 0.0
    cap = policy.lead_exposure + params.lead_growth / weights.safe_s * heard_s
    far = assessed == U2 and exposure > cap and (utility is None or utility < 0)
    between = policy.stage == "thinker" or r.progress.frames == r.progress.frames_sent
    return far and between and params.pacing == "always", assessed, within, r.ready_s, r.id


@given(
    st.lists(st.tuples(anybody, st.integers(0, 31), seconds)), settings_of_order, st.sampled_from(["talker", "thinker"])
)
def test_a_plan_holds_and_orders_each_request_by_its_class_and_utility(crowd, params, stage: str):
    for r, states, ago_s in crowd:
        r.progress.spoken, r.progress.voiced, r.speculative = (states % 8 != 0, states % 8 == 1, states % 8 == 2)
        r.session.playing, r.session.last_ack_s = (states < 16, NOW - ago_s if states % 8 > 3 else r.session.last_ack_s)
    requests = [r for r, _, _ in crowd]
    policy = UrgencyPolicy(stage, Params.model_validate({"u2_mode": "work_conserving", **params}))
    result = policy.plan(view(*requests, stage=stage, token_budget=10**6, slot_budget=10**6))
    known = all(r.session.telemetry_ok(NOW, 2.0) for r in requests)
    expected = sorted(by_parts(policy, r) for r in requests) if known else []
    assert list(result.order) == [name for held, *_, name in expected if not held]
    assert result.held == {name for held, *_, name in expected if held}
    counters = policy.counters
    counted = [counters[name] for name in ("u0", "u1", "u2", "ahead")]
    assert counted == [sum(one[1] == assessed for one in expected) for assessed in range(4)]
    assert counters["fallback_order"] == (not known)
    assert counters["fallback_u2_age"] == (counters["u2"] > 0 and None in (policy.weights.alpha, policy.weights.beta))


@pytest.mark.parametrize(("buffer_s", "exposure"), [(0.0, 0.0), (2.0, 0.0), (3.0, 0.5), (6.0, 2.0)])
def test_exposure_is_zero_up_to_p_safe_and_rises_with_slope_one_over_p_safe(buffer_s: float, exposure: float):
    """Equation (2); T-d."""
    assert urgency.barge_in_exposure(buffer_s, safe_s=2.0) == exposure


@pytest.mark.parametrize(("occupied_share", "utility"), [(0.0, -1.5), (1.0, -0.7)])
def test_utility_is_exposure_and_kv_pressure_weighted(occupied_share: float, utility: float):
    """Equations (1) and (3): -3.0 x 0.5 of exposure, and 4.0 x 0.2 of held KV times the occupied share; T-e."""
    weights = urgency.Weights(safe_s=2.0, alpha=3.0, beta=4.0)
    found = urgency.utility(0.5, held_share=0.2, occupied_share=occupied_share, weights=weights)
    assert found == pytest.approx(utility)


def test_without_kv_awareness_pressure_does_not_count():
    """The switch of Fig. 17."""
    far = request("far", frames=1000, played_s=2.0, blocks=900)
    aware = {"talker_beta": 100.0, **PACED}
    assert plan(far, params=aware, free_blocks=0).order == ["far"]
    assert plan(far, params={**aware, "kv_aware": False}, free_blocks=0).order == []


def test_the_weights_are_those_of_the_offline_sweep():
    shipped = liveserve_params.shipped()
    assert set(shipped) == {"thinker", "talker"}
    for stage, weights in shipped.items():
        used = urgency.weights(stage, DEFAULTS)
        assert (used.alpha, used.beta) == (weights.alpha, weights.beta)


def test_a_round_counts_its_classes_deferrals_and_breaks():
    policy = UrgencyPolicy("talker", Params.model_validate({"kv_relief": False}))
    urgent, safe = request("urgent"), request("safe", frames=70, played_s=2.0)
    waiting = newcomer("waiting", 5.0)
    policy.plan(view(urgent, safe, waiting, free_blocks=20, step_s=lambda work: 0.010))
    expected = {"rounds": 1, "u1": 2, "u2": 1, "u2_deferred": 1, "u2_deferred_rounds": 1, "held_running": 1}
    expected |= {"held_running_rounds": 1, "break_blocked": 1}
    assert {name: n for name, n in policy.counters.items() if n} == expected


def test_strict_break_stops_at_the_first_misfit_and_skip_does_not():
    """T-c: of fits, misfit, fits only the first runs."""
    asked = request("fits", ready_s=1.0), newcomer("misfit", 2.0), request("also", ready_s=3.0)
    for on_misfit, order in (("break", ["fits"]), ("skip", ["fits", "also"])):
        params = {"kv_relief": False, "on_misfit": on_misfit}
        assert plan(*asked, free_blocks=20, params=params).order == order


def test_the_token_and_seat_budgets_bind_too():
    prefill = newcomer("prefill", 1.0, tokens=64)
    decode = request("decode", ready_s=2.0)
    assert plan(prefill, decode, token_budget=64).order == ["prefill"]
    seated = request("seated", ready_s=0.5)
    # Both slots are taken: strict break
    assert plan(seated, prefill, decode, slot_budget=2).order == ["seated"]
    assert plan(seated, prefill, decode, slot_budget=2, params={"on_misfit": "skip"}).order == ["seated", "decode"]


def crowd(heard: int, lead_s: float) -> list[SpeechView]:
    """`heard` listeners with this lead, who have heard 2 s."""
    return [request(f"r{i}", frames=round((lead_s + 2.0) / 0.08), played_s=2.0) for i in range(heard)]


def test_u2_joins_an_urgent_step_that_still_ends_in_time():
    urgent = request("urgent", frames=25, played_s=1.0, sent=25)  # 1 s delivered; 25 frames to the next chunk
    safe = request("safe", frames=70, played_s=1.0)
    assert plan(urgent, safe, step_s=lambda work: 0.030, params=SHARING).order == ["urgent", "safe"]
    assert plan(urgent, safe, step_s=lambda work: 0.039, params=SHARING).order == ["urgent"]


def test_a_request_whose_lead_could_not_be_made_up_is_not_held():
    """The urgent one lacks 1 s of P_safe. At 39 ms a step of two makes 2.1 s beyond the two it hears, so that 0.5 s of
    lead bridge it; at 79 ms it makes 0.03 s beyond, and a lead of 2.6 s does not."""
    urgent = request("urgent", frames=25, played_s=1.0, sent=25)
    safe = request("safe", frames=70, played_s=1.0)
    assert plan(urgent, safe, step_s=lambda work: 0.039, params=SHARING).held == {"safe"}
    assert not plan(urgent, safe, step_s=lambda work: 0.079, params=SHARING).held


def test_of_a_burst_the_oldest_begin_that_the_talker_keeps_up_with():
    """In a step of ten, 79 ms, they make 10 x 0.08 / 0.079 = 10.1 s a second; eleven make 10.2, and hear 11."""
    burst = [request(f"r{i:02}", ready_s=20.0 - i) for i in range(20)]
    oldest_first = [r.id for r in burst[::-1]]
    assert plan(*burst, step_s=lambda work: 0.010 + 0.0069 * work.requests, params=KEPT_UP).order == oldest_first[:10]
    # Too slow for any listener: one begins all the same
    assert plan(*burst, step_s=lambda work: 1.0, params=KEPT_UP).order == oldest_first[:1]


def test_listeners_far_ahead_do_not_keep_a_reply_from_beginning():
    waiting = crowd(20, 12.0)
    result = plan(*waiting, request("new"), step_s=lambda work: 0.0079 * work.requests, params=KEPT_UP | PACED)
    assert (result.order, len(result.held)) == (["new"], 20)


@pytest.mark.parametrize(
    ("pacing", "interrupted", "held"),
    [("always", 0, {"a"}), ("never", 40, set()), ("interrupted", 2, set()), ("interrupted", 3, {"a"})],
)
def test_leads_are_capped_if_more_than_5_percent_of_replies_are_interrupted(pacing, interrupted, held):
    """2 of 40 replies are 5 %."""
    far = request("a", frames=200, played_s=2.0)
    far.session.workload.heard, far.session.workload.interrupted = 40, interrupted
    assert plan(far, params={"pacing": pacing}).held == held


def test_u2_runs_in_no_step_that_the_urgent_wait_for():
    for urgent in (request("first", frames=3, sent=0), request("dry", frames=50, played_s=2.0)):
        result = plan(urgent, *crowd(9, 5.0))
        assert (result.order, len(result.held)) == ([urgent.id], 9)
        assert len(plan(*crowd(9, 5.0)).order) == 9


def fetching(name: str, *, text_arrived: int = 10, fetched_s: float = NOW + 0.001, **more) -> SpeechView:
    """A request that sits out a step, as its next token of text is fetched until `fetched_s`."""
    parked = request(name, frames=3, sent=0, **more)
    parked.progress.text_arrived, parked.progress.fetched_s = text_arrived, fetched_s
    return parked


def test_u2_waits_while_the_text_of_a_first_packet_is_fetched():
    waits = plan(*crowd(3, 5.0), parked=[fetching("first")])
    assert (waits.order, len(waits.held), waits.wake_s) == ([], 3, NOW + 0.001)
    assert plan(request("dry", frames=50, played_s=2.0), parked=[fetching("first")]).order == ["dry"]


@pytest.mark.parametrize(
    ("growth", "heard_s", "leads_s", "wake_s"),
    [
        (0.0, 2.0, (14.0, 22.0), 14.0 - 10.6),
        (0.5, 4.0, (26.0,), 14.0 / 1.5),  # 10 s and half of what is heard are allowed: in t s 26 - t and 12 + t / 2
    ],
)
def test_when_all_are_deferred_the_stage_asks_to_be_woken_when_a_lead_has_shrunk(growth, heard_s, leads_s, wake_s):
    """T-n."""
    far = [request(f"{s}", frames=round((heard_s + s) / 0.08), played_s=heard_s) for s in leads_s]
    params = PACED | {"lead_growth": growth, "lead_cap_s": 10.0 if growth else 10.6}
    result = plan(*far, params=params)
    assert result.order == []
    assert result.wake_s == pytest.approx(NOW + wake_s)


leads = st.lists(st.tuples(st.integers(0, 400), st.floats(0, 30), st.booleans()), min_size=1, max_size=30)


@given(
    leads,
    st.sampled_from(["strict", "yielding", "work_conserving"]),
    st.sampled_from(["always", "never"]),
    st.booleans(),
    st.integers(0, 600),
)
def test_every_request_is_either_in_the_order_or_held_and_urgent_ones_always_run(
    listeners, mode, pacing, keep_up, free_blocks
):
    requests = [
        request(f"r{i}", frames=frames, played_s=min(played, frames * 0.08) if heard and frames else None)
        for i, (frames, played, heard) in enumerate(listeners)
    ]
    result = plan(
        *requests,
        params={"u2_mode": mode, "pacing": pacing, "keep_up": keep_up},
        free_blocks=free_blocks,
        step_s=lambda work: 0.0075 + 0.0026 * work.requests,
    )
    assert set(result.order) | result.held == {r.id for r in requests}
    assert not set(result.order) & result.held
    urgent = {r.id for r in requests if rank(r) == U0 or (rank(r) == U1 and r.progress.frames)}
    assert urgent <= set(result.order)
    assert result.order or result.wake_s is not None
    if mode == "work_conserving" and pacing == "never" and not keep_up:
        assert not result.held


def test_a_step_takes_requests_until_their_blocks_are_gone() -> None:
    """Each needs 2 blocks: 32 tokens."""
    asked = [newcomer(name, ready_s, tokens=32) for name, ready_s in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    for free, order in ((3, ["a"]), (4, ["a", "b"]), (5, ["a", "b"]), (6, ["a", "b", "c"])):
        assert plan(*asked, free_blocks=free, params={"kv_relief": False}).order == order


def test_counts_add_up_over_rounds() -> None:
    policy = UrgencyPolicy("talker", Params.model_validate({"on_misfit": "skip"}))
    safe = [request(name, frames=70, played_s=2.0) for name in ("a", "b")]
    for _ in range(3):
        policy.plan(view(newcomer("urgent"), *safe, free_blocks=20, step_s=lambda work: 0.010))
    assert {name: policy.counters[name] for name in ("rounds", "u2_deferred", "u2_deferred_rounds", "kv_relief")} == {
        "rounds": 3, "u2_deferred": 6, "u2_deferred_rounds": 3, "kv_relief": 3,
    }  # fmt: skip
