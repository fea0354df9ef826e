"""Algorithm 1 with deferral: the requests of the next step, in order (paper section 4.2).

The classes are joined in the order U0, U1, U2 and admitted while they fit. Algorithm 1 alone is work-conserving: a
decode takes one token, so its budgets of tokens and slots hardly ever bind, and everybody runs in every step. What a
talker lacks is time. Three rules give its time to the urgent:

- Strict precedence: no U2 request runs in a step of the talker that has a U0 or U1 request (`u2_mode`). A step without
  U2 is shorter. Nobody starves: while a U2 request waits its listener plays on, and at P_safe the request is U0.
- A first packet keeps this precedence while its next token of text is fetched (`await_text`). vLLM-Omni fetches the
  token when a step has ended. Without this rule U2 would begin a step at once, and the first packet would lose one step
  for each of its frames.
- Where listeners interrupt, a U2 request waits while it is further ahead of its listener than `lead_cap_s`, unless KV
  pressure outweighs that (eq. 1). Without this rule generation does not slow down to playback (Fig. 15 right). Where
  nobody interrupts, nothing is discarded, so nothing waits (`pacing`).

Three rules are options, which the paper does not have: `u2_mode=yielding` lets some of U2 into an urgent step,
`keep_up` delays a reply that the talker cannot keep up with, and `lead_growth` lets the cap of a reply grow while it
is heard.
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass, make_dataclass
from typing import Any

from engines.core.policy import Plan, StageView
from engines.core.stage import ENTRY
from engines.systems.liveserve import urgency
from engines.systems.liveserve.liveserve_params import OrderParams
from engines.systems.liveserve.urgency import U1, Batch
from engines.turns.monitor import Workload
from engines.turns.reply import Progress, SpeechView

DELIVERY_S = 0.05
"""From a chunk's last frame to the client's buffer: hops, vocoder and network, reserved when a deadline is computed."""

SHARE = 0.25
"""[chosen] share of a stage's spare audio that `yielding` leaves to leads; the rest is for first packets."""

CUT_SHORT = 0.05
"""[chosen] share of replies cut short above which their listeners interrupt."""

POLL_S = 0.1
"""Time of the next look at a request that is deferred for another reason than playback: one ack period."""


Candidate = tuple[float, float, str, SpeechView, float, bool]
"""A request by its priority within its class: U0 by buffer ascending, U1 and work ahead of turns oldest first, U2 by
utility (eq. 1) descending, oldest first if that is not known; ties: `ready_s`, then id. Then the request, its buffer
(s), and True if it is in U2 and too far ahead of its listener."""

PlainParams: Any = make_dataclass("PlainParams", OrderParams.model_fields, slots=True)
"""`OrderParams` whose attributes are read in a sixth of the time."""


@dataclass(slots=True)
class Counts:
    """The counters of a policy. A `Counter` takes six times as long to count up."""

    u0: int = 0
    u1: int = 0
    u2: int = 0
    fallback_u2_age: int = 0
    u1_deferred: int = 0
    u2_deferred: int = 0
    u2_deferred_rounds: int = 0
    held_running: int = 0
    held_running_rounds: int = 0
    break_blocked: int = 0
    rounds: int = 0
    ahead: int = 0
    fallback_order: int = 0
    kv_relief: int = 0
    released_to_preemption: int = 0


RARE = ("rounds", "ahead", "fallback_order", "kv_relief", "released_to_preemption")
"""Counters that the record has only if they are not 0."""


