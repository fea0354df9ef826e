"""The time of one engine step: a roofline of every layer, plus the host's time.

Per layer, time is the larger of bytes moved over bandwidth and arithmetic over FLOP/s. Bytes are the weights that this
batch touches (dense parts always, routed experts as far as the batch activates them), the KV of every visible token,
request by request, and activations; arithmetic is two operations per active parameter and token plus attention. Host
time per step and per request comes on top (launches, input preparation, sampling). Form: section 5.1 of the LiveServe
and Metronome specification; no constant depends on any result.

Tensor parallelism splits a layer's bytes and arithmetic evenly over the GPUs of a replica and adds two all-reduces of
the hidden state: a latency each, and 2 (n - 1) / n of its bytes over NVLink.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engines.core.device import NO_ROWS, Row, SummedRows
from engines.devices.hardware import Gpu
from engines.devices.layer_slots import pass_s, sync_s
from engines.devices.sharing import Part, SharedStep, alone_s, tiled
from engines.models import Decoder, VisionEncoder

ALLREDUCES = 2
"""All-reduces per layer: behind attention and behind the feed-forward."""

ACTIVATION_PASSES = 4
"""Reads and writes of the hidden state per layer: residual in and out of attention and of the feed-forward."""


@dataclass(slots=True)
class Work:
    """The work of one step.

    `kv_tokens`: visible tokens summed over requests, new ones included, on average over layers. `attention_pairs`:
    query-key pairs summed over requests, n * (context + n / 2) for n new tokens. `samples`: rows that sample.
    `prompts`: rows of more than one new token; `prompt_tokens`, `prompt_squares` (of each one's new tokens),
    `prompt_kv` and `prompt_pairs` count these alone. `clips`/`audio_s`: input audio to encode. `frames`: codec frames
    to turn into a waveform. `images`: tokens of each image to encode. `states`: prompt tokens whose hidden states
    another stage gets.
    """

    requests: int = 0
    tokens: int = 0
    kv_tokens: float = 0
    attention_pairs: float = 0.0
    samples: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    prompt_squares: int = 0
    prompt_kv: float = 0.0
    prompt_pairs: float = 0.0
    clips: int = 0
    audio_s: float = 0.0
    frames: int = 0
    images: tuple[int, ...] = ()
    states: int = 0

    @classmethod
    def of(
        cls, rows: Sequence[Row], reach: int | None = None, share: float = 1.0, summed: SummedRows = NO_ROWS
    ) -> "Work":
        """Return the work of a step's rows, summed request by request.

        `reach`: most tokens of its context that a token sees, the window and its sinks; None: all. `share`: share of
        the layers with that bound. `summed`: more rows, as sums.
        """
        tokens = samples = summed.requests
        seeing_all, context = summed.requests - summed.far, summed.context - summed.far_context
        near = context + seeing_all + summed.far * ((reach or 0) + 1)
        visible = float(summed.context + summed.requests)
        pairs = summed.context + 0.5 * summed.requests
        near_pairs = context + 0.5 * seeing_all + summed.far * (reach or 0)
        prompts = prompt_tokens = squares = 0
        prompt_kv = prompt_pairs = 0.0
        for row in rows:
            new, context = row.tokens, row.context
            tokens += new
            samples += row.samples
            kv, row_pairs = context + new, new * (context + 0.5 * new)
            visible += kv
            pairs += row_pairs
            near_kv, near_row_pairs = kv, row_pairs
            if reach is not None and kv > reach:
                seen = min(context, reach)
                growing = reach - seen  # the first of the new tokens, which still see all before them
                near_kv = seen + new
                near_row_pairs = growing * (seen + 0.5 * growing) + (new - growing) * reach
            near += near_kv
            near_pairs += near_row_pairs
            if new > 1:
                prompts += 1
                prompt_tokens += new
                squares += new * new
                prompt_kv += kv + share * (near_kv - kv)
                prompt_pairs += row_pairs + share * (near_row_pairs - row_pairs)
        if reach is not None:
            visible += share * (near - visible)
            pairs += share * (near_pairs - pairs)
        return cls(
            len(rows) + summed.requests,
            tokens,
            visible,
            pairs,
            samples,
            prompts,
            prompt_tokens,
            squares,
            prompt_kv,
            prompt_pairs,
        )


@dataclass(slots=True)
class StepCost:
    """Seconds of one step: `before_s`, then `layers` equal layers of `layer_s`, then `after_s`."""

    before_s: float
    layer_s: float
    layers: int
    after_s: float

    @property
    def total_s(self) -> float:
        return self.before_s + self.layers * self.layer_s + self.after_s

    def at_safepoints(self, every: int, seconds: float) -> "StepCost":
        """Return the cost as equal runs of at most `every` layers; between runs the step can be interrupted, and takes
        `seconds`."""
        runs = -(-self.layers // every)
        run_s = self.layers * self.layer_s / runs + seconds
        return StepCost(self.before_s, run_s, runs, self.after_s - seconds)


class Roofline:
    """Step times of one decoder on one GPU, or split over `gpus` of them.

    `in_turn`: attention and matrix products each have a roofline and follow one another, as kernels do; else one covers
    the layer, as if one's memory traffic hid behind the other's arithmetic. `waves`: products take whole tiles and
    whole waves of thread blocks, so that few tokens leave SMs idle. `vision_slots`: see `VisionSlots`. ValueError when
    GPUs without NVLink are to share a decoder.
    """

    def __init__(
        self,
        decoder: Decoder,
        gpu: Gpu,
        gpus: int = 1,
        in_turn: bool = False,
        waves: bool = False,
        vision_slots: int | None = None,
    ) -> None:
        if gpus > 1 and not gpu.nvlink_bandwidth:
            raise ValueError(f"{gpu.name} has no nvlink_bandwidth, so {gpus} of them cannot share a decoder")
        self.decoder = decoder
        self._gpu = gpu
        self._reread = gpu.reread
        self._vision_slots = vision_slots
        self._in_turn = in_turn
        self._sms = gpu.sms if waves else 0
        self._bandwidth = gpu.bandwidth * gpus
        self._flops = gpu.flops * gpus
        self._allreduce_s = ALLREDUCES * gpu.allreduce_s if gpus > 1 else 0.0
        share = 2 * (gpus - 1) / gpus
        self._allreduce_s_per_token = (
            ALLREDUCES * share * decoder.hidden * decoder.dtype_bytes / gpu.nvlink_bandwidth if gpus > 1 else 0.0
        )
        self._dense_bytes = decoder.dense_params * decoder.layer_dtype_bytes
        experts = decoder.expert_params * decoder.expert_layers
        self._expert_bytes = decoder.experts * experts * decoder.layer_dtype_bytes
        active = decoder.dense_params + decoder.experts_per_token * experts
        # Attention and the output head stay in bf16, so the gain is taken off the other operations.
        self._token_flops = 2 * active / (gpu.fp8_gain if decoder.layer_dtype_bytes == 1 else 1)
        self._kv_bytes = decoder.kv_bytes_per_token / decoder.layers
        if decoder.mla is not None:
            self._kv_bytes *= gpus  # one vector for all heads, so that each GPU has it
        self._activation_bytes = ACTIVATION_PASSES * decoder.hidden * decoder.dtype_bytes
        self._pair_flops = decoder.pair_flops
        self._expert_miss = 1 - decoder.experts_per_token / decoder.experts if decoder.experts else 1.0
        self._head_params = decoder.vocab * decoder.hidden
        self._head_bytes_s = self._head_params * decoder.dtype_bytes / self._bandwidth
        self._predictor = Roofline(decoder.code_predictor, gpu) if decoder.code_predictor else None
        self._predictor_s: dict[int, float] = {}
        self._images_s: dict[int, float] = {}

    def active_experts(self, tokens: int) -> float:
        """Return the expected share of a layer's routed experts that `tokens` independent tokens touch: 1 - (1 -
        k/E)^tokens."""
        return 1.0 - self._expert_miss**tokens

    def layer_s(self, work: Work) -> float:
        tokens = work.tokens
        weights, kv, flops, attention, shared_s = self._layer(work)
        if self._sms and tokens:
            flops *= self._tiled(tokens)[1]
        if self._in_turn:
            products_s = max(weights / self._bandwidth, flops / self._flops)
            return products_s + max(kv / self._bandwidth, attention / self._flops) + shared_s
        return max((weights + kv) / self._bandwidth, (flops + attention) / self._flops) + shared_s

    def _layer(self, work: Work) -> tuple[float, float, float, float, float]:
        """Return the work of one layer: bytes of weights and activations, bytes of KV, operations of products,
        operations of attention, and seconds of all-reduces."""
        tokens = work.tokens
        weights = self._dense_bytes + self._expert_bytes * self.active_experts(tokens) + self._activation_bytes * tokens
        kv, flops, attention = (
            self._kv_bytes * work.kv_tokens,
            self._token_flops * tokens,
            self._pair_flops * work.attention_pairs,
        )
        return weights, kv, flops, attention, self._allreduce_s + self._allreduce_s_per_token * tokens

    def shared_step(self, work: Work, factor: float = 1.0, slower: float = 1.0) -> SharedStep:
        """Return the step of `step`, divided into arithmetic and traffic, for a GPU that several steps share. `slower`:
        factor on the seconds of its layers, without all-reduces, and of sampling."""
        decoder = self.decoder
        weights, kv, flops, attention, shared_s = self._layer(work)
        blocks, idle = self._tiled(work.tokens) if self._sms and work.tokens else (0, 1.0)
        operations = [(flops, idle, weights), (attention, 1.0, kv)]
        if not self._in_turn:
            operations = [(flops + attention / idle, idle, weights + kv)]
        timed = factor * slower
        layer = [self._part(f / self._flops, b / self._bandwidth, timed, blocks, i) for f, i, b in operations]
        layer.append(Part(fixed_s=shared_s * factor))
        before = [Part(fixed_s=self._host_s(work) * factor)]
        before.append(self._part(self._audio_encoder_s(work), 0.0, factor))
        before += [part for image in work.images for part in self._image_parts(image, factor)]
        after = [self._part(decoder.decoder_s_per_frame * work.frames, 0.0, factor)]
        if work.samples:
            head_s = 2 * self._head_params * work.samples / self._flops
            after.append(self._part(head_s, self._head_bytes_s, timed))
            if self._predictor is not None:
                after.append(Part(memory_s=self._code_predictor_s(work.samples) * timed))
        return SharedStep(_real(before), _real(layer), decoder.layers, _real(after))

    def _tiled(self, tokens: int) -> tuple[int, float]:
        return tiled(tokens, self.decoder.ffn or self.decoder.expert_ffn, self._sms)

    def _part(self, compute_s: float, memory_s: float, factor: float, blocks: int = 0, idle: float = 1.0) -> Part:
        """Return one part. Large products read their operands repeatedly; that traffic outweighs all other."""
        return Part(compute_s * idle * factor, max(memory_s, self._reread * compute_s) * factor, blocks=blocks)

    def image_step(self, tokens: int, factor: float = 1.0) -> SharedStep:
        """Return one image through the vision encoder. ValueError without one."""
        if self.decoder.vision_encoder is None:
            raise ValueError("the decoder has no vision encoder")
        return image_step(self.decoder.vision_encoder, self._gpu, tokens, factor)

    def _image_parts(self, tokens: int, factor: float) -> tuple[Part, ...]:
        if self.decoder.vision_encoder is None:
            return ()
        step = self.image_step(tokens, factor)
        layers = (part.times(step.layers) for part in step.layer)
        return (*step.before, *layers, *step.after, Part(fixed_s=self._waits_s(step) * factor))

    def _image_s(self, tokens: int) -> float:
        if self.decoder.vision_encoder is None:
            return 0.0
        seconds = self._images_s.get(tokens)
        if seconds is None:
            step = self.image_step(tokens)
            seconds = self._images_s[tokens] = alone_s(self._gpu, step) + self._waits_s(step)
        return seconds

    def _waits_s(self, step: SharedStep) -> float:
        """Return the seconds for which layers of the vision encoder wait for their weights and for events, in a pass by
        itself."""
        encoder, slots = self.decoder.vision_encoder, self._vision_slots
        if encoder is None or slots is None:
            return 0.0
        layer_s = alone_s(self._gpu, SharedStep((), step.layer, 1, ()))
        load_s = encoder.layer_bytes / self._gpu.pcie_bandwidth
        return pass_s(step.layers, slots, sync_s(slots) + layer_s, load_s) - step.layers * layer_s

    def step(self, work: Work, factor: float = 1.0) -> StepCost:
        """Return the cost of a whole step, layer by layer so that it can be interrupted between layers, times
        `factor`."""
        decoder = self.decoder
        before = self._host_s(work)
        if work.clips or work.images:
            before += self.encoder_s(work)
        after = decoder.decoder_s_per_frame * work.frames
        if work.samples:
            after += self.sampling_s(work.samples)
        return StepCost(before * factor, self.layer_s(work) * factor, decoder.layers, after * factor)

    def _host_s(self, work: Work) -> float:
        decoder = self.decoder
        seconds = decoder.host_s + decoder.host_s_per_request * work.requests
        return seconds + decoder.host_s_per_state * work.states if work.states else seconds

    def sampling_s(self, samples: int) -> float:
        """Return the seconds behind the layers for rows that sample: the output head, and the code predictor of a
        talker."""
        head_s = max(self._head_bytes_s, 2 * self._head_params * samples / self._flops)
        return head_s if self._predictor is None else head_s + self._code_predictor_s(samples)

    def encoder_s(self, work: Work) -> float:
        """Return the seconds of the encoders of sound and images, before the decoder's layers."""
        audio_s = self._audio_encoder_s(work)
        return audio_s + sum(map(self._image_s, work.images)) if work.images else audio_s

    def _audio_encoder_s(self, work: Work) -> float:
        return self.decoder.encoder_s * work.clips + self.decoder.encoder_s_per_audio_s * work.audio_s

    def _code_predictor_s(self, rows: int) -> float:
        """Return the seconds of the code predictor for one frame of `rows` requests; its context (at most 16) is
        free."""
        seconds = self._predictor_s.get(rows)
        if seconds is None:
            assert self._predictor is not None
            step = self._predictor.layer_s(Work(requests=rows, tokens=rows, kv_tokens=rows))
            seconds = self._predictor.decoder.steps * self._predictor.decoder.layers * step
            self._predictor_s[rows] = seconds
        return seconds


