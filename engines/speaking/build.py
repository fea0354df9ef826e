"""Put a server of turns together: a deployment's stages with vLLM's schedulers, one engine's policies, on one kind of
device. `engines.calls.build` puts together what serves interaction sessions."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import BaseModel

from engines.core import vllm_adapter as vllm
from engines.core.device import Device
from engines.core.engine import StageEngine
from engines.core.recorder import Recorder
from engines.core.stage import Stage
from engines.deployment import Deployment
from engines.devices.available import MODELLED, check, check_said
from engines.devices.names import REAL_DEVICES
from engines.devices.profile import Profile
from engines.devices.stage import VirtualStage
from engines.devices.virtual import VirtualGpu
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from engines.speaking.gateway import Gateway
from engines.speaking.monitor import Monitor
from engines.speaking.pipeline import Pipeline
from workloads.seeds import stream
from workloads.trace import Trace

if TYPE_CHECKING:
    from engines.core.vllm_adapter.execution import ModelExecutor
    from engines.devices.audio_encoder import AudioEncoder, Sound
    from engines.devices.real import DeviceThread


ROOFLINE_NOISE_CV = 0.03
"""Of modelled steps where nothing else is said: [chosen] no step of a real GPU takes exactly what a model says."""


@dataclass
class Serving:
    """Stage replicas ready to serve, whoever is in front of them.

    `executors`: the real ones among their devices, and `thread`, in which they run.
    """

    engines: Sequence[StageEngine]
    executors: "list[ModelExecutor]"
    thread: "DeviceThread | None"

    def warm_up(self) -> int:
        """Let real executors take first steps that nobody measures; returns their number."""
        return sum(executor.warm_up() for executor in self.executors)

    def close(self) -> dict[str, int]:
        """Shut real executors down; returns what they still held before: nothing, after a clean run."""
        if self.thread is not None:
            self.thread.close()
        for executor in self.executors:
            executor.flush()
        held = {
            "requests_after": sum(executor.worker_requests for executor in self.executors),
            "kv_blocks_used_after": sum(
                e.scheduler.allocatable_blocks - e.scheduler.free_blocks for e in self.engines
            ),
        }
        for executor in self.executors:
            executor.close()
        return held

    def start(self) -> list[asyncio.Task[None]]:
        return [
            asyncio.create_task(engine.serve(), name=f"engine {engine.stage}.{engine.replica}")
            for engine in self.engines
        ]

    async def settle(self) -> None:
        """Wait until no stage has anything left to do: the last aborts are applied, the last transfers have ended."""
        while any(engine.busy for engine in self.engines):
            await asyncio.sleep(0.01)

    def counters(self) -> dict[str, int]:
        """What policies, schedulers and stores counted, for the record."""
        counters: Counter[str] = Counter()
        for engine in self.engines:
            for source in engine.counters():
                counters.update({f"{engine.stage}.{name}": n for name, n in source.items()})
        return dict(counters)


@dataclass
class Server(Serving):
    """A server of turns: `gateway` is what clients talk to. `audio_encoder`: of a thinker that really hears."""

    gateway: Gateway
    audio_encoder: "AudioEncoder | None" = None

    def replicas(self, trace: Trace) -> int:
        """Replicas of the talker that could work for `trace` at once; of the thinker where nothing is spoken."""
        stages = self.gateway.deployment.stages
        speaks = "talker" in stages and np.isfinite(trace.columns()["reply_audio_s"]).any()
        return len(stages["talker" if speaks else "thinker"].gpus)

    def warm_up(self) -> int:
        return super().warm_up() + (self.audio_encoder.warm_up() if self.audio_encoder is not None else 0)

    def close(self) -> dict[str, int]:
        if self.audio_encoder is not None:
            self.audio_encoder.close()
        return super().close()

    def start(self) -> list[asyncio.Task[None]]:
        tasks = super().start()
        if self.audio_encoder is not None:
            tasks.append(asyncio.create_task(self.gateway.listen(), name="audio encoder"))
        return tasks

    def counters(self) -> dict[str, int]:
        counters = dict(
            stale_acks=self.gateway.monitor.stale_acks,
            truncated_prompts=self.gateway.truncated_prompts,
            truncated_replies=self.gateway.truncated_replies,
            dryrun_mismatch=sum(engine.unscheduled_in_plan for engine in self.engines),
        )
        if self.audio_encoder is not None:
            counters["sounds_heard"] = self.gateway.sounds_heard
        return counters | super().counters()


class Replica(NamedTuple):
    """One replica of a stage before anybody drives it. `executor`: its real device, where it has one."""

    gpu: VirtualGpu
    scheduler: vllm.StageScheduler
    device: Device
    transfers: vllm.HostTransfers | None
    executor: "ModelExecutor | None"


class Devices:
    """What a deployment's stages run on; on a real device each replica's model is loaded when it is asked for."""

    def __init__(
        self, deployment: Deployment, params: ServerParams, seed: int, device: str, profile: Profile | None
    ) -> None:
        self.real = device in REAL_DEVICES
        self.executors: list[ModelExecutor] = []
        self.thread: DeviceThread | None = None
        self._gpu = deployment.gpu
        self._gpus = {group: VirtualGpu(deployment.gpu, len(group)) for group in deployment.gpu_groups}
        self._params = params
        self._seed = seed
        self._profile = profile
        if self.real:  # vLLM's engine and worker take seconds to import, and a replay needs neither
            from engines.devices import real

            self.thread = real.DeviceThread(device)

    def replica(self, stage: Stage, replica: int) -> Replica:
        """The replica's scheduler over its KV pool, and what runs its steps."""
        gpu = self._gpus[stage.gpus[replica]]
        if self.thread is not None and stage.name not in MODELLED:
            return self._executed(stage, gpu, self.thread)
        fitted = self._profile.stages.get(stage.name) if self._profile is not None else None
        noise_cv = self._params.step_noise_cv
        if noise_cv is None:
            noise_cv = ROOFLINE_NOISE_CV if fitted is None else 0.0
        scheduler = vllm.make_scheduler(stage, vllm.StageScheduler)
        runs = VirtualStage(
            stage.decoder,
            gpu,
            noise_cv,
            stream(self._seed, f"device/{stage.name}/{replica}"),
            step_time=fitted.step_time if fitted is not None else None,
            reach=stage.reach,
        )
        transfers = None
        if stage.host_kv_gb:
            transfers = vllm.HostTransfers(gpu.to_device, gpu.to_host, stage.block_bytes)
        return Replica(gpu, scheduler, runs, transfers, None)

    def _executed(self, stage: Stage, gpu: VirtualGpu, thread: "DeviceThread") -> Replica:
        from engines.core.vllm_adapter.execution import ModelExecutor
        from engines.devices.real import CopyAtOnce, RealStage

        executor = ModelExecutor(stage)
        self.executors.append(executor)
        transfers = None
        if stage.host_kv_gb:
            copies = CopyAtOnce(self._gpu.pcie_bandwidth)
            transfers = vllm.HostTransfers(copies, copies, stage.block_bytes, executor.host_memory())
        return Replica(gpu, executor.scheduler, RealStage(executor, thread), transfers, executor)


