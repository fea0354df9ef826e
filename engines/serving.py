"""Stage replicas and their front, ready to serve."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engines.core.engine import StageEngine
from engines.core.lockstep import Lockstep
from engines.deployment import Deployment


class Gateway(Protocol):
    """What a system puts in front of its stages. Clients call it in the words of the kind of workload it serves."""

    @property
    def deployment(self) -> Deployment: ...

    def counters(self) -> Mapping[str, int]:
        """What was counted here, for the record."""
        ...

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What runs for ever beside the stages."""
        ...


@dataclass
class Serving:
    """`gateway` is what clients talk to. `executors`: the real ones among the replicas' devices, and `thread`, in which
    they run. `audio_encoder`: of a model that really hears. `said`: session, what it answers and token ids, in the
    order in which they were said; None where that is not kept. `groups`: of engines that step together."""

    gateway: Any
    engines: Sequence[StageEngine]
    executors: Sequence[Any] = field(default_factory=list)
    thread: Any = None
    audio_encoder: Any = None
    said: Sequence[tuple[int, int, list[int]]] | None = None
    groups: Sequence[Lockstep] = ()

    def warm_up(self) -> int:
        """Let real executors take first steps that nobody measures; returns their number."""
        steps = sum(executor.warm_up() for executor in self.executors)
        return steps + (self.audio_encoder.warm_up() if self.audio_encoder is not None else 0)

    def close(self) -> dict[str, int]:
        """Shut real executors down; returns what they still held before: nothing, after a clean run."""
        if self.audio_encoder is not None:
            self.audio_encoder.close()
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
        together = {engine for group in self.groups for engine in group.engines}
        tasks = [
            asyncio.create_task(engine.serve(), name=f"engine {engine.stage}.{engine.index}")
            for engine in self.engines
            if engine not in together
        ]
        tasks += [asyncio.create_task(group.serve(), name="engines in lock step") for group in self.groups]
        return tasks + [asyncio.create_task(task, name=task.__name__) for task in self.gateway.tasks()]

    async def settle(self) -> None:
        """Wait until no stage has anything left to do: the last aborts are applied, the last transfers have ended."""
        while any(engine.busy for engine in self.engines):
            await asyncio.sleep(0.01)

    def counters(self) -> dict[str, int]:
        """What gateway, policies, schedulers and stores counted, for the record."""
        counters: Counter[str] = Counter()
        for engine in self.engines:
            for source in engine.counters():
                counters.update({f"{engine.stage}.{name}": n for name, n in source.items()})
        return {**self.gateway.counters(), **counters}
