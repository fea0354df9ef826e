"""The modelled device under vLLM-Omni's stages of Qwen3-Omni and Qwen3-TTS: step times of the deployment's stage, and
made-up tokens, hidden states, codec frames and sound, each in the form that the next stage takes.

Shapes: a thinker's row gives hidden states (tokens of the row, 1), a talker's sample a frame (1, 16), a chunk of
code2wav its new frames x 1920 samples of a tone (vllm_omni 0.30.0, stage_input_processors/qwen3_omni.py and
models/qwen3_omni/qwen3_omni_code2wav.py, which cuts the left context off as well). The talker of Qwen3-TTS makes the
frame of a token in the next step, and says of each row of its own whether it is one (models/qwen3_tts/
qwen3_tts_talker.py 868-1069).
"""

# pyright: reportMissingImports=false
from typing import Any

import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm_omni.engine.duplex.contracts import duplex_session_id_from_request_id
from vllm_omni.engine.serialization import deserialize_additional_information
from vllm_omni.outputs import OmniModelRunnerOutput

from engines.core.device import Row
from engines.core.stage import Stage
from engines.core.vllm_adapter.configuration import DTYPES
from engines.deployments import Deployment
from engines.devices.kernels.choose import fitting, steps_of
from engines.devices.kernels.steps import FittedSteps
from engines.devices.layer_slots import slots_of
from engines.devices.roofline import Roofline, Work
from engines.stock.arguments import StockParams
from engines.stock.executor import ModelledExecutor
from engines.stock.omni.lengths import Lengths
from engines.stock.omni.model import END, HIDDEN_LAYER, LAST_FRAME
from engines.stock.omni.shared_gpu import SharedGpu, shared_gpu
from engines.stock.omni.step_file import StepFile, step_file

CODEBOOKS = 16
SAMPLE_RATE = 24_000
FRAME_SAMPLES = 1920
TONE = 0.1 * torch.sin(2 * torch.pi * 250 * torch.arange(FRAME_SAMPLES) / SAMPLE_RATE)
"""A frame's sound: whole periods of 250 Hz at -23 dBFS, as loud as speech. [chosen]"""
LETTERS = range(32, 127)
"""Tokens of the thinker's text: bytes that can be printed."""


