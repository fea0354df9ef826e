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

Two rules are options, which the paper does not have: `u2_mode=yielding` lets some of U2 into an urgent step, and
`keep_up` delays a reply that the talker cannot keep up with.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engines.core.policy import Plan, StageView
from engines.core.stage import ENTRY
from engines.systems.liveserve import urgency
from engines.systems.liveserve.liveserve_params import OrderParams
from engines.systems.liveserve.urgency import AHEAD, U0, U1, U2, Batch
from engines.turns.monitor import Workload
from engines.turns.reply import SpeechView

DELIVERY_S = 0.05
"""From a chunk's last frame to the client's buffer: hops, vocoder and network, reserved when a deadline is computed."""

SHARE = 0.25
"""[chosen] share of a stage's spare audio that `yielding` leaves to leads; the rest is for first packets."""

CUT_SHORT = 0.05
"""[chosen] share of replies cut short above which their listeners interrupt."""

CLASS_NAMES = ("u0", "u1", "u2", "ahead")
ALWAYS_COUNTED = (
    *CLASS_NAMES[:AHEAD],
    "fallback_u2_age",
    "u1_deferred",
    "u2_deferred",
    "u2_deferred_rounds",
    "held_running",
    "held_running_rounds",
    "break_blocked",
)

POLL_S = 0.1
"""Time of the next look at a request that is deferred for another reason than playback: one ack period."""


@dataclass(slots=True)
class Candidate:
    """A request with its class, its buffers (s) and, in U2, exposure (eq. 2), utility (eq. 1; None: unknown) and the
    gate's decision to hold it back."""

    request: SpeechView
    rank: int
    buffer: float
    delivered: float
    exposure: float = 0.0
    utility: float | None = 0.0
    too_far: bool = False