class UrgencyPolicy:
    """LiveServe's scheduler of one stage replica.

    `counters`: rounds; request-rounds by class (u0, u1, u2, ahead), deferred (u1_deferred, u2_deferred), of running
    requests held (held_running), stopped by a misfit before them (break_blocked); rounds with a deferral of U2
    (u2_deferred_rounds), with a running request held (held_running_rounds), in which an urgent request lacked blocks
    and all requests with blocks ran on (kv_relief), none fitted (released_to_preemption), playback was not known
    (fallback_order) or no utility (fallback_u2_age).
    """

    def __init__(self, stage: str, params: OrderParams) -> None:
        self.stage = stage
        self.params = PlainParams(**{name: getattr(params, name) for name in OrderParams.model_fields})
        self.weights = urgency.weights(stage, params)
        self.lead_exposure = urgency.barge_in_exposure(params.lead_cap_s, self.weights.safe_s)
        self.growth = params.lead_growth / self.weights.safe_s
        self._counts = Counts()

    @property
    def counters(self) -> Counter[str]:
        return Counter({name: n for name, n in asdict(self._counts).items() if n or name not in RARE})

    def plan(self, view: StageView[SpeechView]) -> Plan:
        """Plan one round of Algorithm 1 over the view. Without playback telemetry: the stage's native order."""
        counts = self._counts
        counts.rounds += 1
        classes = self._classes(view)
        if classes is None:
            counts.fallback_order += 1
            return Plan()
        u0, u1, u2, ahead = classes
        counts.u0 += len(u0)
        counts.u1 += len(u1)
        counts.u2 += len(u2)
        counts.ahead += len(ahead)
        early = self._early(u0, u1, u2, view) if self.params.keep_up and u1 else []
        urgent = u0 + [c for c in u1 if c not in early] if early else u0 + u1
        slots = self._slots(u0, urgent, u2, view) if urgent and u2 else len(u2)
        fetched_s = self._fetched_s(view) if view.parked else None
        if fetched_s is not None and not u0 and not u1:
            slots = 0  # the first packet runs next
        joining = [c for c in u2 if not c[-1]][:slots] if slots else []
        deferred_u2 = len(u2) - len(joining)
        admitted = urgent + joining + ahead
        order, short_of_blocks = self._fitting(admitted, len(urgent), view)
        if short_of_blocks and self.params.kv_relief:
            # Requests that would be paused hold its blocks: they run on, whatever their lead, and end.
            counts.kv_relief += 1
            taken = set(order)
            order += [c[2] for c in (*u0, *u1, *u2, *ahead) if c[3].running and c[2] not in taken]
        if not order and admitted:
            # No request fits, so none would ever free a block: let vLLM preempt from the least urgent end.
            counts.released_to_preemption += 1
            order = [c[2] for c in admitted]
        held = frozenset()
        if early or deferred_u2 or len(order) < len(admitted):
            running = set(order)
            waiting = [request for request in view.requests if request.id not in running]
            held = frozenset([request.id for request in waiting])
            running_held = sum([request.running for request in waiting])
            counts.held_running += running_held
            counts.held_running_rounds += running_held > 0
            if short_of_blocks or len(order) < len(admitted):
                counts.break_blocked += sum([c[2] in held for c in admitted])
            counts.u1_deferred += len(early)
            counts.u2_deferred += deferred_u2
            counts.u2_deferred_rounds += deferred_u2 > 0
        wake_s = None
        if held and not order:
            times = [self._due_s(request, buffer, view.now) for _, _, _, request, buffer, _ in early + u2]
            wake_s = min(times if fetched_s is None else [*times, fetched_s])
        return Plan(order, held, wake_s=wake_s, urgent_short=short_of_blocks)

    def _classes(self, view: StageView[SpeechView]) -> tuple[list[Candidate], ...] | None:
        """Return the view's requests by class, each class in its order; None if the playback of one is not known.

        One loop does what `SessionView.telemetry_ok` and `played` and `urgency.assess`, `barge_in_exposure` and
        `utility` say of each request: the calls would take longer than the work.
        """
        params, now, blocks = self.params, view.now, view.allocatable_blocks
        safe_s, alpha, beta = self.weights.safe_s, self.weights.alpha, self.weights.beta
        timeout_s, delivered_safe_s = params.telemetry_timeout_s, params.delivered_safe_s
        by_delivery, cumulative = params.buffer_basis == "delivered", params.thinker_buffer == "cumulative"
        talker, lead_exposure, growth, paced = self.stage == "talker", self.lead_exposure, self.growth, None
        occupied = 1.0 - view.free_blocks / blocks
        u0, u1, u2, ahead = classes = ([], [], [], [])
        for request in view.requests:
            session, progress, ready_s = request.session, request.progress, request.ready_s
            first_s, last_ack_s = session.first_audio_s, session.last_ack_s
            heard_s = first_s if last_ack_s is None else last_ack_s
            if heard_s is not None and now - heard_s > timeout_s:
                return None
            if request.speculative:
                ahead.append((ready_s, ready_s, request.id, request, 0.0, False))
                continue
            heard = progress.spoken and not progress.voiced
            if first_s is None if heard else not progress.text_tokens:
                u1.append((ready_s, ready_s, request.id, request, 0.0, False))
                continue
            buffer = played_s = 0.0
            if heard:
                sent_s = session.audio_sent_s
                if last_ack_s is not None:
                    played_s = session.played_s + (now - last_ack_s) if session.playing else session.played_s
                    if played_s > sent_s:
                        played_s = sent_s
                delivered = sent_s - played_s
                buffer = delivered if by_delivery else progress.frames * progress.frame_s - played_s
                if not talker:
                    text_ahead = (progress.text_tokens - progress.text_consumed) * session.speech_s_per_token
                    buffer = text_ahead + buffer if cumulative else text_ahead
                if buffer <= safe_s or (talker and delivered <= delivered_safe_s):
                    u0.append((buffer, ready_s, request.id, request, buffer, False))
                    continue
            exposure = (buffer - safe_s) / safe_s if buffer > safe_s else 0.0
            utility, within, too_far = None, ready_s, False
            if alpha is not None and beta is not None:
                utility = beta * (request.blocks / blocks) * occupied - alpha * exposure
                within = -utility
            if exposure > lead_exposure + growth * played_s:
                if paced is None:
                    paced = self._paced(session.workload)
                too_far = paced and self._held_back(progress, utility)
            u2.append((within, ready_s, request.id, request, buffer, too_far))
        for candidates in classes:
            if len(candidates) > 1:
                candidates.sort()
        if u2 and (alpha is None or beta is None):
            self._counts.fallback_u2_age += 1
        return classes

    def _early(
        self, u0: list[Candidate], u1: list[Candidate], u2: list[Candidate], view: StageView[SpeechView]
    ) -> list[Candidate]:
        """Return replies that do not begin yet: with them the stage would make less audio than its present listeners
        hear.

        A listener far enough ahead to wait does not count as present; without present listeners the first reply begins.
        """
        new = [c for c in u1 if not c[3].progress.frames]
        if not new or self.stage != "talker":
            return []
        served = [c[3] for c in (*u0, *u1, *u2) if not c[-1] and c[3].progress.frames]
        if not served:
            served, new = [new[0][3]], new[1:]
        batch, listeners = Batch(self.stage, view.step_s, served), {id(request.session) for request in served}
        for index, candidate in enumerate(new):
            request = candidate[3]
            listeners.add(id(request.session))
            if batch.made(request) < len(listeners):
                return new[index:]
            batch.add(request)
        return []

    def _slots(
        self, u0: list[Candidate], urgent: list[Candidate], u2: list[Candidate], view: StageView[SpeechView]
    ) -> int:
        """Return the most U2 requests that join the step of urgent ones: none, by strict precedence.

        With `yielding`, a first packet is joined by as few as make `enough`, and a listener who may run dry by as many
        as let the step end in time. A reply joins in any case if it could lose more than the stage makes up for, in the
        time that takes all urgent ones to P_safe (`reserve_s`).
        """
        mode = self.params.u2_mode
        if self.stage != "talker" or mode == "work_conserving":
            return len(u2)
        if mode == "strict":
            return 0
        step_s, safe_s = view.step_s, self.weights.safe_s
        ahead = len({id(c[3].session) for c in urgent + u2})
        spare = Batch(self.stage, step_s, [c[3] for c in urgent + u2]).made() - ahead
        enough = ahead + SHARE * max(0.0, spare) if len(urgent) > len(u0) else math.inf
        in_time_s = min([self._chunk_step_s(c[3], view.now) for c in u0], default=math.inf)
        lacking_s = sum([max(0.0, safe_s - buffer) for _, _, _, _, buffer, _ in urgent])
        reserve_s = lacking_s / spare if spare > 0 else math.inf
        batch = Batch(self.stage, step_s, [c[3] for c in urgent])
        for slots, (_, _, _, request, buffer, _) in enumerate(u2):
            can_wait = buffer - safe_s >= reserve_s
            if batch.made() >= enough or (can_wait and batch.step_s(request) > in_time_s):
                return slots
            batch.add(request)
        return len(u2)

    def _fetched_s(self, view: StageView[SpeechView]) -> float | None:
        """Return the arrival of the next token of text for a first packet that sits out this round only for it; None
        without one."""
        if not self.params.await_text or self.params.u2_mode == "work_conserving" or self.stage != "talker":
            return None
        times = [
            request.progress.fetched_s
            for request in view.parked
            if view.now < request.progress.fetched_s
            and request.progress.frames < request.progress.text_arrived
            and urgency.assess(self.stage, request, view.now, self.params)[0] == U1
        ]
        return min(times, default=None)

    def _held_back(self, progress: Progress, utility: float | None) -> bool:
        """Return True if the gate holds back a U2 request whose lead exceeds the cap, while leads are capped. The
        talker pauses between chunks: part of one plays to nobody."""
        if utility is not None and utility >= 0:
            return False
        return self.stage != "talker" or progress.frames == progress.frames_sent

    def _paced(self, workload: Workload) -> bool:
        """Return True while leads are capped: if nobody interrupts, nothing is discarded."""
        pacing = self.params.pacing
        return pacing == "always" or (pacing == "interrupted" and workload.interrupted_share > CUT_SHORT)

    def _chunk_step_s(self, request: SpeechView, now: float) -> float:
        """Return the longest step with which a U0 request completes its chunk before its listener runs dry, s."""
        delivered = request.session.audio_sent_s - request.session.played(now)
        return max(0.0, delivered - DELIVERY_S) / request.progress.steps_to_packet

    def _fitting(self, admitted: list[Candidate], urgent: int, view: StageView[SpeechView]) -> tuple[list[str], bool]:
        """Walk in priority order and stop at the first request that exceeds the round's budgets (lines 12 to 16).

        Returns the ids that fit, and True if an urgent request left out lacked KV blocks.
        """
        tokens, blocks, size = view.token_budget, view.free_blocks, view.block_size
        slots = view.slot_budget - sum([request.running for request in view.requests])
        order: list[str] = []
        short_of_blocks = False
        for place, (_, _, request_id, request, _, _) in enumerate(admitted):
            new_tokens = request.tokens - request.computed
            if new_tokens > tokens:
                new_tokens = tokens
            # vLLM admits a waiting request only if its whole prompt fits; a running one needs its next tokens' blocks.
            running = request.running
            until = request.computed + new_tokens if running else request.tokens
            need = -(-until // size) - request.blocks
            if new_tokens < 1 or need > blocks or (not running and slots < 1):
                short_of_blocks |= need > blocks and place < urgent
                if self.params.on_misfit == "break":
                    break
                continue
            tokens -= new_tokens
            if need > 0:
                blocks -= need
            slots -= not running
            order.append(request_id)
        return order, short_of_blocks

    def _due_s(self, request: SpeechView, buffer: float, now: float) -> float:
        """Return the time when a deferred request is admitted again if nothing else happens: playback has used up its
        lead, or raised the cap to it."""
        params, session = self.params, request.session
        if self.stage == "talker" and session.playing:
            beyond_s = buffer - (params.lead_cap_s + params.lead_growth * session.played(now))
            return now + max(request.progress.frame_s, beyond_s / (1 + params.lead_growth))
        return now + POLL_S


def policy(stage: str, params: OrderParams) -> UrgencyPolicy | None:
    """Return the policy of the thinker, to which requests come first, and of the talker; None for the vocoder, which
    stays first come, first served."""
    return UrgencyPolicy(stage, params) if params.scheduling and stage in (ENTRY, "talker") else None
