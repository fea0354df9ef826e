"""The assembly of a system: the deployment, replicas of its stages and named seed streams (`Parts`), and the result,
replicas and their front, ready to serve (`Serving`)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engines.core import vllm_adapter as vllm
from engines.core.commands import Arrival
from engines.core.engine import StageEngine
from engines.core.fast_path.decode_fast_path import path_of
from engines.core.kv_manager import KvManager
from engines.core.lockstep import Lockstep
from engines.core.output import Output
from engines.core.policy import Policy, ProfiledPolicy
from engines.core.recorder import Recorder
from engines.core.replica import Replica
from engines.core.stage import HostCopies, Safepoints, Stage, reach, windowed_share
from engines.deployments import Deployment
from engines.deployments.available import check, check_said
from engines.devices.expert_parallel import BalancedExperts
from engines.devices.extensions import InLockstep, SmShare, StatedSteps
from engines.devices.fabric import Fabric, Port
from engines.devices.host import STEP_NOISE_CV, as_shown
from engines.devices.kernels.choose import fitting, steps_of
from engines.devices.kernels.grids import Kernels
from engines.devices.kernels.steps import FittedSteps, KernelSteps
from engines.devices.layer_slots import slots_of
from engines.devices.lockstep import ExpertsTime, LockstepDies
from engines.devices.noise import Noise
from engines.devices.profile import Profile
from engines.devices.spread import Spread
from engines.devices.stage import VirtualStage
from engines.devices.step_file import Calibrated, StepFile
from engines.devices.step_time import StepTime
from engines.devices.virtual import VirtualGpu
from engines.server import ResolvedServer
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError
from workloads.seeds import stream
from workloads.trace import Trace

if TYPE_CHECKING:
    from engines.devices.audio_encoder import AudioEncoder, Sound


class Gateway(Protocol):
    """The front of a system's stages. Clients call it with the verbs of its kind of workload."""

    @property
    def deployment(self) -> Deployment: ...

    def counters(self) -> Mapping[str, int]:
        """Return the gateway's counters, for the record."""
        ...

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the tasks that run for ever along with the stages."""
        ...


@dataclass
class Serving:
    """A system ready to serve. `gateway`: clients call it. `executors`: the real ones among the replicas' devices, and
    `thread`, in which they run. `audio_encoder`: of a model that really hears. `answers`: session, the frame that it
    answers and token ids, in the order of production; None if that is not kept. `groups`: of engines that step
    together."""

    gateway: Any
    engines: Sequence[StageEngine]
    executors: Sequence[Any] = field(default_factory=list)
    thread: Any = None
    audio_encoder: Any = None
    answers: Sequence[tuple[int, int, list[int]]] | None = None
    groups: Sequence[Lockstep] = ()

    def warm_up(self) -> int:
        """Let real executors take first steps that nobody measures; returns their number."""
        steps = sum(executor.warm_up() for executor in self.executors)
        return steps + (self.audio_encoder.warm_up() if self.audio_encoder is not None else 0)

    def close(self) -> dict[str, int]:
        """Shut real executors down; returns the objects that they still held before: none, after a clean run."""
        if self.audio_encoder is not None:
            self.audio_encoder.close()
        if self.thread is not None:
            self.thread.close()
        for executor in self.executors:
            executor.flush()
        held = {
            "requests_after": sum(executor.worker_requests for executor in self.executors),
            "kv_blocks_used_after": sum(e.scheduler.allocatable_blocks - e.scheduler.free_blocks for e in self.engines),
        }
        for executor in self.executors:
            executor.close()
        return held

    def start(self) -> list[asyncio.Task[None]]:
        together = {engine for group in self.groups for engine in group.engines}
        tasks = [
            asyncio.create_task(engine.serve(), name=f"engine {engine.stage}.{engine.index}")
            for engine in self.engines
            if engine not in together
        ]
        tasks += [asyncio.create_task(group.serve(), name="engines in lock step") for group in self.groups]
        return tasks + [asyncio.create_task(task, name=task.__name__) for task in self.gateway.tasks()]

    async def settle(self) -> None:
        """Wait until no stage has work: the last aborts are applied, the last transfers have ended."""
        while any(engine.busy for engine in self.engines):
            await asyncio.sleep(0.01)

    def counters(self) -> dict[str, int]:
        """Return the counters of gateway, policies, schedulers and stores, for the record."""
        counters: Counter[str] = Counter()
        for engine in self.engines:
            for source in engine.counters():
                counters.update({f"{engine.stage}.{name}": n for name, n in source.items()})
        return {**self.gateway.counters(), **counters}


ROOFLINE_NOISE_CV = 0.03
"""[chosen] Noise (coefficient of variation) of modelled steps without another noise: no step of a real GPU takes
exactly the modelled time."""


class Parts:
    """Makes the parts of one server, on one kind of device. Must be made inside a running event loop.

    `profile`: measured step times, or kernels, which replace others at the stages it has, or factors on all (modelled
    devices). `trace` or `sound`: the users' words, for a model that hears on a real device; without either it counts
    tokens. `frame_s`: length of a frame if no trace has it.
    """

    def __init__(
        self,
        server: ResolvedServer,
        recorder: Recorder,
        seed: int,
        device: str = "virtual",
        profile: StepFile | None = None,
        trace: Trace | None = None,
        sound: "Sound | None" = None,
        frame_s: float | None = None,
    ) -> None:
        self.params = server.params
        self.recorder = recorder
        self.deployment = server.deployment
        self._unscaled = server.unscaled
        self.device = device
        self.real = device in REAL_DEVICES
        self.trace = trace
        self.frame_s = frame_s
        self.audio_encoder: AudioEncoder | None = None
        self._sound = sound
        self._seed = seed
        self._profile = profile
        self._factors = profile.factors if isinstance(profile, Calibrated) else None
        if self._factors is not None:
            client_s, each = self._factors.client_s.value, self._factors.client_s_per_reply
            overheads = replace(self.deployment.overheads, preprocess_s=client_s, preprocess_text_s=None)
            if each is not None:
                overheads = replace(overheads, preprocess_s_per_reply=each.value)
            self.deployment = replace(self.deployment, overheads=overheads)
        self._gpus: dict[tuple[int, ...], VirtualGpu] = {}
        self._executors: list[Any] = []
        self._fabric: Fabric | None = None
        self._groups: list[Lockstep] = []
        self._thread: Any = None

    def only(self, *stages: str) -> None:
        """Leave the deployment's other stages out."""
        kept = {name: stage for name, stage in self.deployment.stages.items() if name in stages}
        self.deployment = replace(self.deployment, stages=kept)

    def divide(self, name: str, roles: dict[str, int]) -> None:
        """Divide the deployment as `Deployment.divided` does."""
        self.deployment = self.deployment.divided(name, roles)

    def stage(self, name: str) -> Stage:
        """Return the stage of this name. UserError without one."""
        return self.deployment.stage(name)

    def stream(self, name: str) -> np.random.Generator:
        """Return random numbers that depend on the run's seed and this name alone."""
        return stream(self._seed, name)

    def replicas(self, stage: Stage, role: str | None = None) -> list[Replica]:
        """Return the replicas of a stage, or of one role, which hand KV to those of another. Real models are loaded
        now, which takes seconds.

        UserError when this machine has no such device or too little of it, or the trace lacks the users' words.
        """
        if not self._gpus:
            check(self.device, self.deployment)
            if self.trace is not None:
                check_said(self.device, self.deployment, self.trace)
            stages = [*self.deployment.stages.values(), stage]
            shared = {g for each in stages if each.extension(SmShare) is not None for g in each.gpus}
            for group in self.deployment.gpu_groups:
                self._gpus[group] = VirtualGpu(self.deployment.gpu, len(group), group in shared)
        if role is None:
            return [self._replica(stage, index) for index in range(len(stage.gpus))]
        if self.real:
            raise UserError(
                f"replicas that hand KV over are modelled ones, and device {self.device} is none; set device=virtual."
            )
        if self._fabric is None:
            self._fabric = Fabric(self.deployment.gpu.network_s)
        return [self._replica(stage.as_role(role), index) for index in stage.roles[role]]

    def engine(
        self,
        replica: Replica,
        output: Output,
        policy: Policy | None = None,
        manager: KvManager | None = None,
        on_arrival: Arrival | None = None,
        loop: Callable[..., StageEngine] | None = None,
    ) -> StageEngine:
        """Return the loop that drives a replica; `loop` makes another one than the kernel's."""
        charged = self.params.charge_eviction and not self.real
        device = replica.device
        if isinstance(policy, ProfiledPolicy) and isinstance(device, VirtualStage):
            policy.profile(device.measure, replica.stage.max_num_batched_tokens)
        path = path_of(replica, self.params.decode_fast_path)
        return (loop or StageEngine)(replica, output, self.recorder, policy, manager, on_arrival, charged, path)

    def lockstep(self, engines: Sequence[StageEngine], experts_s: ExpertsTime | None = None) -> Lockstep:
        """Let these engines step together. `experts_s`: seconds of the routed experts of a step; None: as if every die
        had the same number of tokens."""
        stage, gpu = engines[0].replica.stage, self.deployment.gpu
        if experts_s is None:
            experts_s = BalancedExperts(stage.decoder, gpu, len(engines))
        device = LockstepDies(
            stage.decoder,
            gpu,
            experts_s,
            self._noise(ROOFLINE_NOISE_CV, f"{stage.name}/lockstep", draws=1),
            reach(stage),
            windowed_share(stage),
        )
        group = Lockstep(engines, device)
        self._groups.append(group)
        return group

    def transfer(self, source: Replica, target: Replica, size_bytes: float) -> float:
        """Queue a copy between the GPUs of two replicas; returns when it will have arrived (s)."""
        if self.real:
            return asyncio.get_running_loop().time()  # it stays in this process
        return target.gpu.to_device.copy(size_bytes, source.gpu.to_host.copy(size_bytes))

    def serving(self, gateway: Any, engines: Sequence[StageEngine], answers: Any = None) -> Serving:
        """Return the system with this front; replicas of a stage that step together and are in no group yet become
        one."""
        ungrouped = [engine for engine in engines if engine.replica.stage.extension(InLockstep) is not None]
        for group in self._groups:
            ungrouped = [engine for engine in ungrouped if engine not in group.engines]
        for stage in dict.fromkeys(engine.stage for engine in ungrouped):
            self.lockstep([engine for engine in ungrouped if engine.stage == stage])
        return Serving(gateway, engines, self._executors, self._thread, self.audio_encoder, answers, self._groups)

    def _replica(self, stage: Stage, index: int) -> Replica:
        gpu = self._gpus[stage.gpus[index]]
        if self.real and not stage.modelled:
            return self._executed(stage, index, gpu)
        decoder, factors = as_shown(stage.decoder, stage.async_scheduling), self._factors
        if factors is not None:
            host_s, each_s = factors.host_s.value, factors.host_s_per_request.value
            decoder = replace(decoder, host_s=host_s, host_s_per_request=each_s)
        stage = replace(stage, decoder=decoder)
        (times, noise_cv), share = self._step_times(stage), stage.extension(SmShare)
        scheduler = vllm.make_scheduler(stage, vllm.StageScheduler)
        scheduler.model()
        device = VirtualStage(
            stage.decoder,
            gpu,
            self._noise(noise_cv, f"{stage.name}/{index}"),
            step_time=times if isinstance(times, StepTime) else None,
            reach=reach(stage),
            reach_share=windowed_share(stage),
            safepoints=stage.extension(Safepoints) or Safepoints(),
            in_turn=self.deployment.in_turn,
            waves=self.deployment.waves,
            sms=None if share is None else share.share * gpu.facts.sms,
            vision_slots=slots_of(stage),
            kernels=times if isinstance(times, KernelSteps) else None,
            slower=(1.0, 1.0) if factors is None else (factors.decode.value, factors.prompt.value),
        )
        transfers = None
        if stage.host_kv_gb and stage.role is None:
            transfers = vllm.HostTransfers(
                gpu.to_device, gpu.to_host, stage.block_bytes, copies=stage.extension(HostCopies) or HostCopies()
            )
        if stage.role is None:
            return Replica(stage, index, scheduler, device, transfers, gpu=gpu)
        port = Port(gpu.facts.network_bandwidth * gpu.count)
        return Replica(stage, index, scheduler, device, gpu=gpu, port=port, fabric=self._fabric)

    def _noise(self, cv: float, device: str, draws: int = 4096) -> Noise:
        """Return the noise of a device's step times: as set, as the deployment says, or of `cv`, where 0 are steps that
        were measured."""
        spread, asked = Spread(cv), self.params.step_noise_cv
        if asked is not None:
            spread = Spread(asked)
        elif cv and self.deployment.spread:
            spread = self.deployment.spread
        if self.params.step_stall_chance:
            spread = replace(spread, stall_chance=self.params.step_stall_chance, stall_s=self.params.step_stall_s)
        return Noise(spread, self.stream(f"device/{device}"), draws)

    def _step_times(self, stage: Stage) -> tuple[StepTime | KernelSteps | None, float]:
        """Return the stage's step times, by the first source that has any, and their noise; None: by the roofline."""
        for source, noise_cv in (
            (self._profiled, 0.0),
            (self._stated, ROOFLINE_NOISE_CV),
            (self._measured, STEP_NOISE_CV),
            (self._estimated, STEP_NOISE_CV),
        ):
            if (times := source(stage)) is not None:
                return times, noise_cv
        return None, ROOFLINE_NOISE_CV

    def _profiled(self, stage: Stage) -> StepTime | None:
        """Return times that were fitted to steps measured on this machine."""
        profile = self._profile.stages.get(stage.name) if isinstance(self._profile, Profile) else None
        return None if profile is None else profile.step_time

    def _stated(self, stage: Stage) -> StepTime | None:
        """Return the times that the deployment states."""
        stated = stage.extension(StatedSteps)
        if stated is None:
            return None
        return StepTime({name: stated.scale * value for name, value in stated.coefficients.items()})

    def _measured(self, stage: Stage) -> KernelSteps | None:
        """Return the times of kernels that were measured for this very decoder: the profile's, or shipped ones."""
        if self.params.step_times == "roofline":
            return None
        scaled = self.params.scale is not None
        deployment = self._unscaled if scaled else self.deployment
        decoder, gpu = deployment.stages.get(stage.name, stage).decoder, deployment.gpu
        if isinstance(self._profile, Kernels):
            kernels = self._profile.of(stage.name, stage.split)
        else:
            shipped = fitting(deployment.model.name, stage.name, decoder, gpu.name, stage.split)
            kernels = None if shipped is None else shipped[1]
        return steps_of(stage, self.deployment.gpu, kernels, (decoder, gpu) if scaled else None)

    def _estimated(self, stage: Stage) -> KernelSteps | None:
        """Return the times of kernels at rates that were fitted to those of measured GPUs; None if the deployment has a
        roofline of its own, or the GPU has no such rates."""
        gpu = self.deployment.gpu
        if gpu.kernels is None or self.deployment.in_turn or self.deployment.waves:
            return None
        return FittedSteps(stage.decoder, gpu, stage.split, slots_of(stage))

    def _executed(self, stage: Stage, index: int, gpu: VirtualGpu) -> Replica:
        # vLLM's engine and worker take seconds to import, and a replay needs neither.
        from engines.core.vllm_adapter.execution import ModelExecutor
        from engines.devices.real import CopyAtOnce, DeviceThread, RealStage

        if self._thread is None:
            self._thread = DeviceThread(self.device)
        executor = ModelExecutor(stage)
        self._executors.append(executor)
        transfers = None
        if stage.host_kv_gb:
            copies = CopyAtOnce(self.deployment.gpu.pcie_bandwidth)
            transfers = vllm.HostTransfers(
                copies, copies, stage.block_bytes, executor.host_memory(), stage.extension(HostCopies) or HostCopies()
            )
        device = RealStage(executor, self._thread)
        self._listen(stage, executor)
        return Replica(stage, index, executor.scheduler, device, transfers, executor, gpu)

    def _listen(self, stage: Stage, executor: Any) -> None:
        """Let a model that can hear take its users' sound; of several replicas the first one's processor does it."""
        nothing = self.trace is None and self._sound is None
        if stage.decoder.audio_encoder is None or nothing or self.audio_encoder is not None:
            return
        from engines.devices import audio_encoder

        if self.trace is not None:
            self._sound = audio_encoder.sound_of(self.trace)
        assert self._sound is not None
        self.audio_encoder = audio_encoder.AudioEncoder(executor, self._sound)
