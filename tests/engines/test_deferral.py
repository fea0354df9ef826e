"""LiveServe's deferral is bounded by playback."""

from typing import Any

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


class Listener:
    """A reply in progress: frames that the talker has made, and seconds that its listener has heard."""

    def __init__(self, name: str, frames: int, played_s: float) -> None:
        sent = frames - frames % 25 if frames >= 25 else frames
        self.name = name
        self.progress = Progress(True, sent + 25, FRAME_S, frames=frames, frames_sent=sent)
        self.session = SessionView(0, 0.28, first_audio_s=0.0, audio_sent_s=sent * FRAME_S)
        self.held_since_s: float | None = None
        self.may_wait_s = 0.0
        self.listen(played_s, 0.0)

    def listen(self, seconds: float, now: float) -> None:
        session = self.session
        session.played_s = min(session.audio_sent_s, session.played_s + seconds)
        session.last_ack_s, session.playing = now, True

    def overdue_s(self, now: float, policy: UrgencyPolicy) -> float:
        """Seconds that it has been held, less its spare audio beyond P_safe when the hold began."""
        if self.held_since_s is None:
            _, buffer_s, _ = urgency.assess("talker", self.view(), now, policy.params)
            self.held_since_s, self.may_wait_s = now, max(0.0, buffer_s - policy.params.talker_safe_s)
        return now - self.held_since_s - self.may_wait_s

    def generate(self) -> None:
        progress = self.progress
        self.held_since_s = None
        progress.frames += 1
        if progress.frames == progress.chunk_end:
            progress.frames_sent, progress.chunk_end = progress.frames, progress.frames + 25
            self.session.audio_sent_s = progress.frames * FRAME_S

    def view(self) -> SpeechView:
        scheduled: dict[str, Any] = {"running": True, "tokens": 100, "computed": 99, "blocks": 7}
        return SpeechView(self.name, 0.0, **scheduled, progress=self.progress, session=self.session)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(4, 600), st.floats(0, 40)), min_size=1, max_size=12),
    st.sampled_from([("strict", "always"), ("yielding", "always"), ("strict", "never")]),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([0.001, 0.004]),
)
def test_no_request_is_deferred_longer_than_its_spare_playback(listeners, mode, safe_s, each_s):
    """Deferred for more than P - P_safe seconds of playback a request is U0 and runs (section 1.6 of the
    specification); a round at most passes between."""
    crowd = [Listener(f"r{i}", frames, played_s) for i, (frames, played_s) in enumerate(listeners)]
    chosen = {"u2_mode": mode[0], "pacing": mode[1], "talker_safe_s": safe_s}
    policy = UrgencyPolicy("talker", Params.model_validate(chosen))

    def round_s(requests: int) -> float:
        return 0.005 + each_s * requests

    now = 0.0
    while now < RUN_S:
        views = [each.view() for each in crowd]
        view = StageView("talker", now, views, 2048, 64, 500, 1000, 16, lambda work: round_s(work.requests))
        plan = policy.plan(view)
        runs = [each for each in crowd if each.name in plan.order]
        for each in crowd:
            assert each in runs or each.overdue_s(now, policy) <= round_s(len(crowd)) + 1e-6
        until_s = now + round_s(len(runs)) if runs else plan.wake_s
        assert until_s is not None and until_s > now
        for each in runs:
            each.generate()
        for each in crowd:
            each.listen(until_s - now, until_s)
        now = until_s
