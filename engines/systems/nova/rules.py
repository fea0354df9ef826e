"""The passes that run at the same time on one GPU, and their shares of it: Nova's rule, and its baselines' rules.

A rule is asked after each arrival and each end. Within a stage requests go in order of arrival. Vision and prefill take
one request at a time, decode takes all of its requests.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from engines.core.policy import Plan, RequestView, StageView
from engines.core.stage import ENTRY
from engines.devices.stage import VirtualStage
from engines.systems.nova.nova_params import ChunkParams, PartitionParams, StreamParams, TurnParams
from engines.systems.nova.partition import decode_sms, profile
from workloads.errors import UserError

VISION, PREFILL, DECODE = STAGES = ("vision", "prefill", "decode")

UnderWay = Mapping[str, Sequence[str]]
"""Stage -> requests of its pass."""
Passes = Iterator[tuple[str, Sequence[str]]]


class Queues:
    """The requests at each stage, in the order of their arrival there."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}

    def see(self, requests: Mapping[str, Any]) -> None:
        if self.at.keys() != requests.keys():
            self.at = {
                id: self.at.get(id) or (VISION if request.image_tokens else PREFILL)
                for id, request in requests.items()
            }

    def of(self, stage: str) -> list[str]:
        """Return the requests at a stage, waiting or in its pass."""
        return [id for id, at in self.at.items() if at == stage]

    @property
    def pending(self) -> int:
        """Requests in vision or prefill, waiting or running: m."""
        return sum(at != DECODE for at in self.at.values())


class Rule(Protocol):
    """The base of rules. The record keeps `counters`. `divides`: stages at the same time have shares of the SMs."""

    counters: Counter[str]
    divides: bool

    def prepare(self, device: VirtualStage) -> None:
        """Prepare before anything is served. UserError if the device does not suit the rule."""

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        """Yield the passes that begin now; each must be in `under_way` before the next is taken."""
        ...

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> float | None:
        """Return the share of a pass that begins now; None: the streams decide it."""


def front(queues: Queues) -> tuple[str, list[str]] | None:
    """Return the next pass of vision or prefill: the prefill of encoded images goes before any vision."""
    for stage in (PREFILL, VISION):
        waiting = queues.of(stage)
        if waiting:
            return stage, waiting[:1]
    return None


class Partition:
    """Nova: decode at the same time as vision or prefill, which follow one another, on shares of the SMs.

    Decode joins within an iteration; a share that is decided during a pass takes effect with the next one. Each has the
    whole GPU if the other has no work.
    """

    divides = True

    def __init__(self, params: PartitionParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()
        self._sms = 0
        self._default: dict[str, int] = {}

    def prepare(self, device: VirtualStage) -> None:
        params, self._sms = self.params, device.gpu.facts.sms
        given = {VISION: params.decode_sms_vision, PREFILL: params.decode_sms_prefill}
        for name, sms in (("least_decode_sms", params.least_decode_sms), *given.items()):
            if sms is not None and sms >= self._sms:
                name = name if name.startswith("least") else f"decode_sms_{name}"
                raise UserError(f"{name}={sms} leaves none of the {self._sms} SMs to other stages; set less.")
        searched = profile(device, params.least_decode_sms).search(
            params.mean_output_tokens, params.rho_weighting
        )
        for (stage, sms), found in zip(given.items(), searched, strict=True):
            self._default[stage] = found if sms is None else sms
            self.counters[f"decode_sms_{stage}"] = self._default[stage]

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        if DECODE not in under_way and (decodes := queues.of(DECODE)):
            yield DECODE, decodes
        if VISION not in under_way and PREFILL not in under_way and (found := front(queues)):
            yield found

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> float:
        beside = next((each for each in (VISION, PREFILL) if each in under_way), None)
        if stage != DECODE:
            return self._sms - self.of_decode(stage, queues) if queues.of(DECODE) else self._sms
        if beside is None and (found := front(queues)):
            beside = found[0]  # begins together with this pass
        return self._sms if beside is None else self.of_decode(beside, queues)

    def of_decode(self, beside: str, queues: Queues) -> int:
        """Return the SMs of decode next to one of the others."""
        params, default = self.params, self._default[beside]
        if not params.adaptive:
            return default
        alpha = params.alpha_vision if beside == VISION else params.alpha_prefill
        return decode_sms(queues.pending, default, min(default, params.least_decode_sms), alpha)


class Streams:
    """Multi-Stream: all three stages at once on plain streams, one pass of each at a time."""

    divides = False

    def __init__(self, params: StreamParams) -> None:
        self.counters: Counter[str] = Counter()

    def prepare(self, device: VirtualStage) -> None: ...

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        for stage in (DECODE, PREFILL, VISION):
            waiting = queues.of(stage)
            if waiting and stage not in under_way:
                yield stage, waiting if stage == DECODE else waiting[:1]

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> None:
        return None


class Turns:
    """PF-Limit: one pass at a time on the whole GPU. Vision and prefill go first until enough decodes wait."""

    divides = False

    def __init__(self, params: TurnParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()
        self._sms = 0
        self._draining: set[str] = set()

    def prepare(self, device: VirtualStage) -> None:
        self._sms = device.gpu.facts.sms

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        if under_way:
            return
        decodes, found = queues.of(DECODE), front(queues)
        self._draining &= set(decodes)
        if not self._draining and (len(decodes) >= self.params.decode_threshold or found is None):
            self._draining = set(decodes)
        if self._draining:
            yield DECODE, decodes
            if self.params.decode_quantum == "iteration":
                self._draining.clear()
        elif found:
            yield found

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> float:
        return self._sms


class Chunked:
    """Nova's baseline Chunk, an `engines.core.policy.Policy`: vLLM's own chunked prefill with a small budget. An image
    is encoded within the step that begins its prompt, which all decodes of that step wait for."""

    def __init__(self, params: ChunkParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView[RequestView]) -> Plan:
        """Plan vLLM's own order, in small steps."""
        return Plan(step_budget=self.params.chunk_tokens)


def chunked(stage: str, params: ChunkParams) -> Chunked | None:
    """Return the policy of the entry stage; None for later stages."""
    return Chunked(params) if stage == ENTRY else None
