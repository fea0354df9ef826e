"""The virtual device of one stage replica: it sleeps for the modelled time of the step and makes up the tokens."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from engines.core.device import NO_ROWS, Ended, Row, SummedRows
from engines.core.policy import Shape
from engines.core.request import NO_WORK, StageRequest
from engines.core.stage import Safepoints
from engines.devices.noise import NO_NOISE, Noise
from engines.devices.roofline import Roofline, StepCost, Work
from engines.devices.sharing import Part, SharedCompute, SharedExecution, SharedStep
from engines.devices.step_time import StepTime
from engines.devices.virtual import ComputeQueue, Execution, VirtualGpu
from engines.models import Decoder

EVERY_LAYER = Safepoints()


@dataclass(slots=True)
class _Step:
    execution: Execution | SharedExecution
    rows: Sequence[Row]
    requests: Mapping[str, StageRequest]
    noise: float
    stall_s: float


@dataclass(slots=True)
class _Called:
    """Steps of the same requests; `ended` is called at the end of each."""

    rows: Sequence[Row]
    requests: Mapping[str, StageRequest]
    ended: Ended
    work: Work


class VirtualStage:
    """Runs steps of `decoder` on `gpu`: a `Device` and a `CallbackDevice` of `engines.core.device`.

    `noise`: of step times. `step_time`: measured and fitted step times, which replace the roofline. `reach`: tokens of
    its context that a token sees at most (`engines.core.stage`), in `reach_share` of the layers. `safepoints`: where
    steps can be interrupted. `in_turn`, `waves`: see `Roofline`. `sms`: its share of a GPU whose SMs are shared, from
    its next step on; None: it has none, and takes what it gets. `vision_slots`: see `VisionSlots`. `kernels`: step
    times of its kernels, instead of the roofline of `in_turn` and `waves`. `slower`: factors on the layers and sampling
    of steps of decodes alone and of steps with prompts; not on fitted step times.
    """

    modelled = True

    def __init__(
        self,
        decoder: Decoder,
        gpu: VirtualGpu,
        noise: Noise = NO_NOISE,
        step_time: StepTime | None = None,
        reach: int | None = None,
        reach_share: float = 1.0,
        safepoints: Safepoints = Safepoints(),
        in_turn: bool = False,
        waves: bool = False,
        sms: float | None = None,
        vision_slots: int | None = None,
        kernels: Roofline | None = None,
        slower: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self.gpu = gpu
        self.sms = sms
        self.roofline = kernels or Roofline(decoder, gpu.facts, gpu.count, in_turn, waves, vision_slots)
        self.step_time = step_time
        self._slower = slower
        self.reach, self.reach_share = reach, reach_share
        self.takes_sums = step_time is None or reach is None
        """True if rows may come as sums besides the listed ones."""
        self.safepoints = None if safepoints == EVERY_LAYER else safepoints
        self._vocab = decoder.vocab
        self._noise = noise
        self._step: _Step | None = None
        self._called: _Called | None = None
        self._dropped: frozenset[str] = frozenset()

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest], summed: SummedRows = NO_ROWS
    ) -> list[list[int] | None]:
        """Implements `engines.core.device.Device`; the step waits its turn on the GPU. `summed`: more rows, which
        cannot leave it."""
        if not rows and not summed.requests:
            return []
        await self._begin(self.work(rows, requests, summed), rows, requests, summed)
        return self._end(rows, requests)

    @property
    def calls_back(self) -> bool:
        """True if `start` can be called."""
        return isinstance(self.gpu.compute, ComputeQueue)

    def start(self, rows: Sequence[Row], requests: Mapping[str, StageRequest], ended: Ended) -> None:
        self._called = _Called(rows, requests, ended, self.work(rows, requests))
        self._begin(self._called.work, rows, requests, ended=self._call)

    def repeat(self, rows: Sequence[Row]) -> None:
        called = self._called
        assert called is not None
        called.rows = rows
        if self.reach is None:
            called.work.kv_tokens += len(rows)
            called.work.attention_pairs += len(rows)
        else:
            called.work = self.work(rows, called.requests)
        self._begin(called.work, rows, called.requests, ended=self._call)

    def _call(self) -> None:
        called = self._called
        assert called is not None
        called.ended(self._end(called.rows, called.requests))

    def _begin(
        self,
        work: Work,
        rows: Sequence[Row],
        requests: Mapping[str, StageRequest],
        summed: SummedRows = NO_ROWS,
        ended: Callable[[], None] | None = None,
    ) -> Execution | SharedExecution:
        noise, stall_s, compute = self.next_noise(), self.next_stall_s(), self.gpu.compute
        execution: Execution | SharedExecution
        if isinstance(compute, SharedCompute):
            execution = compute.submit(self._shared_step(work, noise, stall_s), self.sms)
        else:
            execution = compute.submit(self._step_cost(rows, work, noise, summed, stall_s), ended)
        self._step, self._dropped = _Step(execution, rows, requests, noise, stall_s), frozenset()
        return execution

    def _end(self, rows: Sequence[Row], requests: Mapping[str, StageRequest]) -> list[list[int] | None]:
        self._step = None
        sampled: list[list[int] | None] = []
        for row in rows:
            if row.request_id in self._dropped:
                sampled.append(None)
            elif row.samples:
                sampled.append([requests[row.request_id].fake_token_id(self._vocab)])
            else:
                sampled.append([])
        return sampled

    def interrupt(self, request_ids: frozenset[str]) -> None:
        step = self._step
        if step is None:
            return
        rest = [row for row in step.rows if row.request_id not in request_ids | self._dropped]
        if self._interrupt(step, rest):
            self._dropped |= request_ids

    def measure(self, shape: Shape) -> float:
        """Return the seconds of one step of text, by itself on the GPU, whose requests take (new tokens, context) and
        sample."""
        rows = [Row("", tokens, context, True) for tokens, context in shape]
        return self._step_cost(rows, Work.of(rows, self.reach, self.reach_share), self.next_noise()).total_s

    def worker(self) -> "VirtualStage":
        """Return another device that runs steps of the same decoder at the same time as this one."""
        other = copy(self)
        other._noise, other._step = self._noise.spawn(), None
        return other

    def _interrupt(self, step: _Step, rest: Sequence[Row]) -> bool:
        """Let the step go on with the remaining requests, if any."""
        work, compute = self.work(rest, step.requests), self.gpu.compute
        if isinstance(compute, SharedCompute):
            assert isinstance(step.execution, SharedExecution)
            shared = self._shared_step(work, step.noise, step.stall_s) if rest else None
            return compute.interrupt(step.execution, shared)
        assert isinstance(step.execution, Execution)
        cost = self._step_cost(rest, work, step.noise, stall_s=step.stall_s) if rest else None
        return compute.interrupt(step.execution, cost)

    def _shared_step(self, work: Work, noise: float, stall_s: float) -> SharedStep:
        step = self.roofline.shared_step(work, noise, self._slower[work.prompts > 0])
        return replace(step, before=(Part(fixed_s=stall_s), *step.before)) if stall_s else step

    def _step_cost(
        self, rows: Sequence[Row], work: Work, noise: float, summed: SummedRows = NO_ROWS, stall_s: float = 0.0
    ) -> StepCost:
        cost, every = self._layer_cost(rows, work, noise, summed), self.safepoints
        if every is not None:
            cost = cost.at_safepoints(every.layers, every.seconds)
        return replace(cost, before_s=cost.before_s + stall_s) if stall_s else cost

    def _layer_cost(self, rows: Sequence[Row], work: Work, noise: float, summed: SummedRows) -> StepCost:
        """Return the step's cost. Fitted times are spread evenly over the layers; the grid they were measured on had no
        sound to encode, and no window: tokens behind a window do not count."""
        if self.step_time is None:
            cost = self.roofline.step(work, noise)
            slower = self._slower[work.prompts > 0]
            if slower == 1.0:
                return cost
            return StepCost(cost.before_s, cost.layer_s * slower, cost.layers, cost.after_s * slower)
        layers = self.roofline.decoder.layers
        seen = rows if self.reach is None else _seen(rows, self.reach, self.reach_share)
        fitted_s = self.step_time.predict(seen, summed) * noise
        return StepCost(self.roofline.encoder_s(work) * noise, fitted_s / layers, layers, 0.0)

    def work(self, rows: Sequence[Row], requests: Mapping[str, StageRequest], summed: SummedRows = NO_ROWS) -> Work:
        """Return the work of the step, with the input audio that it encodes and the frames that it makes audio of."""
        work = Work.of(rows, self.reach, self.reach_share, summed)
        for row in rows:
            more = requests[row.request_id].work
            if more is NO_WORK:
                continue
            if more.hands_over and row.tokens > 1:
                work.states += row.tokens
            if more.chunk_starts:
                clips = _begin_in(row, more.chunk_starts)
                work.clips += clips
                work.audio_s += clips * more.audio_s
            elif row.context <= more.encoded_at < row.context + row.tokens:
                if more.audio_s:
                    work.clips += 1
                    work.audio_s += more.audio_s
                if more.image_tokens:
                    work.images += (more.image_tokens,)
            if row.samples:
                work.frames += more.rendered_frames
        return work

    def next_noise(self) -> float:
        """Return the factor of the next step's seconds."""
        return self._noise.next()

    def next_stall_s(self) -> float:
        """Return the seconds for which the host stalls before the next step."""
        return self._noise.next_stall_s()


def _begin_in(row: Row, starts: Sequence[int]) -> int:
    """Return the number of `starts` (ascending) among the row's new tokens: sound whose KV was lost is encoded
    again."""
    if starts[-1] < row.context:
        return 0
    return bisect_left(starts, row.context + row.tokens) - bisect_left(starts, row.context)


def _seen(rows: Sequence[Row], reach: int, share: float) -> list[Row]:
    return [
        Row(row.request_id, row.tokens, round(row.context - share * max(0, row.context - reach)), row.samples)
        for row in rows
    ]
