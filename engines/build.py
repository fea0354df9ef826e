"""Put a server together: a deployment's stages with vLLM's schedulers, one engine's policies, on modelled GPUs."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from pydantic import BaseModel

from engines.core import vllm_adapter as vllm
from engines.core.gateway import Gateway
from engines.core.loop import StageEngine
from engines.core.monitor import Monitor
from engines.core.pipeline import Pipeline
from engines.core.recorder import Recorder
from engines.devices.stage import VirtualStage
from engines.devices.virtual import VirtualGpu
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from workloads.seeds import stream


@dataclass
class Server:
    """A server ready to serve: ``gateway`` is what clients talk to; ``engines`` are its stage replicas."""

    gateway: Gateway
    engines: list[StageEngine]

    def start(self) -> list[asyncio.Task[None]]:
        return [
            asyncio.create_task(engine.serve(), name=f"engine {engine.stage}.{engine.replica}")
            for engine in self.engines
        ]

    async def settle(self) -> None:
        """Wait until no stage has anything left to do: the last aborts have been applied."""
        while any(engine.load for engine in self.engines):
            await asyncio.sleep(0.01)

    def counters(self) -> dict[str, int]:
        """What policies, monitor and gateway counted, for the record."""
        counters = Counter(
            stale_acks=self.gateway.monitor.stale_acks,
            truncated_prompts=self.gateway.truncated_prompts,
            truncated_replies=self.gateway.truncated_replies,
            dryrun_mismatch=sum(engine.unscheduled_in_plan for engine in self.engines),
        )
        for engine in self.engines:
            if engine.policy is not None:
                counters.update({f"{engine.stage}.{name}": n for name, n in engine.policy.counters.items()})
        return dict(counters)


def build_server(
    engine: str, engine_params: BaseModel, params: ServerParams, recorder: Recorder, seed: int
) -> Server:
    """A server on virtual devices, inside a running event loop."""
    deployment = resolve(params)
    gpus = [VirtualGpu(deployment.gpu) for _ in range(deployment.gpu_count)]
    monitor = Monitor(deployment.model.speech_s_per_text_token)
    gateway = Gateway(deployment, params.first_chunk_frames, monitor, recorder)
    placed: dict[StageEngine, VirtualGpu] = {}

    def transfer(source: StageEngine, target: StageEngine, size_bytes: float) -> float:
        on_host = placed[source].to_host.copy(size_bytes)
        return placed[target].to_device.copy(size_bytes, on_host)

    pipeline = gateway.pipeline = Pipeline(deployment, gateway, transfer)
    for name, stage in deployment.stages.items():
        for replica, index in enumerate(stage.gpus):
            replica_engine = StageEngine(
                stage=name,
                replica=replica,
                scheduler=vllm.make_scheduler(stage, vllm.StageScheduler),
                device=VirtualStage(
                    stage.decoder,
                    gpus[index],
                    params.step_noise_cv,
                    stream(seed, f"device/{name}/{replica}"),
                    decodes_audio=name == "vocoder",
                ),
                on_token=pipeline.on_token[name],
                on_finish=pipeline.on_finish[name],
                recorder=recorder,
                monitor=monitor,
                policy=ENGINES[engine].policy(name, engine_params),
                ready=pipeline.text_ready if name == "talker" else None,
                prefix_caching=stage.prefix_caching,
                keeps_kv=name != "vocoder",
            )
            pipeline.engines[name].append(replica_engine)
            placed[replica_engine] = gpus[index]
    return Server(gateway, list(placed))