def build_server(
    engine: str,
    engine_params: BaseModel,
    params: ServerParams,
    recorder: Recorder,
    seed: int,
    device: str = "virtual",
    profile: Profile | None = None,
    trace: Trace | None = None,
    sound: "Sound | None" = None,
) -> Server:
    """A server of turns inside a running event loop; on a real device its models are loaded here, which takes seconds.

    `profile`: measured step times, which take the place of the roofline at the stages it has (modelled devices).
    `trace` or `sound`: where a thinker that hears on a real device finds what its users say; without either it
    counts tokens.
    UserError when this machine has no such device or too little of it, or the trace does not tell what is said.
    """
    deployment = resolve(params)
    check(device, deployment)
    if trace is not None:
        check_said(device, deployment, trace)
    devices = Devices(deployment, params, seed, device, profile)
    monitor = Monitor(deployment.model.speech_s_per_text_token)
    gateway = Gateway(deployment, params.first_chunk_frames, monitor, recorder)
    placed: dict[StageEngine, VirtualGpu] = {}
    audio_encoder: AudioEncoder | None = None

    def transfer(source: StageEngine, target: StageEngine, size_bytes: float) -> float:
        if devices.real:
            return asyncio.get_running_loop().time()  # it stays in this process
        on_host = placed[source].to_host.copy(size_bytes)
        return placed[target].to_device.copy(size_bytes, on_host)

    pipeline = gateway.pipeline = Pipeline(deployment, gateway, transfer)
    spec = ENGINES[engine]
    for name, described in deployment.stages.items():
        stage = _with_host(described, spec.offloads(engine_params))
        for replica in range(len(stage.gpus)):
            gpu, scheduler, runs, transfers, executor = devices.replica(stage, replica)
            if executor is not None and name == "thinker" and deployment.hears and (trace or sound):
                from engines.devices import audio_encoder as hearing

                if trace is not None:
                    sound = hearing.sound_of(trace)
                assert sound is not None
                audio_encoder = gateway.audio_encoder = hearing.AudioEncoder(executor, sound)
            replica_engine = StageEngine(
                stage=name,
                replica=replica,
                scheduler=scheduler,
                device=runs,
                on_token=pipeline.on_token[name],
                on_finish=pipeline.on_finish[name],
                recorder=recorder,
                monitor=monitor,
                policy=spec.policy(name, engine_params),
                ready=pipeline.ready.get(name),
                prefix_caching=stage.prefix_caching,
                keeps_kv=name != "vocoder",
                abort_at_layer=params.abort_at == "layer",
                transfers=transfers,
                manager=spec.kv_manager(name, engine_params) if transfers is not None else None,
                charge_eviction=params.charge_eviction and not devices.real,
            )
            pipeline.engines[name].append(replica_engine)
            placed[replica_engine] = gpu
    return Server(list(placed), devices.executors, devices.thread, gateway, audio_encoder)


def _with_host(stage: Stage, offloads: bool) -> Stage:
    """The stage with its host memory if its KV goes there: what is not in the prefix cache is not stored."""
    return stage if offloads and stage.prefix_caching else replace(stage, host_kv_gb=0.0)
