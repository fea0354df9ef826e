"""Deferral is bounded: who waits becomes urgent by listening, and then runs."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.policy import StageView
from engines.systems.liveserve import urgency
from engines.systems.liveserve.liveserve_params import Params
from engines.systems.liveserve.scheduler import UrgencyPolicy
from engines.turns.monitor import SessionView
from engines.turns.reply import Progress, SpeechView

FRAME_S = 0.08
RUN_S = 40.0


@dataclass
class Listener:
    """A reply under way: what the talker has made of it and what its listener has heard."""

    name: str
    frames: int
    played_s: float
    waiting_since_s: float | None = None
    bound_s: float = 0.0

    def __post_init__(self) -> None:
        sent = self.frames - self.frames % 25 if self.frames >= 25 else self.frames
        self.progress = Progress(True, sent + 25, FRAME_S, frames=self.frames, frames_sent=sent)
        self.session = SessionView(0, 0.28, first_audio_s=0.0, audio_sent_s=sent * FRAME_S)
        self.played_s = min(self.played_s, self.session.audio_sent_s)

    def listen(self, seconds: float, now: float) -> None:
        self.played_s = min(self.session.audio_sent_s, self.played_s + seconds)
        self.session.played_s, self.session.last_ack_s, self.session.playing = self.played_s, now, True

    def generate(self) -> None:
        progress = self.progress
        progress.frames += 1
        if progress.frames == progress.chunk_end:
            progress.frames_sent, progress.chunk_end = progress.frames, progress.frames + 25
            self.session.audio_sent_s = progress.frames * FRAME_S

    def view(self) -> SpeechView:
        scheduled = {"running": True, "tokens": 100, "computed": 99, "blocks": 7}
        return SpeechView(self.name, 0.0, **scheduled, progress=self.progress, session=self.session)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(4, 600), st.floats(0, 40)), min_size=1, max_size=12),
    st.sampled_from([("strict", "always"), ("yielding", "always"), ("strict", "never")]),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([0.001, 0.004]),
)
def test_nobody_is_deferred_past_the_playback_that_makes_it_urgent(listeners, mode, safe_s, each_s):
    """Deferred for more than P - P_safe seconds of playback a request is U0 and runs (section 1.6 of the
    specification); a round at most passes between."""
    crowd = [Listener(f"r{i}", frames, played_s) for i, (frames, played_s) in enumerate(listeners)]
    policy = UrgencyPolicy("talker", Params(u2_mode=mode[0], pacing=mode[1], talker_safe_s=safe_s))
    now = 0.0
    for listener in crowd:
        listener.listen(0.0, now)
    longest_round_s = 0.005 + each_s * len(crowd)
    while now < RUN_S:
        view = StageView(
            "talker",
            now,
            [each.view() for each in crowd],
            2048,
            64,
            500,
            1000,
            16,
            lambda work: 0.005 + each_s * work.requests,
        )
        plan = policy.plan(view)
        runs = set(plan.order)
        for listener in crowd:
            if listener.name in runs:
                listener.waiting_since_s = None
                continue
            _, buffer_s, _ = urgency.assess("talker", listener.view(), now, policy.params)
            if listener.waiting_since_s is None:
                listener.waiting_since_s, listener.bound_s = now, buffer_s - safe_s
            assert now - listener.waiting_since_s <= max(0.0, listener.bound_s) + longest_round_s + 1e-6
        if runs:
            until_s = now + 0.005 + each_s * len(runs)
        else:
            assert plan.wake_s is not None
            assert plan.wake_s > now
            until_s = plan.wake_s
        for listener in crowd:
            if listener.name in runs:
                listener.generate()
            listener.listen(until_s - now, until_s)
        now = until_s