def _real(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if part != Part(blocks=part.blocks))


def image_step(encoder: VisionEncoder, gpu: Gpu, tokens: int, factor: float = 1.0) -> SharedStep:
    """Return the step that encodes one image of `tokens` tokens: layers of the vision encoder, and the adapter.

    An image is one sequence without causality, so that every patch sees every other one of its window. Reads and writes
    within the feed-forward come on top of `ACTIVATION_PASSES`.
    """
    patches = encoder.patches(tokens)
    wide = ACTIVATION_PASSES * encoder.hidden + 2 * encoder.ffn
    blocks, idle = tiled(patches, encoder.ffn, gpu.sms) if gpu.sms else (0, 1.0)
    moved = encoder.layer_bytes + wide * patches * encoder.dtype_bytes
    products = _part(gpu, 2 * encoder.layer_params * patches, moved, factor, blocks, idle)
    attention = _part(gpu, 4 * encoder.hidden * _pairs(encoder, patches), 0.0, factor)
    behind = encoder.adapter_params
    adapter = _part(gpu, 2 * behind * tokens, behind * encoder.dtype_bytes, factor)
    return SharedStep((), (products, attention), encoder.layers, (adapter,))


def _pairs(encoder: VisionEncoder, patches: int) -> float:
    """Return patches times the patches that each sees, on average over the layers."""
    if not encoder.window:
        return float(patches) ** 2
    full = encoder.full_layers / encoder.layers
    return patches * (full * patches + (1 - full) * min(encoder.window, patches))


def _part(gpu: Gpu, flops: float, moved: float, factor: float, blocks: int = 0, idle: float = 1.0) -> Part:
    compute_s = flops / gpu.flops
    memory_s = max(moved / gpu.bandwidth, gpu.reread * compute_s)
    return Part(compute_s * idle * factor, memory_s * factor, blocks=blocks)
