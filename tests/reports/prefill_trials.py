"""Trials on OmniInfer's Table 2: which first tokens other rules of the proxy, the batches or the client would give.

    python -m tests.reports.prefill_trials

A model of its own, without the product: a closed loop, prefill instances that compute one batch after the other, and
dies with a number of places each, on which every token takes the same time. So it says in seconds what a variant would
change, and it checks the product: the first column of its table is the same system.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from engines.deployments import load_deployment
from engines.devices.extensions import StatedSteps
from reports.papers.omniinfer.cluster import FILL_RATE, INPUT, LENGTHS, OUTPUT
from reports.papers.omniinfer.table2 import BARE, IN_FLIGHT, NAMES, PAPER, PROXY
from workloads.generators.batch import NovelParams, novel


@dataclass(frozen=True)
class Loop:
    """A closed loop and a variant of its parts; s, tokens.

    `token_s`: of a decoded token. `by_turns`: instances and dies take turns (nginx); else the least tokens. `burst_s`:
    the client replaces ended requests at such intervals. `window_s`: an instance waits so long before each batch.
    `held_over`: tokens of an instance above which a request waits at the proxy. `whole`: a prompt is computed in one
    batch, and others go past one that does not fit. `slower`: factor on the time of a batch.
    """

    token_s: float
    by_turns: bool = False
    burst_s: float = 0.0
    window_s: float = 0.0
    held_over: float = np.inf
    whole: bool = False
    slower: float = 1.0
    in_flight: int = IN_FLIGHT
    requests: int = LENGTHS * IN_FLIGHT
    instances: int = 6
    dies: int = 64
    places: int = 48
    seed: int = 0


class Cluster:
    """One run of a loop. `came_s`, `first_s`, `began_s`, `end_s`: of each request when it came, had its prompt
    computed, got a place on a die, ended."""

    def __init__(self, loop: Loop) -> None:
        stage = load_deployment("deepseek_r1_6p8_1d32").stages["thinker"].as_role("prefill")
        steps = stage.extension(StatedSteps)
        assert steps is not None
        self.loop, self.scale, self.cost = loop, loop.slower * steps.scale, steps.coefficients
        self.room, self.most = stage.max_num_batched_tokens, stage.max_num_seqs
        params = {"requests": loop.requests, "input_mean": INPUT, "output_mean": OUTPUT}
        columns = novel(NovelParams.model_validate(params), loop.seed).columns()
        self.prompts, self.replies = (columns[name].tolist() for name in ("input_tokens", "output_tokens"))
        self.rest = list(self.prompts)
        self.came_s, self.first_s, self.began_s, self.end_s = np.full((4, loop.requests), np.nan)
        self.queues = [deque[int]() for _ in range(loop.instances)]
        self.busy, self.tokens = [False] * loop.instances, [0] * loop.instances
        self.at_proxy, self.for_die = deque[int](), deque[int]()
        self.of_die = [deque[int]() for _ in range(loop.dies)]
        self.running, self.work = [0] * loop.dies, [0] * loop.dies
        self.instance = self.die = self.next = self.due = self.flying = 0
        self.events: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self.order = count()

    def run(self) -> None:
        """Requests come at a fixed rate as long as fewer than `in_flight` are there; the rest wait for an end."""
        for number in range(self.loop.requests):
            self.later(number / (FILL_RATE * self.loop.instances), self.comes)
        if self.loop.burst_s:
            self.later(self.loop.burst_s, self.burst)
        while self.events:
            now, _, happens, arguments = heappop(self.events)
            happens(now, *arguments)

    def later(self, at_s: float, happens: Any, *arguments: Any) -> None:
        heappush(self.events, (at_s, next(self.order), happens, arguments))

    def comes(self, now: float) -> None:
        self.due += 1
        if not self.loop.burst_s:
            self.fill(now)

    def burst(self, now: float) -> None:
        self.fill(now)
        if self.next < self.loop.requests:
            self.later(now + self.loop.burst_s, self.burst)

    def fill(self, now: float) -> None:
        while self.flying < self.loop.in_flight and self.next < self.due:
            self.came_s[self.next] = now
            self.at_proxy.append(self.next)
            self.flying, self.next = self.flying + 1, self.next + 1
            self.hand_over(now)

    def hand_over(self, now: float) -> None:
        """Send waiting requests to instances, in order, while there is one that may take the first."""
        number = range(self.loop.instances)
        while self.at_proxy:
            at = self.instance
            if not self.loop.by_turns:
                at = min(number, key=lambda i: (self.tokens[i], (i - self.instance) % len(number)))
            request = self.at_proxy[0]
            if self.tokens[at] and self.tokens[at] + self.prompts[request] > self.loop.held_over:
                return
            self.at_proxy.popleft()
            self.instance = (at + 1) % len(number)
            self.tokens[at] += self.prompts[request]
            self.queues[at].append(request)
            if not self.busy[at]:
                self.busy[at] = True
                self.later(now + self.loop.window_s, self.begin, at)

    def begin(self, now: float, at: int) -> None:
        """Begin a batch as vLLM does: in order, the last prompt in part; or of whole prompts."""
        queue, tokens, requests, done, past = self.queues[at], 0, 0, list[int](), list[int]()
        while queue and tokens < self.room and requests < self.most:
            request = queue.popleft()
            part = min(self.rest[request], self.room - tokens)
            if part < self.rest[request] and self.loop.whole:
                past.append(request)
                continue
            tokens, requests = tokens + part, requests + 1
            self.rest[request] -= part
            if self.rest[request]:
                queue.appendleft(request)
            else:
                done.append(request)
        queue.extendleft(reversed(past))
        self.busy[at] = bool(requests)
        if requests:
            lasts_s = self.scale * (self.cost["constant"] + self.cost["k1"] * tokens)
            self.later(now + lasts_s, self.computed, at, done)

    def computed(self, now: float, at: int, done: Iterable[int]) -> None:
        for request in done:
            self.first_s[request] = now
            self.tokens[at] -= self.prompts[request]
            self.to_die(now, request)
        self.later(now + self.loop.window_s, self.begin, at)
        self.hand_over(now)

    def to_die(self, now: float, request: int) -> None:
        number, at = range(self.loop.dies), self.die
        if not self.loop.by_turns:
            free = [i for i in number if self.running[i] < self.loop.places]
            if not free:
                self.for_die.append(request)
                return
            at = min(free, key=lambda i: (self.work[i], (i - self.die) % len(number)))
        self.die = (at + 1) % len(number)
        self.work[at] += self.prompts[request] + self.replies[request]
        if self.running[at] < self.loop.places:
            self.decode(now, request, at)
        else:
            self.of_die[at].append(request)

    def decode(self, now: float, request: int, at: int) -> None:
        self.running[at] += 1
        self.began_s[request] = now
        self.later(now + self.replies[request] * self.loop.token_s, self.ends, request, at)

    def ends(self, now: float, request: int, at: int) -> None:
        self.end_s[request] = now
        self.running[at] -= 1
        self.work[at] -= self.prompts[request] + self.replies[request]
        if self.of_die[at]:
            self.decode(now, self.of_die[at].popleft(), at)
        elif self.for_die:
            self.to_die(now, self.for_die.popleft())
        self.flying -= 1
        if not self.loop.burst_s:
            self.fill(now)

    def steady(self) -> tuple[np.ndarray, float, float]:
        """Return which requests ended in the steady window, its begin and its end."""
        begin_s, end_s = np.sort(self.end_s)[self.loop.in_flight - 1], self.came_s.max()
        return (self.end_s > begin_s) & (self.end_s <= end_s), float(begin_s), float(end_s)


VARIANTS: dict[str, dict[str, Any]] = {
    "as measured": {},
    "queue at the proxy": {"held_over": 32_000},
    "window of 100 ms": {"window_s": 0.1},
    "bursts each 0.5 s": {"burst_s": 0.5},
    "bursts each 2 s": {"burst_s": 2.0},
    "whole prompts": {"whole": True},
    "steps of 3 % more": {"slower": 1.03},
}
"""The proxy's start script has 32,000 tokens for an instance, and OmniInfer's patch of vLLM computes prompts whole."""


def row(loop: Loop, from_die: bool = False) -> str:
    """Mean and P99 of the first token's time, s; `from_die`: where the die sends it, and not the instance."""
    cluster = Cluster(loop)
    cluster.run()
    inside, *_ = cluster.steady()
    first_s = cluster.began_s + loop.token_s if from_die else cluster.first_s
    waits = (first_s - cluster.came_s)[inside]
    return f"{waits.mean():.2f} / {np.percentile(waits, 99):.2f}"


def main() -> None:
    print("| TTFT, s: mean / P99 | paper |", " | ".join([*VARIANTS, "first token from the die"]), "|")
    print("|---" * (len(VARIANTS) + 3) + "|")
    for panel, published in PAPER.items():
        loop = Loop(published[2], panel in (PROXY, BARE))
        cells = [row(replace(loop, **variant)) for variant in VARIANTS.values()]
        print(f"| {NAMES[panel]} | {published[0]:.2f} / {published[1]:.2f} |", end=" ")
        print(" | ".join([*cells, row(loop, from_die=True)]), "|")


if __name__ == "__main__":
    main()