def priority(candidate: Candidate) -> tuple[int, float, float, str]:
    """Return the sort key: U0 by buffer ascending, U1 oldest first, U2 by utility descending, then work ahead of turns;
    ties: older, then id."""
    request, rank = candidate.request, candidate.rank
    if rank == U0:
        within = candidate.buffer
    elif rank in (U1, AHEAD) or candidate.utility is None:
        within = request.ready_s
    else:
        within = -candidate.utility
    return (rank, within, request.ready_s, request.id)


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
        self.params = params
        self.weights = urgency.weights(stage, params)
        self.lead_exposure = urgency.barge_in_exposure(params.lead_cap_s, self.weights.safe_s)
        self.counters: Counter[str] = Counter(dict.fromkeys(ALWAYS_COUNTED, 0))

    def plan(self, view: StageView[SpeechView]) -> Plan:
        """Plan one round of Algorithm 1 over the view. Without playback telemetry: the stage's native order."""
        self.counters["rounds"] += 1
        candidates = self._candidates(view)
        if candidates is None:
            self.counters["fallback_order"] += 1
            return Plan()
        first = candidates[0].rank if candidates else AHEAD
        early = self._early(candidates, view) if first <= U1 else frozenset()
        slots = len(candidates)
        if first < U2:
            slots = self._slots([c for c in candidates if c.request.id not in early], view)
        fetched_s = self._fetched_s(view)
        if fetched_s is not None and first >= U2:
            slots = 0  # the first packet runs next
        admitted: list[Candidate] = []
        deferred: list[Candidate] = []
        for candidate in candidates:
            if candidate.rank != U2:
                (deferred if early and candidate.request.id in early else admitted).append(candidate)
            elif candidate.too_far or not slots:
                deferred.append(candidate)
            else:
                admitted.append(candidate)
                slots -= 1
        batch, short_of_blocks = self._fitting(admitted, view)
        if short_of_blocks and self.params.kv_relief:
            # Requests that would be paused hold its blocks: they run on, whatever their lead, and end.
            self.counters["kv_relief"] += 1
            taken = {candidate.request.id for candidate in batch}
            batch += [c for c in candidates if c.request.running and c.request.id not in taken]
        if not batch and admitted:
            # No request fits, so none would ever free a block: let vLLM preempt from the least urgent end.
            self.counters["released_to_preemption"] += 1
            batch = admitted
        order = [c.request.id for c in batch]
        held: frozenset[str] = frozenset()
        if len(batch) < len(candidates):
            running = set(order)
            held = frozenset([c.request.id for c in candidates if c.request.id not in running])
        self._count(candidates, held, deferred, admitted)
        wake_s = min((self._due_s(c, view.now) for c in deferred), default=None) if not batch else None
        if wake_s is not None and fetched_s is not None:
            wake_s = min(wake_s, fetched_s)
        return Plan(order, held, wake_s=wake_s, urgent_short=short_of_blocks)

    def _candidates(self, view: StageView[SpeechView]) -> list[Candidate] | None:
        """Return the view's requests by priority; None if the playback of one is not known."""
        stage, params, now = self.stage, self.params, view.now
        weights, lead_exposure = self.weights, self.lead_exposure
        timeout_s, blocks = params.telemetry_timeout_s, view.allocatable_blocks
        occupied = 1.0 - view.free_blocks / blocks
        assess, exposure_of, utility_of = urgency.assess, urgency.barge_in_exposure, urgency.utility
        paced = None
        candidates = []
        for request in view.requests:
            session = request.session
            if not session.telemetry_ok(now, timeout_s):
                return None
            rank, buffer, delivered = assess(stage, request, now, params)
            candidate = Candidate(request, rank, buffer, delivered)
            if rank == U2:
                exposure = candidate.exposure = exposure_of(buffer, weights.safe_s)
                candidate.utility = utility_of(exposure, request.blocks / blocks, occupied, weights)
                if exposure > lead_exposure:
                    if paced is None:
                        paced = self._paced(session.workload)
                    candidate.too_far = paced and self._held_back(candidate)
            candidates.append(candidate)
        candidates.sort(key=priority)
        return candidates

    def _early(self, candidates: Sequence[Candidate], view: StageView[SpeechView]) -> Collection[str]:
        """Return replies that do not begin yet: with them the stage would make less audio than its present listeners
        hear.

        A listener far enough ahead to wait does not count as present; without present listeners the first reply begins.
        """
        new = [c.request for c in candidates if c.rank == U1 and not c.request.progress.frames]
        if not new or self.stage != "talker" or not self.params.keep_up:
            return frozenset()
        served = [c.request for c in candidates if c.rank < AHEAD and not c.too_far]
        served = [request for request in served if request.progress.frames]
        if not served:
            served, new = new[:1], new[1:]
        batch, listeners = Batch(self.stage, view.step_s, served), {id(request.session) for request in served}
        for index, request in enumerate(new):
            listeners.add(id(request.session))
            if batch.made(request) < len(listeners):
                return frozenset([later.id for later in new[index:]])
            batch.add(request)
        return frozenset()

    def _slots(self, candidates: Sequence[Candidate], view: StageView[SpeechView]) -> int:
        """Return the most U2 requests that join the step: all, if no urgent request is in it; none, by strict
        precedence.

        With `yielding`, a first packet is joined by as few as make `enough`, and a listener who may run dry by as many
        as let the step end in time. A reply joins in any case if it could lose more than the stage makes up for, in the
        time that takes all urgent ones to P_safe (`reserve_s`).
        """
        u2 = [c for c in candidates if c.rank == U2]
        urgent = [c for c in candidates if c.rank < U2]
        mode = self.params.u2_mode
        if not urgent or not u2 or self.stage != "talker" or mode == "work_conserving":
            return len(u2)
        if mode == "strict":
            return 0
        ahead = len({id(c.request.session) for c in candidates if c.rank < AHEAD})
        spare = Batch(self.stage, view.step_s, [c.request for c in urgent + u2]).made() - ahead
        enough = ahead + SHARE * max(0.0, spare) if any([c.rank == U1 for c in urgent]) else math.inf
        in_time_s = min([self._chunk_step_s(c) for c in urgent if c.rank == U0], default=math.inf)
        lacking_s = sum([max(0.0, self.weights.safe_s - c.buffer) for c in urgent])
        reserve_s = lacking_s / spare if spare > 0 else math.inf
        batch = Batch(self.stage, view.step_s, [c.request for c in urgent])
        for slots, candidate in enumerate(u2):
            can_wait = candidate.buffer - self.weights.safe_s >= reserve_s
            if batch.made() >= enough or (can_wait and batch.step_s(candidate.request) > in_time_s):
                return slots
            batch.add(candidate.request)
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

    def _held_back(self, candidate: Candidate) -> bool:
        """Return True if the gate holds back a U2 request whose lead exceeds the cap, while leads are capped. The
        talker pauses between chunks: part of one plays to nobody."""
        if candidate.utility is not None and candidate.utility >= 0:
            return False
        progress = candidate.request.progress
        return self.stage != "talker" or progress.frames == progress.frames_sent

    def _paced(self, workload: Workload) -> bool:
        """Return True while leads are capped: if nobody interrupts, nothing is discarded."""
        pacing = self.params.pacing
        return pacing == "always" or (pacing == "interrupted" and workload.interrupted_share > CUT_SHORT)

    def _chunk_step_s(self, candidate: Candidate) -> float:
        """Return the longest step with which a U0 request completes its chunk before its listener runs dry, s."""
        return max(0.0, candidate.delivered - DELIVERY_S) / candidate.request.progress.steps_to_packet

    def _fitting(
        self, admitted: list[Candidate], view: StageView[SpeechView]
    ) -> tuple[list[Candidate], bool]:
        """Walk in priority order and stop at the first request that exceeds the round's budgets (lines 12 to 16).

        Returns the requests that fit, and True if an urgent one left out lacked KV blocks.
        """
        tokens, blocks = view.token_budget, view.free_blocks
        slots = view.slot_budget - sum([request.running for request in view.requests])
        batch: list[Candidate] = []
        short_of_blocks = False
        for candidate in admitted:
            request = candidate.request
            new_tokens = min(request.tokens - request.computed, tokens)
            # vLLM admits a waiting request only if its whole prompt fits; a running one needs its next tokens' blocks.
            until = request.computed + new_tokens if request.running else request.tokens
            need = max(0, -(-until // view.block_size) - request.blocks)
            if new_tokens < 1 or need > blocks or (not request.running and slots < 1):
                short_of_blocks |= need > blocks and candidate.rank < U2
                if self.params.on_misfit == "break":
                    break
                continue
            tokens -= new_tokens
            blocks -= need
            slots -= not request.running
            batch.append(candidate)
        return batch, short_of_blocks

    def _due_s(self, candidate: Candidate, now: float) -> float:
        """Return the time when a deferred request is admitted again if nothing else happens: playback has used up its
        lead."""
        if self.stage == "talker" and candidate.request.session.playing:
            return now + max(candidate.request.progress.frame_s, candidate.buffer - self.params.lead_cap_s)
        return now + POLL_S

    def _count(
        self,
        candidates: list[Candidate],
        held: frozenset[str],
        deferred: list[Candidate],
        admitted: list[Candidate],
    ) -> None:
        counters, counts = self.counters, [0, 0, 0, 0]
        for candidate in candidates:
            counts[candidate.rank] += 1
        for name, count in zip(CLASS_NAMES, counts, strict=True):
            if count:
                counters[name] += count
        if counts[U2] and (self.weights.alpha is None or self.weights.beta is None):
            counters["fallback_u2_age"] += 1
        if deferred:
            waiting = sum([c.rank == U1 for c in deferred])
            counters["u1_deferred"] += waiting
            counters["u2_deferred"] += len(deferred) - waiting
            counters["u2_deferred_rounds"] += len(deferred) > waiting
        if held:
            running_held = sum([c.request.running for c in candidates if c.request.id in held])
            counters["held_running"] += running_held
            counters["held_running_rounds"] += running_held > 0
            counters["break_blocked"] += sum([c.request.id in held for c in admitted])


def policy(stage: str, params: OrderParams) -> UrgencyPolicy | None:
    """Return the policy of the thinker, to which requests come first, and of the talker; None for the vocoder, which
    stays first come, first served."""
    return UrgencyPolicy(stage, params) if params.scheduling and stage in (ENTRY, "talker") else None
