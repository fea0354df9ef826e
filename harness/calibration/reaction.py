"""How soon a step ends once it is interrupted, beside the time of one layer."""

from collections.abc import Sequence

import numpy as np

from engines.core.policy import Plan, StageView
from engines.devices.profile import Reaction
from harness.calibration.cells import Chunk, Group, Limits
from harness.calibration.driver import Driver, Script, only

TRIES = 40
"""Interruptions of each shape of step."""

WHOLE = 3
"""Steps that are measured whole, and as many without the forward, before they are interrupted."""


def reaction_shapes(limits: Limits) -> list[tuple[Group, Chunk | None]]:
    """A small and a large batch of decodes, and a prefill chunk among two."""
    context = min(256, limits.max_model_len // 4)
    chunk = Chunk(min(limits.max_num_batched_tokens - 4, limits.max_model_len // 2, 512), 0, ends=False)
    many = max(2, min(limits.max_num_seqs // 2, limits.pool_tokens // (2 * context)))
    return [(Group(1, context), None), (Group(many, context), None), (Group(2, context), chunk)]


def react(
    driver: Driver, shapes: Sequence[tuple[Group, Chunk | None]], layers: int, into: list[Reaction]
) -> Script:
    """Interrupt steps of each shape at times drawn evenly over the step; what came of it goes `into`.

    The flag is set through the engine, as a barge-in would. A layer's time is what a step takes beyond one without the
    forward, over the layers.
    """
    view = yield Plan()
    for group, chunk in shapes:
        output = 3 * (TRIES + 2 * WHOLE)
        decodes = [driver.request(driver.near(group.context), output) for _ in range(group.decodes)]
        view = yield from driver.decodes(view, decodes)
        running = {request.id for request in decodes}
        without: list[float] = []
        whole: list[float] = []
        reactions: list[float] = []
        for _ in range(WHOLE):
            driver.skip(True)
            view = yield from _step(driver, view, running, chunk, None, without)
            driver.skip(False)
            view = yield from _step(driver, view, running, chunk, None, whole)
        step_s = float(np.median(whole))
        for _ in range(TRIES):
            delay_s = float(driver.rng.uniform(0, step_s))
            view = yield from _step(driver, view, running, chunk, delay_s, reactions)
        view = yield from driver.abort(view, decodes)
        if reactions:
            median_s, p90_s = np.quantile(reactions, [0.5, 0.9]).tolist()
            into.append(
                Reaction(
                    shape=_name(group, chunk),
                    step_s=round(step_s, 6),
                    layer_s=round(max(0.0, step_s - float(np.median(without))) / layers, 6),
                    median_s=round(median_s, 6),
                    p90_s=round(p90_s, 6),
                    interrupted=len(reactions),
                    ran_out=TRIES - len(reactions),
                )
            )
    return view


def _step(
    driver: Driver,
    view: StageView,
    running: set[str],
    chunk: Chunk | None,
    interrupt_after_s: float | None,
    into: list[float],
) -> Script:
    """One step of the shape, after one of the decodes alone: its seconds, or from flag to end if it was interrupted."""
    prompts = [driver.request(chunk.tokens + 4)] if chunk else []
    caps = {request.id: chunk.tokens for request in prompts} if chunk else {}
    if prompts:
        view = yield from driver.submit(view, prompts)
    view = yield only(view, running)
    ids = running | caps.keys()
    flagged: list[float] = []

    def interrupt() -> None:
        flagged.append(driver.loop.time())
        driver.engine.interrupt(ids)

    timer = None if interrupt_after_s is None else driver.loop.call_later(interrupt_after_s, interrupt)
    view = yield only(view, ids, caps)
    if timer is None:
        into.append(driver.elapsed_s)
    else:
        timer.cancel()
        if flagged and driver.tap.dropped:
            into.append(driver.tap.ended_s - flagged[0])
    if prompts:
        view = yield from driver.abort(view, prompts)
    return view


def _name(group: Group, chunk: Chunk | None) -> str:
    decodes = f"{group.decodes} decode{'s' if group.decodes != 1 else ''} at {group.context} tokens"
    return decodes if chunk is None else f"{decodes} and {chunk.tokens} prefill tokens"
