"""Put a server together: a deployment's stages with vLLM's schedulers, one engine's policies, on one kind of device."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel

from engines.core import vllm_adapter as vllm
from engines.core.gateway import Gateway
from engines.core.loop import StageEngine
from engines.core.monitor import Monitor
from engines.core.pipeline import Pipeline
from engines.core.recorder import Recorder
from engines.devices.available import MODELLED, check, check_said
from engines.devices.profile import Profile
from engines.devices.stage import VirtualStage
from engines.devices.virtual import VirtualGpu
from engines.registry import ENGINES, REAL_DEVICES
from engines.server import ServerParams, Stage, resolve
from workloads.seeds import stream
from workloads.trace import Trace

if TYPE_CHECKING:
    from engines.core.vllm_adapter.execution import ModelExecutor
    from engines.devices.ears import Ears
    from engines.devices.real import DeviceThread


ROOFLINE_NOISE_CV = 0.03
"""Of modelled steps where nothing else is said: [chosen] no step of a real GPU takes exactly what a model says."""


@dataclass
class Server:
    """A server ready to serve: ``gateway`` is what clients talk to; ``engines`` are its stage replicas.

    ``executors``: the real ones among their devices, and ``thread``, in which they run; ``ears``: of a thinker among
    these that hears.
    """

    gateway: Gateway
    engines: list[StageEngine]
    executors: "list[ModelExecutor]"
    thread: "DeviceThread | None"
    ears: "Ears | None" = None

    def replicas(self, trace: Trace) -> int:
        """Replicas of the talker that could work for ``trace`` at once; of the thinker where nothing is spoken."""
        stages = self.gateway.deployment.stages
        speaks = "talker" in stages and np.isfinite(trace.columns()["reply_audio_s"]).any()
        return len(stages["talker" if speaks else "thinker"].gpus)

    def warm_up(self) -> int:
        """Let real executors take first steps that nobody measures; returns their number."""
        steps = sum(executor.warm_up() for executor in self.executors)
        return steps + (self.ears.warm_up() if self.ears is not None else 0)

    def close(self) -> dict[str, int]:
        """Shut real executors down; returns what they still held before: nothing, after a clean run."""
        if self.ears is not None:
            self.ears.close()
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
        tasks = [
            asyncio.create_task(engine.serve(), name=f"engine {engine.stage}.{engine.replica}")
            for engine in self.engines
        ]
        if self.ears is not None:
            tasks.append(asyncio.create_task(self.gateway.listen(), name="ears"))
        return tasks

    async def settle(self) -> None:
        """Wait until no stage has anything left to do: the last aborts are applied, the last transfers have ended."""
        while any(engine.busy for engine in self.engines):
            await asyncio.sleep(0.01)

    def counters(self) -> dict[str, int]:
        """What policies, monitor and gateway counted, for the record."""
        counters = Counter(
            stale_acks=self.gateway.monitor.stale_acks,
            truncated_prompts=self.gateway.truncated_prompts,
            truncated_replies=self.gateway.truncated_replies,
            dryrun_mismatch=sum(engine.unscheduled_in_plan for engine in self.engines),
        )
        if self.ears is not None:
            counters["sounds_heard"] = self.gateway.sounds_heard
        for engine in self.engines:
            for source in engine.counters():
                counters.update({f"{engine.stage}.{name}": n for name, n in source.items()})
        return dict(counters)


def build_server(
    engine: str,
    engine_params: BaseModel,
    params: ServerParams,
    recorder: Recorder,
    seed: int,
    device: str = "virtual",
    profile: Profile | None = None,
    trace: Trace | None = None,
) -> Server:
    """A server inside a running event loop; on a real device its models are loaded here, which takes seconds.

    ``profile``: measured step times, which take the place of the roofline at the stages it has (virtual device).
    ``trace``: where a thinker that hears on a real device finds what its users say; without one it counts tokens.
    UserError when this machine has no such device or too little of it, or the trace does not tell what is said.
    """
    deployment = resolve(params)
    check(device, deployment)
    if trace is not None:
        check_said(device, deployment, trace)
    gpus = {group: VirtualGpu(deployment.gpu, len(group)) for group in deployment.gpu_groups}
    monitor = Monitor(deployment.model.speech_s_per_text_token)
    gateway = Gateway(deployment, params.first_chunk_frames, monitor, recorder)
    placed: dict[StageEngine, VirtualGpu] = {}
    real, thread = device in REAL_DEVICES, None
    if real:  # vLLM's engine and worker take seconds to import, and a replay needs neither
        from engines.core.vllm_adapter.execution import ModelExecutor
        from engines.devices.ears import Ears, sound_of
        from engines.devices.real import CopyAtOnce, DeviceThread, RealStage

        thread = DeviceThread(device)
    executors: list[ModelExecutor] = []
    ears: Ears | None = None

    def transfer(source: StageEngine, target: StageEngine, size_bytes: float) -> float:
        if real:
            return asyncio.get_running_loop().time()  # it stays in this process
        on_host = placed[source].to_host.copy(size_bytes)
        return placed[target].to_device.copy(size_bytes, on_host)

    pipeline = gateway.pipeline = Pipeline(deployment, gateway, transfer)
    spec = ENGINES[engine]
    for name, described in deployment.stages.items():
        stage = _with_host(described, spec.offloads(engine_params))
        for replica, group in enumerate(stage.gpus):
            transfers = None
            if thread is not None and name not in MODELLED:
                executor = ModelExecutor(stage)
                executors.append(executor)
                if stage.host_kv_gb:
                    copies = CopyAtOnce(deployment.gpu.pcie_bandwidth)
                    transfers = vllm.HostTransfers(copies, copies, stage.block_bytes, executor.host_memory())
                if name == "thinker" and deployment.hears and trace is not None:
                    ears = gateway.ears = Ears(executor, sound_of(trace))
                scheduler, runs = executor.scheduler, RealStage(executor, thread)
            else:
                scheduler = vllm.make_scheduler(stage, vllm.StageScheduler)
                fitted = profile.stages.get(name) if profile is not None else None
                noise_cv = params.step_noise_cv
                if noise_cv is None:
                    noise_cv = ROOFLINE_NOISE_CV if fitted is None else 0.0
                runs = VirtualStage(
                    stage.decoder,
                    gpus[group],
                    noise_cv,
                    stream(seed, f"device/{name}/{replica}"),
                    step_time=fitted.step_time if fitted is not None else None,
                )
                if stage.host_kv_gb:
                    gpu = gpus[group]
                    transfers = vllm.HostTransfers(gpu.to_device, gpu.to_host, stage.block_bytes)
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
                charge_eviction=params.charge_eviction and not real,
            )
            pipeline.engines[name].append(replica_engine)
            placed[replica_engine] = gpus[group]
    return Server(gateway, list(placed), executors, thread, ears)


def _with_host(stage: Stage, offloads: bool) -> Stage:
    """The stage with its host memory if its KV goes there: what is not in the prefix cache is not stored."""
    return stage if offloads and stage.prefix_caching else replace(stage, host_kv_gb=0.0)