class OmniExecutor(ModelledExecutor):
    """One stage on its modelled GPU, which it may share with another stage's process."""

    def _init_executor(self) -> None:
        super()._init_executor()
        params = self._params
        served = params.served
        self._role = params.role
        self._roofline = kernel_steps(served, self.limits)
        self._lengths = Lengths(params.seed, served.model)
        self._requests: dict[str, Any] = {}
        self._encoded = {"clips": 0, "audio_s": 0.0}
        self._frames = 0
        self._tokens_per_s = served.model.input_tokens_per_s
        self._lag = served.model.frame_lag_steps
        self._gpu: SharedGpu | None = shared_gpu(served, self.limits)
        self._steps: StepFile | None = step_file(self.limits.name)
        self._span_s = 0.0, 0.0

    def _stock_params(self) -> StockParams:
        return StockParams.of(self.vllm_config.additional_config, scheduled=False)

    def collective_rpc(self, method: Any, *args: Any, non_block: bool = False, **kwargs: Any) -> Any:
        if method == "rehearsal_lengths":
            given = kwargs.get("args") or args[1]
            return [self._lengths.tell(*given)]
        return super().collective_rpc(method, *args, non_block=non_block, **kwargs)

    def _check(self, deployment: str) -> None:
        """Check nothing: with any model of vLLM-Omni, times and KV are the deployment's stage's."""

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        decoder = self.limits.decoder
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=decoder.kv_heads,
            head_size=decoder.head_dim,
            dtype=DTYPES[decoder.dtype_bytes],
        )
        return [{f"layers.{layer}": spec for layer in range(round(decoder.layers))}]

    def _pool_tokens(self) -> int:
        """Return the pool of the deployment. The vocoder has no KV, so its pool always suffices."""
        if self._role != "vocoder":
            return super()._pool_tokens()
        return self.model_config.max_model_len * (1 + self.scheduler_config.max_num_seqs)

    def _ends_s(self, submitted_s: float, step_s: float) -> float:
        shared = self._gpu
        end_s = super()._ends_s(submitted_s, step_s) if shared is None else shared.ends_s(submitted_s, step_s)
        self._span_s = end_s - step_s, end_s
        return end_s

    def _run(self, work: Work, result: OmniModelRunnerOutput, submitted_s: float) -> OmniModelRunnerOutput:
        result = super()._run(work, result, submitted_s)
        if self._steps is not None and work.requests:
            self._steps.add(submitted_s, *self._span_s, work)
        return result

    def _work(self, rows: list[Row]) -> Work:
        work = Work.of(rows)
        work.frames = self._frames
        work.clips, work.audio_s = self._encoded["clips"], self._encoded["audio_s"]
        if self._role == "entry":
            work.states = sum(row.tokens for row in rows if row.tokens > 1)
        return work

    def _rows(self, output: SchedulerOutput) -> tuple[list[Row], OmniModelRunnerOutput]:
        for request_id in output.finished_req_ids:
            self._requests.pop(request_id, None)
        self._requests |= {new.req_id: new for new in output.scheduled_new_reqs}
        self._frames, self._encoded = 0, {"clips": 0, "audio_s": 0.0}
        if self._role == "vocoder":
            return self._decoded(output)
        rows, result = super()._rows(output)
        arrived: list[Any] = output.scheduled_new_reqs
        cached = {new.req_id: new.num_computed_tokens for new in arrived}
        for new in arrived:
            if self._params.served.speech_only:
                [text] = _information(new.additional_information)["text"]
                self._lengths.speak(new.external_req_id or new.req_id, text)
                continue
            sounds = _not_cached(new)
            self._encoded["clips"] += len(sounds)
            self._encoded["audio_s"] += sum(sounds) / self._tokens_per_s
        made = [
            self._made(row, sampled, cached.get(row.request_id, 0))
            for row, sampled in zip(rows, result.sampled_token_ids, strict=True)
        ]
        return rows, OmniModelRunnerOutput(
            result.req_ids, result.req_id_to_index, sampled_token_ids=result.sampled_token_ids, inter_stage_outputs=made
        )

    def _made(self, row: Row, sampled: list[int], cached: int) -> dict[str, Any] | None:
        """Return the row's output for the next stage. `cached`: prompt tokens before the row whose KV was found.

        vLLM-Omni keeps their states with the KV (core/prefix_cache) and sends them too, as the talker reads them all.
        """
        if self._role == "entry":
            states = torch.zeros(cached + row.tokens, 1)
            return {"hidden_states": {"layers": {0: states, HIDDEN_LAYER: states}}}
        if self._lag:
            made = torch.full((row.tokens,), row.context >= self._prompts[row.request_id])
            return {
                "codes": {"audio": torch.ones(row.tokens, CODEBOOKS, dtype=torch.long)},
                "meta": {"codec_frame_valid": made},
            }
        return {"codes": {"audio": torch.full((1, CODEBOOKS), sampled[0])}} if sampled else None

    def _token(self, request_id: str, position: int) -> int:
        """Return the token behind `position` tokens: text or a frame's first code, or the end, if `max_tokens` and
        `ignore_eos` of the request do not set its reply's length."""
        new = self._requests[request_id]
        made = position - new.prompt_len
        talker = self._role == "talker"
        if not new.sampling_params.ignore_eos:
            name = new.external_req_id or request_id
            text, frames = self._lengths.of(name, duplex_session_id_from_request_id(name))
            if made >= (frames if talker else text):
                return LAST_FRAME if talker else END
        return 1 + made % (LAST_FRAME // 2) if talker else LETTERS[made % len(LETTERS)]

    def _decoded(self, output: SchedulerOutput) -> tuple[list[Row], OmniModelRunnerOutput]:
        """Return chunks of codec frames as sound; a chunk is the request's prompt, whole, each time."""
        arrived: list[Any] = output.scheduled_new_reqs
        information = {new.req_id: new.additional_information for new in arrived}
        information |= getattr(output.scheduled_cached_reqs, "additional_information", {})
        rows, sounds = [], []
        for request_id, tokens in output.num_scheduled_tokens.items():
            info = _information(information.get(request_id))
            context = int((info.get("meta") or {}).get("left_context_size") or 0)
            frames = tokens // CODEBOOKS
            self._frames += frames
            rows.append(Row(request_id, frames, 0, True))
            samples = TONE.repeat(max(0, frames - context))
            sounds.append({"model_outputs": samples, "sr": torch.tensor(SAMPLE_RATE)})
        names = [row.request_id for row in rows]
        index = {name: i for i, name in enumerate(names)}
        result = OmniModelRunnerOutput(names, index, sampled_token_ids=[[] for _ in names], multimodal_outputs=sounds)
        return [row for row in rows if row.tokens], result


def _information(info: Any) -> dict[str, Any]:
    return info if isinstance(info, dict) else deserialize_additional_information(info)


def _not_cached(new: Any) -> list[int]:
    """Return the tokens of each sound in a new request's prompt that the encoder still has to hear."""
    places = [feature.mm_position for feature in new.mm_features or () if feature.modality == "audio"]
    return [place.length for place in places if place.offset + place.length > new.num_computed_tokens]


def kernel_steps(deployment: Deployment, stage: Stage) -> Roofline:
    """Return a stage's step times as in a replay without settings: by shipped kernels of its decoder, by rates that
    kernels reach on such a GPU, or by the roofline that the deployment asks for."""
    gpu, own_roofline = deployment.gpu, deployment.in_turn or deployment.waves
    shipped = fitting(deployment.model.name, stage.name, stage.decoder, gpu.name, stage.split)
    steps = steps_of(stage, gpu, shipped[1] if shipped is not None else None)
    if steps is not None:
        return steps
    if gpu.kernels is not None and not own_roofline:
        return FittedSteps(stage.decoder, gpu, stage.split, slots_of(stage))
    return Roofline(stage.decoder, gpu, stage.split, deployment.in_turn, deployment.waves, slots_of(stage))
